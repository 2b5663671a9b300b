"""Faults begin, have words, and end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tocsin.ports import TableSpec
from tocsin.sim.faults.kinds import (
    BadWeather,
    Crash,
    CrashTogether,
    Fault,
    Lag,
    LeaderLoss,
    Partition,
    Pause,
    Skew,
    Sleep,
    StoreTrouble,
    WatchReset,
    unleash,
)
from tocsin.sim.network import STORE, Weather
from tocsin.sim.node import Status
from tocsin.sim.probe import Probe
from tocsin.sim.runs.transcript import Transcript
from tocsin.sim.store import StoreWeather
from tocsin.sim.world import World


def status(world: World) -> Status:
    return world.node("a").status


CASES: list[tuple[Fault, Callable[[World], bool], str]] = [
    (Crash(at_us=10, for_us=10, node="a"), lambda w: status(w) is Status.DOWN, "a crashes"),
    (
        CrashTogether(at_us=10, for_us=10, nodes=("a", "b")),
        lambda w: w.node("b").status is status(w) is Status.DOWN,
        "a, b crash together",
    ),
    (Sleep(at_us=10, for_us=10, node="a"), lambda w: status(w) is Status.ASLEEP, "a sleeps"),
    (Pause(at_us=10, for_us=10, node="a"), lambda w: status(w) is Status.PAUSED, "a is frozen"),
    (
        Partition(at_us=10, for_us=10, side=("a",)),
        lambda w: w.network.blocked("a", "b"),
        "a cut off from everybody else",
    ),
    (
        Partition(at_us=10, for_us=10, side=("a",), others=(STORE,), direction="in"),
        lambda w: w.network.blocked(STORE, "a") and not w.network.blocked("a", STORE),
        "a deaf to store",
    ),
    (
        BadWeather(at_us=10, for_us=10, weather=Weather(side=frozenset({"b", "a"}), loss_ppm=50_000)),
        lambda w: len(w.network.weather) == 1,
        "on the links of a, b 5 % are lost, 0 % repeated, 0 % held back up to 0.050 s, all delayed up to 0.000 s",
    ),
    (
        Lag(at_us=10, for_us=10, node="a"),
        lambda w: w.store.tails.is_held("a") and not w.store.tails.is_held("b"),
        "a hears nothing of what it follows",
    ),
    (LeaderLoss(at_us=10, for_us=10), lambda w: w.store.leaderless == 1, "the store has no leader"),
    (
        StoreTrouble(at_us=10, for_us=10, weather=StoreWeather(refuse_ppm=20_000, slow_us=1_500_000)),
        lambda w: len(w.store.weather) == 1,
        "of requests the store refuses 2 %, loses 0 %, does not answer 0 %, applies each up to 1.500 s late",
    ),
]


def make_world(transcript: Transcript | None = None) -> World:
    world = World(1, transcript)
    world.table(TableSpec("table"))
    world.add("a", Probe().make)
    world.add("b", Probe().make)
    return world


@pytest.mark.parametrize(("fault", "holds", "words"), CASES)
def test_a_fault_holds_from_its_begin_to_its_end(
    fault: Fault, holds: Callable[[World], bool], words: str
) -> None:
    world = make_world()
    unleash(world, [fault])
    seen = []
    for at_us in (9, 10, 19, 20):
        world.run_until(at_us)
        seen.append(holds(world))
    assert seen == [False, True, True, False]
    assert fault.words() == words
    assert str(fault) == f"0.000 s for 0.000 s: {words}"


@pytest.mark.parametrize(("fault", "holds", "words"), CASES)
def test_healing_ends_every_fault_and_lets_none_begin(
    fault: Fault, holds: Callable[[World], bool], words: str
) -> None:
    world = make_world()
    unleash(world, [fault])
    world.run_until(15)
    world.heal()
    assert not holds(world)
    world.run_until(30)
    assert status(world) is Status.RUNNING
    early = make_world()
    unleash(early, [fault])
    early.run_until(5)
    early.heal()
    early.run_until(15)
    assert not holds(early)


def test_a_clock_jumps_at_the_fault_and_drifts_until_its_end() -> None:
    world = make_world()
    fault = Skew(at_us=0, for_us=1_000_000, node="a", ahead_us=500, drift_ppm=1_000)
    unleash(world, [fault])
    world.run_until(2_000_000)
    clock = world.node("a").clock
    assert clock is not None
    assert clock.read(2_000_000) == 2_000_000 + 500 + 1_000
    assert fault.words() == "the clock of a jumps ahead by 0.000 s and drifts by 1000 ppm"


def test_the_story_names_the_faults() -> None:
    transcript = Transcript()
    world = make_world(transcript)
    unleash(world, [WatchReset(at_us=5, for_us=0), Crash(at_us=7, for_us=2, node="a", after_effects=1)])
    world.run_until(10)
    told = [line.text for line in transcript if line.who == "nemesis"]
    assert told == [
        "begins: every watch is interrupted and reset (for 0.000 s)",
        "ends: every watch is interrupted and reset",
        "begins: a crashes after 1 effects of its next event (for 0.000 s)",
        "ends: a crashes after 1 effects of its next event",
    ]


def test_faults_of_one_kind_overlap() -> None:
    world = make_world()
    unleash(world, [LeaderLoss(at_us=1, for_us=9), LeaderLoss(at_us=5, for_us=9)])
    world.run_until(12)
    assert world.store.leaderless == 1
    world.run_until(14)
    assert world.store.leaderless == 0
