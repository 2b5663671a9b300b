"""Planning backups: brokers are asked what they hold, and the choice can be explained."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Literal

import msgspec
import pytest

from tests.unit.coordinator.answering import summaries_of
from tocsin.coordinator import planning
from tocsin.coordinator.planning import PREFIX, SAID_S, Explanation, Planner, decide
from tocsin.core.coordination.leader.backup_planning import PlanMade, WantPlan
from tocsin.core.coordination.state.backups import Backups
from tocsin.core.forwarding.rates import Rates
from tocsin.core.machine import Event
from tocsin.model.network import BrokerInfo, Role
from tocsin.ports import BusMessage, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal import summaries
from tocsin.wire.internal.summaries import Ask, Summary, decode_summary, encode, name_of, subject

BROKERS = tuple(
    BrokerInfo(f"{cluster}-{number}", cluster, Role.EDGE, "127.0.0.1", 1)
    for cluster in ("north", "south")
    for number in (1, 2, 3)
)


def choose(
    brokers: tuple[BrokerInfo, ...],
    told: dict[str, tuple[dict[int, int], Summary]],
    previous: dict[str, Backups],
    at_s: float,
    weights: dict[str, float] | None = None,
) -> tuple[dict[str, Backups], list[Explanation]]:
    """The plan, and why."""
    decision = decide(brokers, told, previous, weights)
    return decision.backups, [decision.explained(each.id, at_s) for each in brokers]


def known(**held: set[str]) -> dict[str, tuple[dict[int, int], Summary]]:
    return {
        name.replace("_", "-"): ({name_of(each): 1 for each in names}, Summary(1, 1, {}))
        for name, names in held.items()
    }


def test_the_strategy_of_the_settings_makes_the_plan() -> None:
    """By its turn north-1 takes the backup that adds least, though north-2 then adds more than it need."""
    held = known(north_1={"a"}, north_2={"a", "b"}, north_3={"b"}, south_1={"a"})
    plans = {}
    for strategy in ("search", "lcs_mmcs", "random"):
        decision = decide(BROKERS, held, {}, None, strategy)
        assert decision.explained("north-1", 0.0).strategy == strategy
        assert decision.backups == decide(BROKERS, held, {}, None, strategy).backups
        plans[strategy] = decision.backups
    assert plans["random"] != plans["search"] and plans["random"] != plans["lcs_mmcs"]
    kept = decide(BROKERS, held, plans["random"], None, "lcs_mmcs")
    assert kept.backups == plans["lcs_mmcs"], "the former plan does not bind it"


def test_who_has_the_most_in_common_backs_and_the_explanation_says_so() -> None:
    held = known(
        north_1={"a", "b", "c"}, north_2={"x"}, north_3={"a", "b"}, south_1={"a", "b", "c"}, south_2={"y"}
    )
    backups, explanations = choose(BROKERS, held, {}, 7.0)
    assert backups["north-1"] == Backups("north-3", "south-1")
    first = explanations[0]
    assert (first.broker, first.held, first.at_s) == ("north-1", 3, 7.0)
    best = first.local[0]
    assert (best.name, best.added, best.chosen) == ("north-3", 1, True)
    assert {each.name for each in first.remote} == {"south-1", "south-2", "south-3"}


def test_a_plan_that_is_there_moves_little() -> None:
    held = known(north_1={"a", "b", "c"}, north_2={"a", "b"}, north_3={"a", "b"})
    before, _ = choose(BROKERS, held, {}, 0.0)
    without = tuple(each for each in BROKERS if each.id != before["south-1"].local)
    after, _ = choose(without, held, before, 0.0)
    moved = [name for name in after if after[name] != before[name]]
    assert all(before["south-1"].local in (before[name].local, before[name].remote) for name in moved), (
        "only who lost one"
    )


async def test_brokers_are_asked_in_pages_and_silent_ones_keep_their_holdings() -> None:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("coordination"))
    posted: asyncio.Queue[Event] = asyncio.Queue()
    planner = Planner(store.bus, table, "net", posted.put_nowait)
    names = [f"topic/{number}" for number in range(summaries.PAGE + 5)]
    full = summaries_of(lambda: ((name, 2) for name in names), score=0.5)
    empty = summaries_of(capacity=10.0, problems=("no battery",))
    pair = (BROKERS[0], BROKERS[1])
    async with (
        store.bus.serve(subject("net", "north-1"), full.answer),
        store.bus.serve(subject("net", "north-2"), empty.answer),
        asyncio.timeout(30),
    ):
        planner.want(WantPlan(brokers=pair, previous={}))
        made = await posted.get()
    assert isinstance(made, PlanMade)
    assert made.backups == {"north-1": Backups("north-2", None), "north-2": Backups("north-1", None)}
    async with asyncio.timeout(30):
        while (cell := await table.get(f"{PREFIX}north-1")) is None:
            await asyncio.sleep(0.01)
        explanation = msgspec.json.decode(cell.value, type=Explanation)
        assert explanation.held == len(names)
        assert any("there is no other cluster" in each for each in explanation.shortfalls)
        planner.want(WantPlan(brokers=pair, previous=made.backups))  # nobody answers any more
        again = await posted.get()
    assert isinstance(again, PlanMade) and again.backups == made.backups
    assert len(planner._known["north-1"][0]) == len(names)
    await planner.close()
    await store.close()


def test_an_explanation_that_says_the_same_is_not_written_for_a_while() -> None:
    first = choose(BROKERS, known(north_1={"a"}, north_2={"a"}), {}, 0.0)[1][0]
    later = msgspec.structs.replace(first, at_s=first.at_s + SAID_S)
    assert planning._is_said(later, first)
    assert not planning._is_said(later, None)
    assert not planning._is_said(msgspec.structs.replace(later, held=first.held + 1), first)
    assert not planning._is_said(msgspec.structs.replace(later, at_s=later.at_s + 1), first)


def test_which_of_many_candidates_are_shown_is_no_news() -> None:
    first = choose(BROKERS, known(north_1={"a"}, north_2={"a"}), {}, 0.0)[1][0]
    chosen = next(each for each in (*first.local, *first.remote) if each.chosen)

    def of(*others: str) -> Explanation:
        shown = (chosen, *(msgspec.structs.replace(chosen, name=name, chosen=False) for name in others))
        return msgspec.structs.replace(first, remote=shown)

    many = [f"far-{number}" for number in range(planning.SHOWN_MAX)]
    assert planning._is_said(of(*many[1:]), of(*many[:-1])), (
        "others score better now, and the choice is the same"
    )
    assert not planning._is_said(of(*many[:3]), of(*many[:2])), "a broker has come"


async def test_a_plan_does_not_wait_for_explanations_and_the_next_cancels_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, asked, explained = threading.Event(), [], planning._explained

    def slow(decision: planning.Decision, broker: str, at_s: float) -> Explanation:
        asked.append(broker)
        assert go.wait(30)
        return explained(decision, broker, at_s)

    monkeypatch.setattr(planning, "_explained", slow)
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("coordination"))
    posted: asyncio.Queue[Event] = asyncio.Queue()
    planner = Planner(store.bus, table, "net", posted.put_nowait)
    async with asyncio.timeout(30):
        for _ in range(2):
            planner.want(WantPlan(brokers=BROKERS[:2], previous={}))
            assert isinstance(await posted.get(), PlanMade)
            while not asked:
                await asyncio.sleep(0.01)
        go.set()
        while await table.get(f"{PREFIX}north-2") is None:
            await asyncio.sleep(0.01)
    assert asked == ["north-1", "north-1", "north-2"], "of the first plan nothing more was said"
    await planner.close()
    await store.close()


async def test_a_summary_that_changed_between_two_pages_begins_anew() -> None:
    held = [("a", 1)]
    answering = summaries_of(
        lambda: held, capacity=7.0, score=0.5, problems=("no battery",), terms={"power": (0.1, 1.0)}
    )

    async def ask(page: int, number: int) -> Summary:
        return decode_summary(await answering.answer(BusMessage("x", encode(Ask(page, number)))))

    first = await ask(0, 0)
    assert (first.summary, first.pages, first.held) == (1, 1, {name_of("a"): 1})
    assert (first.capacity, first.resources, first.problems) == (7.0, 0.5, ("no battery",))
    assert first.terms == {"power": (0.1, 1.0)}
    assert (await ask(5, 1)).held == first.held, "a page that is not there is the first"
    held.append(("b", 1))
    assert len((await ask(0, 1)).held) == 2


def scored(**scores: float | None) -> dict[str, tuple[dict[int, int], Summary]]:
    """Brokers that hold the same, with machines of these scores."""
    return {
        name.replace("_", "-"): (
            {name_of("a"): 1},
            Summary(1, 1, {}, 0.0, score, (), {"power": (score or 0.0, 1.0)}),
        )
        for name, score in scores.items()
    }


def test_a_bad_machine_is_not_chosen_over_an_equally_similar_one() -> None:
    good = scored(north_1=1.0, north_2=1.0, north_3=1.0, south_1=1.0, south_2=1.0, south_3=1.0)
    for bad, other in (("north-2", "north-3"), ("north-3", "north-2")):
        told = good | scored(**{bad.replace("-", "_"): 0.1})
        backups, explanations = choose(BROKERS, told, {}, 0.0)
        assert backups["north-1"].local == other
        assert [each.name for each in explanations[0].local] == [other, bad]
        assert explanations[0].local[1].machine == {"power": (0.1, 1.0)}
        again, _ = choose(BROKERS, told, {"north-1": Backups(bad, "south-1")}, 0.0)
        assert again["north-1"].local == other, "one that has become bad is left"


def test_a_machine_that_is_merely_busy_moves_nothing_where_little_is_held() -> None:
    before = {"north-1": Backups("north-2", "south-1")}
    told = scored(north_1=1.0, north_2=0.84, north_3=1.0, south_1=0.84, south_2=1.0, south_3=1.0)
    assert choose(BROKERS, told, before, 0.0)[0]["north-1"] == before["north-1"]


def test_the_settings_say_how_much_a_machine_counts() -> None:
    told = scored(north_1=1.0, north_2=0.5, north_3=1.0, south_1=1.0)
    heavy = {"similarity": 1.0, "nearness": 0.0, "room": 0.0, "resources": 3.0}
    _, explanations = choose(BROKERS, told, {}, 0.0, heavy)
    bad = next(each for each in explanations[0].local if each.name == "north-2")
    assert bad.score == 1.0 * 0.25 + 0.5 * 0.75
    weights = {name: weight for name, (_, weight) in bad.terms.items()}
    assert weights == {"similarity": 0.25, "nearness": 0.0, "room": 0.0, "resources": 0.75}
    assert bad.terms["resources"][0] == 0.5 and bad.terms["similarity"][0] == 1.0
    none = {"similarity": 1.0, "nearness": 0.0, "room": 0.0, "resources": 0.0}
    before, _ = choose(BROKERS, scored(north_1=1.0), {}, 0.0, none)
    assert choose(BROKERS, told, before, 0.0, none)[0] == before, "it does not count at all"


def test_a_broker_that_does_not_answer_is_named_as_such() -> None:
    _, explanations = choose(BROKERS, scored(north_1=1.0, north_3=1.0), {}, 0.0)
    silent = next(each for each in explanations[0].local if each.name == "north-2")
    assert silent.problems == ("the broker does not answer",)
    assert silent.unanswered == {"resources": "no answer"}


def test_where_no_capacity_is_said_one_broker_does_not_back_everybody() -> None:
    cluster = tuple(BrokerInfo(f"n-{number}", "n", Role.EDGE, "127.0.0.1", 1) for number in range(12))
    everything = {f"topic/{number}" for number in range(50)}
    held = known(n_0=everything, **{f"n_{number}": {f"topic/{number}"} for number in range(1, 12)})
    backups, explanations = choose(cluster, held, {}, 0.0)
    most = max(Counter(each.local for each in backups.values()).values())
    assert backups["n-5"].local == "n-0", "it has what the other has"
    assert most < 12 and all(
        "no other cluster" in problem for each in explanations for problem in each.shortfalls
    )


# ── how far they are ─────────────────────────────────────────────────────────────────────────────────────────


def measured(**delays: dict[str, int]) -> dict[str, tuple[dict[int, int], Summary]]:
    """Brokers that hold the same, with these delays to others."""
    return {
        name.replace("_", "-"): ({name_of("a"): 1}, Summary(1, 1, {}, 0.0, 1.0, delays=told))
        for name, told in delays.items()
    }


def test_nearness_is_what_was_measured_and_by_clusters_where_nobody_has() -> None:
    told = measured(north_1={"north-2": 50_000}, north_2={}, north_3={}, south_1={"north-1": 150_000})
    _, explanations = choose(BROKERS, told, {}, 0.0)
    local = {each.name: each for each in explanations[0].local}
    remote = {each.name: each for each in explanations[0].remote}
    assert (local["north-2"].terms["nearness"][0], local["north-2"].delay_us) == (0.5, 50_000)
    assert (local["north-3"].terms["nearness"][0], local["north-3"].delay_us) == (1.0, None)
    assert (remote["south-1"].terms["nearness"][0], remote["south-1"].delay_us) == (0.25, 150_000)
    assert (remote["south-2"].terms["nearness"][0], remote["south-2"].delay_us) == (0.5, None)


def test_a_distant_broker_is_not_chosen_over_an_equally_similar_one() -> None:
    everybody = ("north_1", "north_2", "north_3", "south_1", "south_2", "south_3")
    near = {"similarity": 0.2, "nearness": 0.8, "room": 0.0, "resources": 0.0}
    for far, other in (("north-2", "north-3"), ("north-3", "north-2")):
        told = measured(**{name: {far: 400_000} for name in everybody})
        backups, explanations = choose(BROKERS, told, {}, 0.0, near)
        assert backups["north-1"].local == other
        assert [each.name for each in explanations[0].local] == [other, far]


def test_delays_as_they_are_in_a_local_network_move_nothing() -> None:
    everybody = ("north_1", "north_2", "north_3", "south_1", "south_2", "south_3")
    before = {"north-1": Backups("north-2", "south-1")}
    told = measured(**{name: {"north-2": 900, "north-3": 300} for name in everybody})
    assert choose(BROKERS, told, before, 0.0)[0]["north-1"] == before["north-1"]


# ── data rates ──────────────────────────────────────────────────────────────────────────────────────────────

CLUSTER = tuple(BrokerInfo(f"n-{number}", "n", Role.EDGE, "127.0.0.1", 1) for number in (1, 2, 3, 4))
MOST = 1_070_000.0  # bytes a second


def rated(
    capacity_bytes_per_s: float = MOST, *, measures: bool = True
) -> dict[str, tuple[dict[int, int], Summary]]:
    """Four brokers with eleven subscriptions each. n-2 has all of n-1's, and a hot one beside."""
    common = [f"s/{number}" for number in range(10)]
    held = {
        "n-1": [*common, "own"],
        "n-2": [*common, "hot"],
        "n-3": [*common[:5], *(f"cold/{number}" for number in range(6))],
        "n-4": [f"other/{number}" for number in range(11)],
    }
    figures = {name_of("hot"): 1_000_000.0, **{name_of(each): 4_000.0 for each in common}}
    return {
        broker: (
            {name_of(each): 1 for each in names},
            Summary(
                1,
                1,
                {},
                resources=1.0,
                rates={k: figures[k] for k in map(name_of, names) if k in figures} if measures else None,
                capacity_bytes_per_s=capacity_bytes_per_s,
            ),
        )
        for broker, names in held.items()
    }


def test_equally_many_subscriptions_of_other_rates_make_another_plan() -> None:
    blind = decide(CLUSTER, rated(0.0), {})
    assert blind.unit == "pairs" and not blind.demand.rates
    assert blind.backups["n-1"].local == "n-2", "it has all that n-1 has but one"
    seen = decide(CLUSTER, rated(), {})
    assert seen.unit == "bytes/s"
    assert seen.backups["n-1"].local in ("n-3", "n-4")
    assert all(load < MOST for load in seen.made.load.values()), "eq. 7 holds"
    assert {each.kind for each in seen.made.shortfalls} == {"nobody"}, "there is no other cluster"
    true = seen.loads
    assert true is not None
    would = true["n-2"] + sum(true[name] for name, each in blind.backups.items() if each.local == "n-2")
    assert would > MOST, "the plan by numbers alone breaks it"
    moved = decide(CLUSTER, rated(), blind.backups)
    assert moved.backups["n-1"].local != "n-2" and all(load < MOST for load in moved.made.load.values())


@pytest.mark.parametrize("strategy", ["lcs_mmcs", "random"])
def test_every_strategy_keeps_to_data_rates(strategy: Literal["lcs_mmcs", "random"]) -> None:
    made = decide(CLUSTER, rated(), {}, None, strategy).made
    assert made.load["n-2"] < MOST


def test_an_explanation_has_the_load_and_whether_capacity_decided() -> None:
    told = decide(CLUSTER, rated(), {}).explained("n-1", 0.0)
    assert (told.unit, told.load_bytes_per_s, told.without_room) == ("bytes/s", 40_000.0, {"local": "n-2"})
    barred = next(each for each in told.local if each.name == "n-2")
    assert barred.obstacle is not None and "1,070,000 bytes/s" in barred.obstacle
    assert (barred.load >= MOST, barred.capacity) == (True, MOST)
    counted = decide(CLUSTER, rated(0.0), {}).explained("n-1", 0.0)
    assert (counted.unit, counted.load_bytes_per_s, counted.without_room) == ("pairs", 40_000.0, {})
    unknown = decide(CLUSTER, rated(0.0, measures=False), {}).explained("n-1", 0.0)
    assert unknown.load_bytes_per_s is None


def test_a_shortfall_of_data_says_its_unit() -> None:
    told = decide(CLUSTER, rated(100_000.0), {}).explained("n-2", 0.0)
    assert any("can carry less than 100,000 bytes/s" in each for each in told.shortfalls)


def test_a_broker_that_measures_nothing_has_the_rates_of_others() -> None:
    told = rated()
    held, _ = told["n-3"]
    told["n-3"] = held, Summary(1, 1, {}, 22.0, 1.0)
    decision = decide(CLUSTER, told, {})
    assert decision.loads is not None
    mean = (40_000 + 1_040_000) / 33
    assert decision.loads["n-3"] == pytest.approx(5 * 4_000 + 6 * mean)
    capacity = {each.name: each.capacity for each in decision.demand.members}
    assert capacity["n-3"] == pytest.approx(22 * mean) and capacity["n-1"] == MOST


def test_a_summary_and_its_reader_may_be_of_two_releases() -> None:
    """The fields of rates are at the end: an older reader passes over them, a newer one has their defaults."""
    fields = Summary.__struct_fields__
    assert fields[-3:] == ("rates", "rest", "capacity_bytes_per_s")
    told = Summary(1, 1, {5: 2}, 7.0, rates={5: 3.5}, rest=0.5, capacity_bytes_per_s=9.0)
    assert decode_summary(encode(told)) == told
    values = msgspec.msgpack.decode(encode(told)[1:], strict=False)
    earlier = decode_summary(encode(told)[:1] + msgspec.msgpack.encode(values[:-3]))
    assert (earlier.held, earlier.capacity) == ({5: 2}, 7.0)
    assert (earlier.rates, earlier.rest, earlier.capacity_bytes_per_s) == (None, 0.0, 0.0)

    class Before(msgspec.Struct, array_like=True):
        summary: int
        pages: int
        held: dict[int, int]
        capacity: float = 0.0

    assert msgspec.msgpack.decode(encode(told)[1:], type=Before).capacity == 7.0


async def test_rates_come_page_by_page_and_the_rest_as_a_mean() -> None:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("coordination"))
    posted: asyncio.Queue[Event] = asyncio.Queue()
    planner = Planner(store.bus, table, "net", posted.put_nowait)
    names = [f"topic/{number}" for number in range(summaries.PAGE + 5)]
    figures = Rates({names[0]: 3.0, names[-1]: 4.0, "gone": 5.0}, rest=2.0 * 2 * (len(names) - 2))
    busy = summaries_of(lambda: ((name, 2) for name in names), rates=figures, capacity_bytes_per_s=1e6)
    empty = summaries_of(drains=True, capacity_bytes_per_s=1e6)
    async with (
        store.bus.serve(subject("net", "n-1"), busy.answer),
        store.bus.serve(subject("net", "n-2"), empty.answer),
        asyncio.timeout(30),
    ):
        planner.want(WantPlan(brokers=CLUSTER[:2], previous={}))
        assert isinstance(await posted.get(), PlanMade)
    _, told = planner._known["n-1"]
    assert told.rates == {name_of(names[0]): 3.0, name_of(names[-1]): 4.0}
    assert (told.rest, told.capacity_bytes_per_s) == (2.0, 1e6)
    assert 0 < planner._known["n-2"][1].capacity_bytes_per_s < 1, "it drains, and has no room"
    await planner.close()
    await store.close()
