"""Faults on real processes that do nothing: what is stopped goes on, whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.unit.chaos.fake import DEADLINE_S, Fake, network
from tocsin.chaos.breaking import Breaker, heal_all
from tocsin.chaos.parts import Running
from tocsin.chaos.plan import Fault
from tocsin.errors import OperatorError


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    with network(tmp_path) as found:
        yield found


@pytest.fixture
def breaker(fake: Fake) -> Breaker:
    async def leader() -> str | None:
        return "coordinator-1"

    return Breaker(Running.find(fake.state), leader)


def stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_cluster_is_killed_at_once_and_nobody_else(fake: Fake, breaker: Breaker) -> None:
    names = await breaker.met("cluster/north")
    done = await breaker.carry_out(Fault("kill", "cluster/north"), names)
    brokers = {name: pid for name, pid in fake.pids.items() if name.startswith("broker/")}
    assert done.pids == brokers
    for pid in brokers.values():
        await until(lambda pid=pid: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)  # type: ignore[misc]
    for pid in (fake.pids["coordinator-1"], fake.decoy):
        assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    assert (await breaker.carry_out(Fault("kill", "broker/b1"), ["broker/b1"])).pids == {}, "it is gone"


@pytest.mark.parametrize("kind", ["pause", "slow"])
async def test_it_stops_for_its_time_and_goes_on(fake: Fake, breaker: Breaker, kind: str) -> None:
    fault = Fault("pause" if kind == "pause" else "slow", "role/leader", 0.3)
    names = await breaker.met(fault.target)
    assert names == ("coordinator-1",)
    pid = fake.pids["coordinator-1"]
    assert (await breaker.carry_out(fault, names)).pids == {"coordinator-1": pid}
    await until(lambda: stopped(pid))
    await asyncio.sleep(fault.seconds)
    await until(lambda: not breaker.under_way)
    await until(lambda: not stopped(pid))


async def test_healing_lets_everything_go_on_at_once(fake: Fake, breaker: Breaker) -> None:
    for kind, name in (("pause", "broker/b1"), ("slow", "broker/b2")):
        fault = Fault("pause" if kind == "pause" else "slow", name, 300.0)
        await breaker.carry_out(fault, [name])
    await until(lambda: stopped(fake.pids["broker/b1"]))
    await breaker.heal()
    for name in ("broker/b1", "broker/b2"):
        await until(lambda name=name: not stopped(fake.pids[name]))  # type: ignore[misc]
    await breaker.heal()


async def test_a_process_that_two_faults_stop_goes_on_when_both_are_over(
    fake: Fake, breaker: Breaker
) -> None:
    pid = fake.pids["broker/b1"]
    await breaker.carry_out(Fault("pause", "broker/b1", 300.0), ["broker/b1"])
    await breaker.carry_out(Fault("slow", "cluster/north", 0.3), ["broker/b1", "broker/b2"])
    await until(lambda: stopped(pid))
    looks: list[bool] = []
    while breaker.under_way == 2:
        looks.append(stopped(pid))
        await asyncio.sleep(0.005)
    assert all(looks) and stopped(pid), "the one that is slow let it run, and the pause did not end"
    await breaker.heal()
    await until(lambda: not stopped(pid))


def a_program(directory: Path, *, begins: int = 0, ends: int = 0) -> tuple[str, Path]:
    """A program that writes down how it was called, and ends with these codes."""
    said, program = directory / "said", directory / "own.sh"
    program.write_text(
        f'#!/bin/sh\necho "$1" >> {said}\n[ "$1" = begin ] && exit {begins}\nsleep 0.1\nexit {ends}\n'
    )
    program.chmod(0o700)
    return str(program), said


async def test_a_fault_of_ones_own_begins_and_ends_after_its_time(
    fake: Fake, breaker: Breaker, tmp_path: Path
) -> None:
    program, said = a_program(tmp_path)
    fault = Fault("own", program, 0.3)
    breaker.check(fault)
    done = await breaker.carry_out(fault, ())
    assert list(done.pids) == [program] and said.read_text() == "begin\n" and breaker.under_way
    await until(lambda: not breaker.under_way)
    assert said.read_text() == "begin\nend\n" and not breaker.problems


async def test_healing_has_a_program_end_what_it_began(fake: Fake, breaker: Breaker, tmp_path: Path) -> None:
    program, said = a_program(tmp_path, ends=3)
    await breaker.carry_out(Fault("own", program, 300.0), ())
    await breaker.heal()
    assert said.read_text() == "begin\nend\n", "once, and to its end"
    assert breaker.problems == [f"{program} end: it ended with 3"]
    await breaker.heal()
    assert said.read_text() == "begin\nend\n"


async def test_a_program_that_cannot_begin_is_said_and_not_ended(
    fake: Fake, breaker: Breaker, tmp_path: Path
) -> None:
    program, said = a_program(tmp_path, begins=4)
    done = await breaker.carry_out(Fault("own", program, 0.01), ())
    assert not done.pids and done.problem == f"{program} begin: it ended with 4" and not breaker.under_way
    await breaker.heal()
    assert said.read_text() == "begin\n"
    with pytest.raises(OperatorError, match="that is no program"):
        breaker.check(Fault("own", str(said), 1.0))


async def test_parts_that_are_joined_are_met_together(fake: Fake, breaker: Breaker) -> None:
    assert await breaker.met("role/leader+b1") == ("coordinator-1", "broker/b1")
    done = await breaker.carry_out(Fault("kill", "b1+coordinator-1"), ("broker/b1", "coordinator-1"))
    assert done.pids == {name: fake.pids[name] for name in ("broker/b1", "coordinator-1")}


async def test_what_a_killed_run_left_stopped_is_let_go(fake: Fake) -> None:
    pid = fake.pids["broker/b2"]
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: stopped(pid))
    assert await heal_all(Running.find(fake.state)) == ["broker/b2"]
    await until(lambda: not stopped(pid))
    assert await heal_all(Running.find(fake.state)) == []


async def test_a_partition_needs_consent_and_a_known_target(breaker: Breaker) -> None:
    with pytest.raises(OperatorError, match=r'chaos\.enabled = "never"'):
        breaker.check(Fault("partition", "broker/b1", 5.0))
    with pytest.raises(OperatorError, match="there is no 'b3'"):
        breaker.check(Fault("kill", "b3"))
    breaker.check(Fault("kill", "b1"))
