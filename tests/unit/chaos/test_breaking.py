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


async def test_what_a_killed_run_left_stopped_is_let_go(fake: Fake) -> None:
    pid = fake.pids["broker/b2"]
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: stopped(pid))
    assert await heal_all(Running.find(fake.state)) == ["broker/b2"]
    await until(lambda: not stopped(pid))
    assert await heal_all(Running.find(fake.state)) == []


async def test_a_partition_needs_consent_and_a_known_target(breaker: Breaker) -> None:
    with pytest.raises(OperatorError, match=r"chaos\.enabled=always"):
        breaker.check(Fault("partition", "broker/b1", 5.0))
    with pytest.raises(OperatorError, match="there is no 'b3'"):
        breaker.check(Fault("kill", "b3"))
    breaker.check(Fault("kill", "b1"))
