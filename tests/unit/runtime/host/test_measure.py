"""What a machine has and uses, with the kernel's figures played."""

from __future__ import annotations

import math
import os
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tocsin.runtime.host.control_groups import ControlGroups, Memory, Processor
from tocsin.runtime.host.measure import GIB, WINDOW_S, Machine, Measured, link_speed

Times = namedtuple("Times", "user system idle iowait guest guest_nice")
Battery = namedtuple("Battery", "percent secsleft power_plugged")
Address = namedtuple("Address", "address")
State = namedtuple("State", "isup speed")
Available = namedtuple("Available", "total available")


class Groups(ControlGroups):
    """Limits that a test sets."""

    def __init__(self) -> None:
        self.memories: list[Memory] = []
        self.processors: list[Processor] = []

    def memory(self) -> Iterator[Memory]:
        return iter(self.memories)

    def processor(self) -> Iterator[Processor]:
        return iter(self.processors)


class Played:
    """A machine of four cores and 8 GiB whose clock and figures a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        self.busy_s = 500.0
        self.memory = Available(8 * GIB, 6 * GIB)
        self.battery: Battery | None = None
        self.load = 1.0
        self.groups = Groups()
        monkeypatch.setattr(psutil, "cpu_times", self._times)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: self.memory)
        monkeypatch.setattr(psutil, "sensors_battery", lambda: self.battery)
        monkeypatch.setattr(os, "getloadavg", lambda: (self.load, 0.0, 0.0))
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})

    def _times(self) -> Times:
        idle = 4 * self.now_s - self.busy_s
        return Times(self.busy_s - 1, 1.0, idle - 2, 2.0, 0.5, 0.0)

    def machine(self, host: str = "127.0.0.1", bandwidth_mbit: float = 0.0) -> Machine:
        return Machine(host, bandwidth_mbit, groups=self.groups, clock=lambda: self.now_s)

    def work(self, seconds: float, cores: float) -> None:
        self.now_s += seconds
        self.busy_s += seconds * cores


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def test_before_the_second_look_the_load_average_says_how_busy_it_is(played: Played) -> None:
    assert played.machine().look()["processor"] == Measured(4.0, 0.25)
    played.load = 9.0
    assert played.machine().look()["processor"] == Measured(4.0, 1.0)


def test_how_busy_the_processor_is_comes_from_the_last_minute(played: Played) -> None:
    machine = played.machine()
    machine.look()
    played.work(10, cores=4)
    assert machine.look()["processor"].used == pytest.approx(1.0)
    played.work(30, cores=0)
    assert machine.look()["processor"].used == pytest.approx(0.25)
    played.work(WINDOW_S - 30, cores=0)
    played.work(1, cores=0)
    assert machine.look()["processor"].used == pytest.approx(0.0, abs=1e-9), "the busy time is forgotten"


def test_a_group_that_leaves_less_than_the_machine_counts(played: Played) -> None:
    machine = played.machine()
    played.groups.processors = [Processor("box", 0.5, 10.0)]
    machine.look()
    played.work(20, cores=1)
    played.groups.processors = [Processor("box", 0.5, 18.0)]
    found = machine.look()["processor"]
    assert (found.have, round(found.used, 9)) == (0.5, 0.8)


def test_a_group_with_more_than_the_machine_has_left_does_not_count(played: Played) -> None:
    machine = played.machine()
    played.groups.processors = [Processor("box", 2.0, 0.0)]
    machine.look()
    played.work(10, cores=3.5)
    found = machine.look()["processor"]
    assert (found.have, round(found.used, 9)) == (4.0, 0.875)


def test_memory_is_what_the_machine_or_the_tightest_group_leaves(played: Played) -> None:
    machine = played.machine()
    assert machine.look()["memory"] == Measured(8.0, 0.25)
    played.groups.memories = [Memory(1 << 62, 0), Memory(2 * GIB, GIB // 2), Memory(4 * GIB, GIB)]
    assert machine.look()["memory"] == Measured(2.0, 0.25)
    played.groups.memories = [Memory(0, 0)]
    assert machine.look()["memory"] == Measured(0.0, 1.0)


@pytest.mark.parametrize(
    ("battery", "measured"),
    [
        (None, Measured(math.inf)),
        (Battery(40, psutil.POWER_TIME_UNLIMITED, True), Measured(math.inf)),
        (Battery(40, psutil.POWER_TIME_UNLIMITED, None), Measured(math.inf)),
        (Battery(40, 5_400, False), Measured(1.5)),
    ],
)
def test_mains_last_for_ever_and_a_battery_for_its_hours(
    played: Played, battery: Battery | None, measured: Measured
) -> None:
    played.battery = battery
    assert played.machine().look()["battery"] == measured


def test_a_battery_that_does_not_say_how_long_is_named(played: Played) -> None:
    played.battery = Battery(40.4, psutil.POWER_TIME_UNKNOWN, False)
    found = played.machine().look()["battery"]
    assert found.have is None and "40 % left" in found.problem


def test_what_cannot_be_measured_is_named_and_the_rest_is_there(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise OSError("no such sensor")

    monkeypatch.setattr(psutil, "sensors_battery", broken)
    seen = played.machine().look()
    assert seen["battery"] == Measured(None, problem="cannot be measured: no such sensor")
    assert seen["memory"].have == 8.0


def test_what_the_operator_says_of_the_link_counts(played: Played) -> None:
    assert played.machine("192.0.2.7", 250.0).look()["bandwidth"] == Measured(250.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_within_a_machine_there_is_no_link_to_be_slow(played: Played, host: str) -> None:
    assert played.machine(host).look()["bandwidth"] == Measured(math.inf)


ADDRESSES = {
    "lo": [Address("127.0.0.1"), Address("::1")],
    "eth0": [Address("192.0.2.2"), Address("fe80::1%eth0"), Address("02:00:00:00:00:01")],
    "eth1": [Address("198.51.100.2")],
    "eth2": [Address("203.0.113.2")],
    "raw": [Address("02:00:00:00:00:02")],
}
STATES = {
    "lo": State(True, 1),
    "eth0": State(True, 10_000),
    "eth1": State(True, 0),
    "eth2": State(False, 100),
    "raw": State(True, 10),
}


@pytest.mark.parametrize(
    ("host", "speed"),
    [("192.0.2.2", 10_000.0), ("fe80::1", 10_000.0), ("0.0.0.0", 10_000.0), ("broker.example.org", 10_000.0)],
)
def test_the_link_is_that_of_the_address_or_the_slowest_that_says(host: str, speed: float) -> None:
    assert link_speed(host, ADDRESSES, STATES) == Measured(speed)


def test_of_several_links_the_slowest_that_is_up_counts() -> None:
    states = {**STATES, "eth1": State(True, 1_000)}
    assert link_speed("::", ADDRESSES, states) == Measured(1_000.0)


def test_a_link_that_does_not_say_its_speed_is_named() -> None:
    found = link_speed("198.51.100.2", ADDRESSES, STATES)
    assert found.have is None
    assert found.problem == "eth1 does not say its speed; set scoring.bandwidth_mbit"
    assert "no interface" in link_speed("0.0.0.0", {}, {}).problem


def test_this_machine_can_be_looked_at_twice() -> None:
    machine = Machine("127.0.0.1")
    machine.look()
    seen = machine.look()
    assert {name for name, each in seen.items() if each.have is None} <= {"battery"}
    assert all(0 <= each.used <= 1 for each in seen.values())
