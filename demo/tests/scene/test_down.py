"""Brokers that are killed and kept down: real processes that do nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import psutil
import pytest

from tocsin.core.supervision.machine import Health, Row
from tocsin_demo.network import Running
from tocsin_demo.scene.down import Down

DEADLINE_S = 10.0


class Network:
    """A network as far as its rows go."""

    def __init__(self) -> None:
        self.children: list[subprocess.Popen[bytes]] = []
        self.row = Row("broker/north-1", 2, "ready", "", None, 0, 0, 0, {})

    def start(self, health: Health) -> psutil.Process:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.children.append(child)
        self.row = Row("broker/north-1", 2, health, "", child.pid, 0, 0, 0, {})
        return psutil.Process(child.pid)

    def rows(self) -> tuple[Row, ...]:
        other = Row("broker/north-2", 2, "starting", "", 1, 0, 0, 0, {})
        return (self.row, other)


def until(process: psutil.Process, *statuses: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while process.status() not in statuses:
        assert time.monotonic() < deadline, process.status()
        time.sleep(0.01)


@pytest.fixture
def network() -> Iterator[Any]:
    made = Network()
    yield made
    for child in made.children:
        child.kill()
        child.wait()


def test_a_frozen_broker_goes_on_when_it_is_released(network: Any) -> None:
    down, seen = Down(), cast(Running, network)
    broker = network.start("ready")
    assert down.freeze(seen, ["north-1"]) == {"north-1": broker.pid}
    until(broker, psutil.STATUS_STOPPED)
    down.watch(seen)
    assert down.brokers == ("north-1",)
    down.release(["north-1"])
    until(broker, psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING)
    assert not down._held


def test_a_killed_broker_is_stopped_at_its_restart_until_it_is_released(
    network: Any,
) -> None:
    down, seen = Down(), cast(Running, network)
    first = network.start("ready")
    assert down.take(seen, ["north-1"], signal.SIGKILL) == {"north-1": first.pid}
    assert down.brokers == ("north-1",)
    until(first, psutil.STATUS_ZOMBIE)
    second = network.start("starting")
    down.watch(seen)
    until(second, psutil.STATUS_STOPPED)
    down.watch(seen)  # nothing new: nothing happens
    until(second, psutil.STATUS_STOPPED)
    down.release(["north-1"])
    until(second, psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING)
    assert not down._held
    down.watch(seen)
    until(second, psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING)


def test_a_stopped_process_ends_when_the_one_that_stopped_it_is_gone(network: Any) -> None:
    down, seen = Down(), cast(Running, network)
    down.take(seen, ["north-1"], signal.SIGKILL)
    held = network.start("starting")
    down.watch(seen)
    until(held, psutil.STATUS_STOPPED)
    kept = down._held["broker/north-1"]
    assert kept is not None
    guard = kept[1]
    assert guard.stdin is not None
    guard.stdin.close()  # as the kernel does when a process ends
    guard.wait(DEADLINE_S)
    until(held, psutil.STATUS_ZOMBIE)


def test_whoever_is_no_child_of_ours_is_not_hit() -> None:
    shell = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    stranger = psutil.Process(int(shell.stdout.readline()))
    try:
        network = Network()
        network.row = Row("broker/north-1", 2, "ready", "", stranger.pid, 0, 0, 0, {})
        Down().take(cast(Running, network), ["north-1"], signal.SIGSTOP)
        time.sleep(0.05)  # longer than a signal takes
        assert stranger.status() == psutil.STATUS_SLEEPING
    finally:
        stranger.kill()
        shell.wait(DEADLINE_S)
        shell.stdout.close()
