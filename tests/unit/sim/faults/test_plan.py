"""Plans of faults are drawn from the seed, within their profile."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tocsin.sim.chance import Chance
from tocsin.sim.faults.compound import CrashAtMoment, CrashInTurn, Flapping, StaleFirst, Storm
from tocsin.sim.faults.kinds import (
    Crash,
    CrashTogether,
    Fault,
    Lag,
    Partition,
    Pause,
    Skew,
    Sleep,
    WatchReset,
)
from tocsin.sim.faults.plan import CALM, EVERY_KIND, TURNS_US, Kind, Profile, draw_plan
from tocsin.sim.network import STORE

NODES = ("a", "b", "c")
UNTIL_US = 10_000_000


def plan(seed: int, profile: Profile | None = None) -> list[Fault]:
    return draw_plan(profile or Profile(), NODES, UNTIL_US, Chance(seed, "nemesis"))


@given(st.integers())
def test_a_plan_keeps_to_its_profile(seed: int) -> None:
    profile = Profile(targets=("b",), most=5, shortest_us=1_000, longest_us=7_000)
    drawn = plan(seed, profile)
    assert 1 <= len(drawn) <= 5
    assert drawn == sorted(drawn, key=lambda fault: fault.at_us)
    for fault in drawn:
        assert 0 <= fault.at_us < UNTIL_US
        assert 1_000 <= fault.for_us <= 7_000 or isinstance(fault, WatchReset)
        if isinstance(fault, Crash | Sleep | Pause | Skew):
            assert fault.node == "b"
        assert fault.words()


@given(st.integers())
def test_the_same_seed_draws_the_same_plan(seed: int) -> None:
    assert plan(seed) == plan(seed)


def test_every_kind_of_fault_is_drawn() -> None:
    kinds = {type(fault) for seed in range(100) for fault in plan(seed)}
    assert len(kinds) == len(EVERY_KIND) - 1  # a partition from the store is a partition
    ways = {fault.direction for seed in range(100) for fault in plan(seed) if hasattr(fault, "direction")}
    assert ways == {"both", "out", "in"}


def test_a_lag_is_drawn_for_a_target_where_a_profile_has_it() -> None:
    drawn = plan(1, Profile(kinds=(("lag", 1),), targets=("b",)))
    assert {(type(fault), fault.node) for fault in drawn if isinstance(fault, Lag)} == {(Lag, "b")}
    assert all(isinstance(fault, Lag) for fault in drawn)


def test_groups_crash_or_are_cut_off_as_a_whole() -> None:
    groups = (("a", "b"), ("c",))
    profile = Profile(kinds=(("crash together", 1), ("cut off together", 1)), groups=groups)
    drawn = [fault for seed in range(20) for fault in plan(seed, profile)]
    assert {fault.nodes for fault in drawn if isinstance(fault, CrashTogether)} == set(groups)
    cuts = [fault for fault in drawn if isinstance(fault, Partition)]
    assert {fault.side for fault in cuts} == set(groups) and {fault.others for fault in cuts} == {None}
    assert all(isinstance(fault, CrashTogether | Partition) and fault.words() for fault in drawn)


def test_short_and_long_faults_are_equally_common() -> None:
    spans = [fault.for_us for seed in range(300) for fault in plan(seed) if fault.for_us]
    short = sum(span < 900_000 for span in spans)
    assert len(spans) // 3 < short < 2 * len(spans) // 3


def test_a_calm_profile_has_no_faults() -> None:
    assert plan(1, CALM) == []
    assert plan(1, Profile(kinds=())) == []


def test_a_fault_is_data() -> None:
    for fault in plan(4):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(fault), type=type(fault)) == fault


def test_faults_with_a_course_are_drawn_for_those_whom_the_profile_names() -> None:
    kinds: tuple[Kind, ...] = (
        "flapping",
        "halves",
        "crash in turn",
        "stale first",
        "moment",
        "storm",
        "store partition",
    )
    profile = Profile(
        kinds=tuple((kind, 1) for kind in kinds),
        targets=("a", "a", "c"),
        groups=(("a", "b"),),
        brokers=("b",),
        moments=("leads", "writes"),
    )
    drawn = [fault for seed in range(60) for fault in plan(seed, profile)]
    assert all(0 <= fault.at_us < UNTIL_US and fault.words() for fault in drawn)
    flaps = [fault for fault in drawn if isinstance(fault, Flapping)]
    assert {fault.side for fault in flaps} == {("b",)}
    assert {fault.others for fault in flaps} == {None, (STORE,)}
    cuts = [fault for fault in drawn if type(fault) is Partition]
    assert {fault.side for fault in cuts if fault.others} == {("b",)}
    assert {fault.side for fault in cuts if not fault.others} == {(node,) for node in NODES}
    turns = [fault for fault in drawn if isinstance(fault, CrashInTurn)]
    assert all({node for node, _ in fault.crashes} == {"a", "c"} for fault in turns)
    assert all(after_us < TURNS_US <= fault.for_us for fault in turns for _, after_us in fault.crashes)
    stale = [fault for fault in drawn if isinstance(fault, StaleFirst)]
    assert {(fault.stale, *fault.others) for fault in stale} == {("a", "b"), ("b", "a")}
    moments = [fault for fault in drawn if isinstance(fault, CrashAtMoment)]
    assert {fault.moment for fault in moments} == {"leads", "writes"}
    assert all(fault.at_us + fault.for_us == UNTIL_US for fault in moments)
    assert {fault.node for fault in drawn if isinstance(fault, Storm)} == {"b"}
