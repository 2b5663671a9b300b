"""A node: one machine at one address, its timers, and its own idea of the time.

    starts ──► running ──► paused    deaf and frozen; what arrives waits, and comes all at once on resume (SIGSTOP)
                  ├─────► asleep    memory kept, but what arrives then is lost; overdue timers fire on waking
                  ├─────► down      memory lost; a restart makes a new machine, and one more start
                  └─────► stopped   the machine asked for it (``Stop``)

The machine object is the volatile state; ``disk`` is what survives a crash, for machines whose factory takes it.
Everything of one start (answers of the store, follows, watches, timers) carries its number and is void in the next.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from tocsin.core.machine import Effect, Event, Machine
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.network import Path
from tocsin.sim.schedule import Act

Disk = dict[str, Any]
Make = Callable[[Disk], Machine]
Handle = Callable[[Event, int], list[Effect]]
Timer = tuple[str, str]  # its name and its cause

BACKLOG_MAX = 65_536  # what may wait for a paused node; more is lost, as a full socket buffer loses it
DRIFT_MAX_PPM = 200_000  # a fifth: far beyond any quartz, but virtual machines have been seen to do it


@runtime_checkable
class Closable(Protocol):
    """A machine that holds something beside its state: a whole process holds tasks."""

    def close(self) -> None: ...


class Status(Enum):
    """The state of a node."""

    RUNNING = "running"
    PAUSED = "paused"
    ASLEEP = "asleep"
    DOWN = "down"
    STOPPED = "stopped"


class LocalClock:
    """A clock that is ahead, and runs fast or slow; as the monotonic one that machines are given, it never goes back.

    Timers follow the drift but not what it is ahead.
    """

    __slots__ = ("_drift_ppm", "_local_us", "_since_us")

    def __init__(self, now_us: int, ahead_us: int = 0, drift_ppm: int = 0) -> None:
        if abs(drift_ppm) > DRIFT_MAX_PPM:
            raise ValueError(f"a drift of {drift_ppm} ppm is over {DRIFT_MAX_PPM}")
        if ahead_us < 0:
            raise ValueError(f"a clock that is {ahead_us} µs ahead would have gone back")
        self._since_us = now_us
        self._local_us = now_us + ahead_us
        self._drift_ppm = drift_ppm

    def read(self, now_us: int) -> int:
        return self._local_us + (now_us - self._since_us) * (MILLION + self._drift_ppm) // MILLION

    def real_span(self, local_us: int) -> int:
        """How long it really takes until this clock has moved by ``local_us``, rounded up."""
        rate = MILLION + self._drift_ppm
        return (local_us * MILLION + rate - 1) // rate

    def change(self, now_us: int, ahead_us: int = 0, drift_ppm: int = 0) -> None:
        """From now on jump ahead by so much, and drift by so much."""
        changed = LocalClock(self.read(now_us), ahead_us, drift_ppm)
        self._since_us, self._local_us, self._drift_ppm = now_us, changed._local_us, drift_ppm


class Node:
    """The state of one node. ``World`` is what acts on it."""

    __slots__ = (
        "address",
        "backlog",
        "clock",
        "disk",
        "handle",
        "listens",
        "machine",
        "make",
        "paths",
        "restart_after_us",
        "starts",
        "status",
        "timers",
    )

    def __init__(
        self, address: Address, make: Make, paths: dict[Address, Path], restart_after_us: int | None
    ) -> None:
        self.address = address
        self.make = make
        self.paths = paths  # the network's paths from here: a look-up less per message
        # How soon a supervisor starts it again after Stop; None: never.
        self.restart_after_us = restart_after_us
        self.status = Status.DOWN
        self.machine: Machine | None = None  # present unless down or stopped
        self.handle: Handle = _nobody  # the machine's entry, or what a fault put before it
        self.disk: Disk = {}
        self.starts = 0  # grows with every start
        self.timers: dict[
            str, Timer
        ] = {}  # by name; the object's identity says which setting is the valid one
        self.clock: LocalClock | None = None  # None: exactly right
        self.backlog: list[tuple[Act, Any]] = []  # what waits while paused, in order
        self.listens: set[Address] = set()  # addresses that it shares with others

    def forget(self) -> None:
        """Lose what is volatile."""
        machine: object = self.machine
        if isinstance(machine, Closable):
            machine.close()
        self.machine = None
        self.handle = _nobody
        self.timers.clear()
        self.backlog.clear()
        self.listens.clear()


def _nobody(event: Event, now_us: int) -> list[Effect]:
    raise AssertionError(f"{type(event).__name__} was handed to a node that does not run")
