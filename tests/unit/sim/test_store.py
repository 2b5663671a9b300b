"""The store as nodes see it: what is applied, what is answered, and what goes wrong."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.core.machine import (
    Append,
    DeleteKey,
    Effect,
    Event,
    GetKey,
    PutKey,
    ReadLog,
    Stored,
    StoreFailed,
)
from tocsin.errors import Conflict, OutcomeUnknown, StoreUnavailable, Trimmed
from tocsin.ports import Cell, Change, Entry, LogSpec, Page, Record, TableSpec
from tocsin.sim.chance import MILLION
from tocsin.sim.latency import Latency
from tocsin.sim.network import STORE, Cut, Link
from tocsin.sim.probe import Probe
from tocsin.sim.process.signals import Look
from tocsin.sim.store import DEADLINE_US, StoreWeather
from tocsin.sim.world import MachineRaised, World

MS = 1_000


class Do(Event, frozen=True, kw_only=True):
    """Have a probe ask for these."""

    effects: tuple[Effect, ...]


def do(event: Event, now_us: int) -> list[Effect]:
    return list(event.effects) if isinstance(event, Do) else []


class Bench:
    """A world with one node, a log and a table."""

    def __init__(self) -> None:
        self.probe = Probe(do)
        self.world = World(5)
        self.world.network.link_of = lambda sender, receiver: Link(Latency.constant(1 * MS))
        self.world.add("a", self.probe.make)
        self.world.log(LogSpec("log", ("log.>",)))
        self.world.table(TableSpec("table"))
        self.world.run_until(0)

    def ask(self, *effects: Effect, within_us: int = 2 * MS) -> None:
        self.world.post("a", Do(effects=effects))
        self.world.run_until(self.world.now_us + within_us)

    def answer(self) -> object:
        event = self.probe.seen[-1][1]
        if isinstance(event, StoreFailed):
            return event.error
        assert isinstance(event, Stored)
        return event.value

    @property
    def last_position(self) -> int:
        return self.world.store.logs["log"].last_position


def append(record_id: str, expected: int | None = None) -> Append:
    return Append(request="r", log="log", records=(Record("log.x", b"p", record_id),), expected=expected)


def put(value: bytes = b"v", revision: int | None = None, ttl_us: int | None = None) -> PutKey:
    return PutKey(request="r", table="table", key="k", value=value, revision=revision, ttl_us=ttl_us)


GET = GetKey(request="r", table="table", key="k")


def test_an_append_is_answered_with_its_positions_after_a_round_trip() -> None:
    bench = Bench()
    bench.ask(append("one"))
    assert bench.answer() == (1,)
    assert bench.probe.seen[-1][0] == 2 * MS


def test_every_operation_answers_as_the_port_says() -> None:
    bench = Bench()
    bench.ask(append("one"))
    bench.ask(ReadLog(request="r", log="log", subject=">", start=1, limit=10))
    page = bench.answer()
    assert isinstance(page, Page) and [entry.id for entry in page.entries] == ["one"]
    bench.ask(GET)
    assert bench.answer() is None
    bench.ask(put())
    assert bench.answer() == 1
    bench.ask(GET)
    assert bench.answer() == Cell("k", b"v", 1)
    bench.ask(DeleteKey(request="r", table="table", key="k", revision=1))
    assert bench.answer() is None
    bench.ask(put(revision=9))
    assert isinstance(bench.answer(), Conflict)


def test_a_repeated_append_returns_the_first_positions() -> None:
    bench = Bench()
    bench.ask(append("one", expected=0))
    bench.ask(append("one", expected=0))
    assert bench.answer() == (1,)
    assert bench.last_position == 1


def test_those_who_look_see_entries_and_changes_as_they_happen() -> None:
    bench = Bench()
    entries: list[tuple[int, Entry]] = []
    changes: list[tuple[int, Change]] = []
    world = bench.world
    world.observers.on_entry("log", lambda entry: entries.append((world.now_us, entry)))
    world.observers.on_change("table", lambda change: changes.append((world.now_us, change)))
    bench.ask(append("one"), append("one"), put(ttl_us=MILLION))
    world.run_until(2 * MILLION)
    assert [(at_us, entry.position) for at_us, entry in entries] == [(1 * MS, 1)]
    assert [(at_us, change.kind) for at_us, change in changes] == [
        (1 * MS, "put"),
        (MILLION + 1 * MS, "delete"),
    ]


def test_those_who_look_see_whose_put_took_effect_answered_or_not() -> None:
    bench = Bench()
    writes: list[tuple[str, bytes, int]] = []
    bench.world.observers.on_write("table", lambda node, put, at: writes.append((node, put.value, at)))
    bench.ask(put(b"one"), put(b"two", revision=9))
    assert writes == [("a", b"one", 1)], "the other conflicted"
    bench.world.store.weather.append(StoreWeather(mute_ppm=MILLION))
    bench.ask(put(b"three"))
    assert writes[1:] == [("a", b"three", 2)] and len(bench.probe.events(Stored)) == 1


def test_a_request_lost_in_a_cut_is_not_applied_and_times_out() -> None:
    for cut_at_us in (0, 500):
        bench = Bench()
        world = bench.world
        world.at(cut_at_us, lambda: world.network.add(Cut(frozenset({"a"}), frozenset({STORE}))))  # noqa: B023
        world.run_until(0)
        bench.ask(append("one"), within_us=DEADLINE_US)
        assert isinstance(bench.answer(), OutcomeUnknown)
        assert bench.probe.seen[-1][0] == DEADLINE_US
        assert bench.last_position == 0


def test_an_answer_lost_in_a_cut_leaves_an_applied_outcome_unknown() -> None:
    bench = Bench()
    bench.world.network.add(Cut(frozenset({"a"}), frozenset({STORE}), "in"))
    bench.ask(append("one"), within_us=DEADLINE_US)
    assert isinstance(bench.answer(), OutcomeUnknown)
    assert bench.last_position == 1


@pytest.mark.parametrize(
    ("weather", "error", "applied"),
    [
        (StoreWeather(refuse_ppm=MILLION), StoreUnavailable, 0),
        (StoreWeather(lose_ppm=MILLION), OutcomeUnknown, 0),
        (StoreWeather(mute_ppm=MILLION), OutcomeUnknown, 1),
    ],
)
def test_weather_refuses_loses_or_mutes(weather: StoreWeather, error: type[Exception], applied: int) -> None:
    bench = Bench()
    bench.world.store.weather.append(weather)
    bench.ask(append("one"), within_us=DEADLINE_US)
    assert isinstance(bench.answer(), error)
    assert bench.last_position == applied


def test_a_slow_store_applies_after_the_asker_gave_up() -> None:
    late = 0
    for attempt in range(20):
        bench = Bench()
        bench.world.store.weather.append(StoreWeather(slow_us=4 * DEADLINE_US))
        for _ in range(attempt):
            bench.world.chances.of("store").below(2)
        bench.ask(append("one"), within_us=DEADLINE_US)
        applied_by_then = bench.last_position
        bench.world.run_until(5 * DEADLINE_US)
        assert bench.last_position == 1
        if not applied_by_then:
            late += 1
            assert isinstance(bench.answer(), OutcomeUnknown)
    assert late > 5


def test_without_a_leader_nothing_is_written_and_nothing_expires() -> None:
    bench = Bench()
    store = bench.world.store
    bench.ask(put(ttl_us=MILLION))
    store.lose_leader()
    for number in range(8):
        bench.ask(append(f"r{number}"))
    bench.world.run_until(DEADLINE_US + MILLION)
    errors = [event.error for event in bench.probe.events(StoreFailed)]
    assert {type(error) for error in errors} == {StoreUnavailable, OutcomeUnknown}
    assert bench.last_position == 0
    assert store.tables["table"].revision == 1
    store.find_leader()
    bench.world.run_until(DEADLINE_US + 2 * MILLION)
    assert store.tables["table"].revision == 2


def test_an_answer_under_way_is_lost_with_the_leader() -> None:
    bench = Bench()
    bench.world.at(1_500, bench.world.store.lose_leader)
    bench.ask(append("one"), within_us=DEADLINE_US)
    assert isinstance(bench.answer(), OutcomeUnknown)
    assert bench.last_position == 1


def test_an_answer_for_an_earlier_life_is_not_told() -> None:
    bench = Bench()
    bench.ask(append("one"), within_us=1_500)
    bench.world.crash("a")
    bench.world.restart("a")
    bench.world.run_until(10 * MS)
    assert not bench.probe.events(Stored)


def test_a_log_that_was_not_opened_is_a_bug_of_the_machine() -> None:
    bench = Bench()
    with pytest.raises(MachineRaised, match="no log or table 'other'"):
        bench.ask(ReadLog(request="r", log="other", subject=">", start=1, limit=1))


def test_a_name_is_opened_once() -> None:
    bench = Bench()
    with pytest.raises(ValueError, match="open already"):
        bench.world.log(LogSpec("log", ("log.>",)))
    with pytest.raises(ValueError, match="open already"):
        bench.world.table(TableSpec("table"))


def test_what_is_no_longer_kept_is_said_to_be_trimmed() -> None:
    bench = Bench()
    bench.ask(append("one"), append("two"))
    bench.world.store.logs["log"].trim(0, before=2)
    bench.ask(ReadLog(request="r", log="log", subject=">", start=1, limit=1))
    assert isinstance(bench.answer(), Trimmed)


def test_a_deposed_leader_answers_plain_reads_stale_and_fresh_ones_never() -> None:
    bench = Bench()
    put = PutKey(request="put", table="table", key="k", value=b"old")
    bench.ask(put)
    bench.world.store.fall_silent(("a",))
    bench.ask(msgspec.structs.replace(put, value=b"new"))
    bench.ask(Append(request="append", log="log", records=(Record("log.a", b"x", "1"),)))
    get = GetKey(request="get", table="table", key="k")
    read = ReadLog(request="read", log="log", subject=">", start=0, limit=9)

    def value(*, fresh: bool) -> object:
        bench.ask(msgspec.structs.replace(get, fresh=fresh), within_us=DEADLINE_US)
        answer = bench.answer()
        return answer.value if isinstance(answer, Cell) else type(answer)

    assert value(fresh=False) == b"new", "it stands still"
    bench.world.store.wake_deposed(("a",))
    assert {value(fresh=False) for _ in range(8)} == {b"old"}
    assert {value(fresh=True) for _ in range(8)} == {b"new", OutcomeUnknown}
    bench.ask(read)
    page = bench.answer()
    assert isinstance(page, Page) and page.last == 0
    store = bench.world.store
    bench.world.own(Look, lambda node, effect: store.ask(bench.world.node(node), effect))
    look = Look(request="look", what=lambda log, now_us: log.last(None), log="log")
    bench.ask(look)
    assert bench.answer() == 0
    bench.ask(msgspec.structs.replace(look, writes=True))
    assert bench.answer() == 1, "it would be told that another leads"
    bench.world.store.hear_of_successor(("a",))
    assert value(fresh=False) == b"new"
