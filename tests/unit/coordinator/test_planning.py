"""Planning backups: brokers are asked what they hold, and the choice can be explained."""

from __future__ import annotations

import asyncio

import msgspec

from tocsin.broker.summary import Summaries
from tocsin.coordinator.planning import PREFIX, Explanation, Planner, choose
from tocsin.core.coordination.planning import PlanMade, WantPlan
from tocsin.core.coordination.survival import Backups
from tocsin.core.machine import Event
from tocsin.model.network import BrokerInfo, Role
from tocsin.ports import Delivery, TableSpec
from tocsin.store.memory import MemoryServer, MemoryStore
from tocsin.wire import summaries
from tocsin.wire.summaries import Ask, Summary, decode_summary, encode, name_of, subject

BROKERS = tuple(
    BrokerInfo(f"{cluster}-{number}", cluster, Role.EDGE, "127.0.0.1", 1)
    for cluster in ("north", "south")
    for number in (1, 2, 3)
)


def known(**held: set[str]) -> dict[str, tuple[dict[int, int], Summary]]:
    return {
        name.replace("_", "-"): ({name_of(each): 1 for each in names}, Summary(1, 1, {}))
        for name, names in held.items()
    }


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


async def test_brokers_are_asked_page_by_page_and_who_is_silent_holds_what_it_held() -> None:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("coordination"))
    posted: asyncio.Queue[Event] = asyncio.Queue()
    planner = Planner(store.bus, table, "net", posted.put_nowait)
    names = [f"topic/{number}" for number in range(summaries.PAGE + 5)]
    full = Summaries(lambda: ((name, 2) for name in names), 0.0, lambda: (0.5, ()))
    empty = Summaries(lambda: (), 10.0, lambda: (None, ("no battery",)))
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


async def test_a_summary_that_changed_between_two_pages_begins_anew() -> None:
    held = [("a", 1)]
    answering = Summaries(lambda: held, 0.0, lambda: (None, ()))

    async def ask(page: int, number: int) -> Summary:
        return decode_summary(await answering.answer(Delivery("x", encode(Ask(page, number)))))

    first = await ask(0, 0)
    assert (first.summary, first.pages, first.held) == (1, 1, {name_of("a"): 1})
    assert (await ask(5, 1)).held == first.held, "a page that is not there is the first"
    held.append(("b", 1))
    assert len((await ask(0, 1)).held) == 2
