"""Follows and watches converge, whatever interrupts them."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.machine import Effect, Event, Followed, FollowLog, Started, TimerFired, Watched, WatchTable
from tocsin.ports import LogSpec, Record, TableSpec
from tocsin.sim.faults.kinds import (
    Crash,
    Fault,
    Lag,
    LeaderLoss,
    Partition,
    Pause,
    Sleep,
    WatchReset,
    unleash,
)
from tocsin.sim.network import STORE
from tocsin.sim.probe import Probe
from tocsin.sim.world import World
from tocsin.store.rules import matches

MS = 1_000
SECOND = 1_000_000


def tail_all(event: Event, now_us: int) -> list[Effect]:
    if isinstance(event, Started):
        return [FollowLog(log="log", subject="log.a", start=1), WatchTable(table="table", prefix="x")]
    return []


def follow_one(pattern: str, event: Event, now_us: int) -> list[Effect]:
    return [FollowLog(log="log", subject=pattern, start=1)] if isinstance(event, Started) else []


def make_world(probe: Probe) -> World:
    world = World(2)
    world.log(LogSpec("log", ("log.>",)))
    world.table(TableSpec("table"))
    world.add("a", probe.make)
    return world


class Writer:
    """Writes to the store directly, and knows what is there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.positions: list[int] = []
        self.values: dict[str, bytes] = {}

    def append(self, subject: str) -> None:
        log = self.world.store.logs["log"]
        record = Record(subject, b"", f"r{log.last_position}")
        (position,) = log.append([record], self.world.now_us)
        self.world.store._publish_log("log", log)
        if subject == "log.a":
            self.positions.append(position)

    def put(self, key: str, value: bytes | None) -> None:
        table = self.world.store.tables["table"]
        if value is None:
            table.delete(key, self.world.now_us)
            self.values.pop(key, None)
        else:
            table.put(key, value, self.world.now_us)
            self.values[key] = value
        self.world.store._publish_table("table", table)


def watched_state(events: list[Watched]) -> dict[str, bytes]:
    """What a consumer that obeys its watch knows in the end."""
    known: dict[str, bytes] = {}
    for event in events:
        change = event.change
        if change.kind == "reset":
            known = {}
        elif change.kind == "put":
            known[change.key] = change.value
        elif change.kind == "delete":
            known.pop(change.key, None)
    return known


spans = st.integers(1, 2 * SECOND)
starts = st.integers(0, 4 * SECOND)
faults = st.one_of(
    st.builds(lambda a, f: LeaderLoss(at_us=a, for_us=f), starts, spans),
    st.builds(lambda a, f: Lag(at_us=a, for_us=f, node="a"), starts, spans),
    st.builds(lambda a, f: Sleep(at_us=a, for_us=f, node="a"), starts, spans),
    st.builds(lambda a, f: Pause(at_us=a, for_us=f, node="a"), starts, spans),
    st.builds(lambda a, f: Partition(at_us=a, for_us=f, side=("a",), others=(STORE,)), starts, spans),
    st.builds(lambda a: WatchReset(at_us=a, for_us=0), starts),
)
writes = st.one_of(
    st.tuples(starts, st.just("append"), st.sampled_from(("log.a", "log.b")), st.none()),
    st.tuples(starts, st.just("put"), st.sampled_from(("x1", "x2", "y")), st.none() | st.binary(max_size=2)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(faults, max_size=5), st.lists(writes, max_size=25))
def test_a_follow_has_no_gaps_or_repeats_and_a_watch_converges(
    plan: list[Fault], acts: list[tuple[int, str, str, bytes | None]]
) -> None:
    probe = Probe(tail_all)
    world = make_world(probe)
    writer = Writer(world)
    for at_us, act, name, value in acts:
        if act == "append":
            world.at(at_us, lambda name=name: writer.append(name))  # type: ignore[misc]
        else:
            world.at(at_us, lambda name=name, value=value: writer.put(name, value))  # type: ignore[misc]
    unleash(world, plan)
    world.run_until(6 * SECOND)
    world.heal()
    world.run_until(9 * SECOND)
    assert [event.entry.position for event in probe.events(Followed)] == writer.positions
    wanted = {key: value for key, value in writer.values.items() if key.startswith("x")}
    assert watched_state(probe.events(Watched)) == wanted


def test_a_watch_begins_with_a_reset_and_ends_its_snapshot_with_ready() -> None:
    probe = Probe(tail_all)
    world = make_world(probe)
    Writer(world).put("x1", b"v")
    world.run_until(1 * SECOND)
    assert [event.change.kind for event in probe.events(Watched)] == ["reset", "put", "ready"]


def test_a_new_life_follows_from_where_it_asks() -> None:
    probe = Probe(tail_all)
    world = make_world(probe)
    writer = Writer(world)
    world.run_until(1 * SECOND)
    writer.append("log.a")
    world.run_until(2 * SECOND)
    unleash(world, [Crash(at_us=2 * SECOND, for_us=SECOND, node="a")])
    world.at(2 * SECOND + SECOND // 2, lambda: writer.append("log.a"))
    world.run_until(5 * SECOND)
    assert [event.entry.position for event in probe.events(Followed)] == [1, 1, 2]


PATTERNS = ("log.a", "log.b", "log.*", "log.>", ">", "log.b.*")
SUBJECTS = ("log.a", "log.b", "log.b.c", "log.c")


@given(
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=6),
    st.lists(st.sampled_from(SUBJECTS), max_size=12),
)
def test_everybody_hears_what_matches_in_the_order_of_the_log(
    patterns: list[str], subjects: list[str]
) -> None:
    world = World(1)
    world.log(LogSpec("log", ("log.>",)))
    probes = []
    for number, pattern in enumerate(patterns):
        probes.append(Probe(partial(follow_one, pattern)))
        world.add(f"n{number}", probes[-1].make)
    world.run_until(SECOND)
    writer = Writer(world)
    for subject in subjects:
        writer.append(subject)
    world.run_until(2 * SECOND)
    for pattern, probe in zip(patterns, probes, strict=True):
        heard = [event.entry.subject for event in probe.events(Followed)]
        assert heard == [subject for subject in subjects if matches(pattern, subject)]


def test_a_second_follow_of_the_same_log_replaces_the_first() -> None:
    probe = Probe(lambda event, now_us: [*tail_all(event, now_us), *tail_all(event, now_us)])
    world = make_world(probe)
    world.run_until(1 * SECOND)
    Writer(world).append("log.a")
    world.run_until(2 * SECOND)
    assert len(probe.events(Followed)) == 1


def test_a_follow_of_what_is_trimmed_begins_at_the_oldest() -> None:
    probe = Probe(tail_all)
    world = make_world(probe)
    writer = Writer(world)
    for _ in range(3):
        writer.append("log.a")
    world.store.logs["log"].trim(0, before=3)
    world.run_until(1 * SECOND)
    assert [event.entry.position for event in probe.events(Followed)] == [3]


def test_an_ended_watch_reports_nothing_until_the_table_is_watched_again() -> None:
    def watch(event: Event, now_us: int) -> list[Effect]:
        return [WatchTable(table="table")] if isinstance(event, Started | TimerFired) else []

    probe = Probe(watch)
    world = make_world(probe)
    world.run_until(10 * MS)
    world.store.tails.end_watch("a", "table")
    world.store.tails.end_watch("b", "table")
    writer = Writer(world)
    writer.put("x", b"1")
    world.run_until(20 * MS)
    assert [event.change.kind for event in probe.events(Watched)] == ["reset", "ready"]
    world.post("a", TimerFired(name="again"))
    world.run_until(40 * MS)
    assert watched_state(probe.events(Watched)) == {"x": b"1"}
