"""Faults with a course: each step of it comes when it should, and none after everything is healed."""

from __future__ import annotations

import pytest

from tocsin.sim.faults.compound import CrashAtMoment, CrashInTurn, Flapping, StaleFirst, Storm
from tocsin.sim.faults.kinds import Fault, unleash
from tocsin.sim.network import STORE
from tocsin.sim.node import Status
from tocsin.sim.probe import Probe
from tocsin.sim.world import World


def world_with(fault: Fault) -> World:
    world = World(seed=1)
    for address in ("a", "b", "c"):
        world.add(address, lambda _disk: Probe())
    unleash(world, [fault])
    return world


def statuses(world: World) -> str:
    """Of a, b and c: running, paused or down."""
    letters = {Status.RUNNING: "r", Status.PAUSED: "p", Status.DOWN: "d"}
    return "".join(letters[world.node(address).status] for address in ("a", "b", "c"))


def statuses_at(world: World, *times_us: int) -> list[str]:
    found = []
    for at_us in times_us:
        world.run_until(at_us)
        found.append(statuses(world))
    return found


@pytest.mark.parametrize(("for_us", "at_the_end"), [(25, True), (35, False)])
def test_a_flapping_cut_comes_and_goes_and_is_gone_in_the_end(for_us: int, at_the_end: bool) -> None:
    world = world_with(Flapping(at_us=100, for_us=for_us, side=("a",), others=(STORE,), every_us=10))
    seen = []
    for at_us in (99, 100, 105, 110, 119, 120, 124):
        world.run_until(at_us)
        seen.append(world.network.blocked("a", STORE))
    assert seen == [False, True, True, False, False, True, True]
    world.run_until(100 + for_us - 1)
    assert world.network.blocked("a", STORE) is at_the_end
    world.run_until(100 + for_us)
    assert world.network.cuts == []


def test_a_flapping_cut_leaves_another_one_alone_that_is_the_same() -> None:
    fault = Flapping(at_us=100, for_us=35, side=("a",), every_us=10)
    world = world_with(fault)
    world.network.add(fault.cut())
    world.run_until(200)
    assert world.network.cuts == [fault.cut()]


def test_those_that_crash_in_turn_start_together() -> None:
    world = world_with(CrashInTurn(at_us=10, for_us=50, crashes=(("b", 5), ("a", 20))))
    assert statuses_at(world, 10, 15, 29, 30, 59, 60) == ["rrr", "rdr", "rdr", "ddr", "ddr", "rrr"]


def test_one_whose_memory_is_old_wakes_up_when_the_others_have_crashed() -> None:
    world = world_with(StaleFirst(at_us=10, for_us=40, stale="b", others=("a", "c")))
    assert statuses_at(world, 9, 10, 29, 30, 49, 50) == ["rrr", "rpr", "rpr", "drd", "drd", "rrr"]


def test_whoever_reaches_a_moment_first_crashes_after_it() -> None:
    fault = CrashAtMoment(at_us=10, for_us=1_000, moment="writes", after_us=5, down_us=20)
    world = world_with(fault)
    for at_us, node in ((5, "a"), (40, "b"), (42, "c"), (90, "c")):
        world.at(at_us, lambda node=node: world.reach("writes", node))  # type: ignore[misc]
    assert statuses_at(world, 39, 44, 45, 64, 65, 100) == ["rrr", "rrr", "rdr", "rdr", "rrr", "rrr"]


def test_a_moment_that_comes_after_the_fault_is_over_does_nothing() -> None:
    world = world_with(CrashAtMoment(at_us=10, for_us=20, moment="writes", after_us=0, down_us=20))
    world.at(31, lambda: world.reach("writes", "a"))
    assert statuses_at(world, 40) == ["rrr"]


def test_in_a_storm_all_connections_of_a_node_break_and_it_stays() -> None:
    world = world_with(Storm(at_us=10, for_us=0, node="a"))
    seen: list[tuple[str, str, int]] = []
    world.observers.on_happening(lambda node, happening: seen.append((node, happening, world.now_us)))
    world.run_until(20)
    assert seen[-1] == ("a", "disconnected", 10) and statuses(world) == "rrr"


@pytest.mark.parametrize(
    "fault",
    [
        Flapping(at_us=10, for_us=100, side=("a",), every_us=10),
        CrashInTurn(at_us=10, for_us=100, crashes=(("a", 50),)),
        StaleFirst(at_us=10, for_us=100, stale="a", others=("b",)),
        CrashAtMoment(at_us=10, for_us=100, moment="writes", after_us=10, down_us=10),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_nothing_of_it_happens_after_everything_was_healed(fault: Fault) -> None:
    world = world_with(fault)
    world.at(29, lambda: world.reach("writes", "a"))
    world.at(30, world.heal)
    for at_us in range(30, 200, 5):
        world.run_until(at_us)
        assert statuses(world) == "rrr" and world.network.calm


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            Flapping(at_us=0, for_us=9, side=("a",), others=("b",), direction="in", every_us=200_000),
            "a deaf to b, on and off every 0.200 s",
        ),
        (
            CrashInTurn(at_us=0, for_us=9, crashes=(("a", 0), ("b", 70_000))),
            "one after the other crash a after 0.000 s, b after 0.070 s",
        ),
        (
            StaleFirst(at_us=0, for_us=9, stale="a", others=("b", "c")),
            "a is frozen, and wakes up when b, c have crashed",
        ),
        (
            CrashAtMoment(at_us=0, for_us=9, moment="leads", after_us=10_000, down_us=2_000_000),
            "the first that leads crashes 0.010 s later, for 2.000 s",
        ),
        (Storm(at_us=0, for_us=0, node="a"), "all connections to a break at once"),
    ],
)
def test_it_has_words(fault: Fault, words: str) -> None:
    assert fault.words() == words
