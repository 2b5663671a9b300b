"""Measures a broker's machine: processor, memory, bandwidth and battery, and how much of each is in use.

Units are those of ``core.assignment.ranking.scoring``: cores, GiB, Mbit/s, hours. Where control groups allow less than
the machine has, whatever leaves the least counts. How busy the processor is comes from the last minute, lest a plan of
backups follow every breath; before that from the load average. A value that cannot be measured is None, with the
reason.
"""

from __future__ import annotations

import ipaddress
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import psutil

from tocsin.runtime.host.control_groups import ControlGroups

WINDOW_S: Final = 60.0
LOOKS_MAX: Final = 601  # in a window, whatever the time between two
GIB: Final = 1 << 30
HOUR_S: Final = 3_600.0
EVERY_ADDRESS: Final = ("0.0.0.0", "::")
NO_SPEED: Final = "does not say its speed; set scoring.bandwidth_mbit"


class Measured(msgspec.Struct, frozen=True):
    """The amount of a resource, and the share of it in use. ``problem``: why there is no answer."""

    have: float | None
    used: float = 0.0
    problem: str = ""


class _Busy(msgspec.Struct, frozen=True):
    """Seconds of work since some beginning, at a moment: of all cores, and of each group that has a limit."""

    at_s: float
    busy_s: float
    total_s: float
    groups: dict[str, float]


class Machine:
    """This machine, for a broker that others reach at ``host``. ``bandwidth_mbit``: what the operator says of it."""

    def __init__(
        self,
        host: str,
        bandwidth_mbit: float = 0.0,
        *,
        groups: ControlGroups | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._bandwidth_mbit = bandwidth_mbit
        self._groups = groups or ControlGroups()
        self._clock = clock
        self._window: deque[_Busy] = deque(maxlen=LOOKS_MAX)

    def look(self) -> dict[str, Measured]:
        """Measure everything. It reads files of the kernel, so that it belongs into a thread."""
        return {
            "processor": _tried(self._processor),
            "memory": _tried(self._memory),
            "bandwidth": _tried(self._bandwidth),
            "battery": _tried(_battery),
        }

    def _processor(self) -> Measured:
        times = psutil.cpu_times()
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        idle = times.idle + getattr(times, "iowait", 0.0)
        limits = list(self._groups.processor())
        now = _Busy(self._clock(), total - idle, total, {each.group: each.used_s for each in limits})
        while self._window and now.at_s - self._window[0].at_s > WINDOW_S and len(self._window) > 1:
            self._window.popleft()
        self._window.append(now)
        then = self._window[0]
        cores = float(_cores())
        spent = now.total_s - then.total_s
        busy = (now.busy_s - then.busy_s) / spent if spent > 0 else os.getloadavg()[0] / cores
        found = [Measured(cores, _share(busy))]
        for each in limits:
            used_s = each.used_s - then.groups.get(each.group, each.used_s)
            elapsed = (now.at_s - then.at_s) * each.cores
            found.append(Measured(each.cores, _share(used_s / elapsed if elapsed > 0 else busy)))
        return _least(found)

    def _memory(self) -> Measured:
        memory = psutil.virtual_memory()
        found = [Measured(memory.total / GIB, _share(1 - memory.available / memory.total))]
        for each in self._groups.memory():
            found.append(Measured(each.limit / GIB, _share(each.used / each.limit) if each.limit else 1.0))
        return _least(found)

    def _bandwidth(self) -> Measured:
        if self._bandwidth_mbit:
            return Measured(self._bandwidth_mbit)
        if _is_loopback(self._host):  # its peers are on this machine, with no link between them
            return Measured(math.inf)
        return link_speed(self._host, psutil.net_if_addrs(), psutil.net_if_stats())


def link_speed(host: str, addresses: Mapping[str, Iterable[Any]], states: Mapping[str, Any]) -> Measured:
    """The speed of the interface that has this address; if none has, of the slowest that is up and says it."""
    own = {
        name: [each.address.partition("%")[0] for each in listed if _is_address(each.address)]
        for name, listed in addresses.items()
    }
    for name, listed in own.items():
        if host in listed and host not in EVERY_ADDRESS:
            speed = states[name].speed if name in states else 0
            return Measured(float(speed)) if speed > 0 else Measured(None, problem=f"{name} {NO_SPEED}")
    up = [
        name for name, listed in own.items() if name in states and states[name].isup and _leads_away(listed)
    ]
    speeds = [float(states[name].speed) for name in up if states[name].speed > 0]
    if speeds:
        return Measured(min(speeds))
    return Measured(None, problem=f"{', '.join(sorted(up)[:4]) or 'no interface'} {NO_SPEED}")


def _battery() -> Measured:
    state = psutil.sensors_battery()
    if state is None or state.power_plugged or state.secsleft == psutil.POWER_TIME_UNLIMITED:
        return Measured(math.inf)
    if state.secsleft == psutil.POWER_TIME_UNKNOWN or state.secsleft < 0:
        return Measured(None, problem=f"{state.percent:.0f} % left, and it does not say for how long")
    return Measured(state.secsleft / HOUR_S)


def _tried(measure: Callable[[], Measured]) -> Measured:
    try:
        return measure()
    except (psutil.Error, OSError, ValueError, ArithmeticError, AttributeError, NotImplementedError) as error:
        return Measured(None, problem=f"cannot be measured: {error or type(error).__name__}")


def _least(found: Iterable[Measured]) -> Measured:
    """The resource of which the least is left."""
    return min(found, key=lambda each: (each.have or 0.0) * (1 - each.used))


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _cores() -> int:
    """Those on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return psutil.cpu_count() or 1


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _leads_away(addresses: Iterable[str]) -> bool:
    return any(not ipaddress.ip_address(each).is_loopback for each in addresses)
