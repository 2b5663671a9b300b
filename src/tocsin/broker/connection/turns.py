"""Fairness between connections: nobody's flood keeps the others waiting for more than a few milliseconds.

One read brings up to 256 KiB: a hundred thousand pings, which would take a second. So a connection handles a **slice**
of it at once, SLICE packets, and the rest waits here, unread on, for its turn. In each tick of the loop those who wait
have TICK_S together, a slice at a time, in a circle; the rest of the tick is for everybody else. A client with a usual
load never waits here.

The clock is the process's: in the simulator no time passes in a tick, however slow the machine is, and a seed is the
same run everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from tocsin.runtime.machines.clock import monotonic_s

SLICE: Final = 64  # packets at once: about half a millisecond of the dearest ones
TICK_S: Final = 0.001  # for all who wait, in one tick
MUCH_BYTES: Final = 4 << 10  # a read of more than this waits for its turn if others wait


class Worker(Protocol):
    """A connection, as it is seen from here."""

    def __hash__(self) -> int: ...

    def work(self) -> bool:
        """Handle one slice; whether more is left that can be handled now."""
        ...


class Turns:
    """The waiting clients, in a circle."""

    def __init__(
        self, next_tick: Callable[[Callable[[], None]], object], clock: Callable[[], float] = monotonic_s
    ) -> None:
        self._next_tick = next_tick
        self._clock = clock
        self._waiting: dict[Worker, None] = {}
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, worker: Worker) -> None:
        """It has work that waits; harmless when repeated."""
        self._waiting[worker] = None
        if not self._scheduled:
            self._scheduled = True
            self._next_tick(self._tick)

    def remove(self, worker: Worker) -> None:
        self._waiting.pop(worker, None)

    def _tick(self) -> None:
        waiting, clock = self._waiting, self._clock
        until = clock() + TICK_S
        while waiting:
            worker = next(iter(waiting))
            del waiting[worker]
            if worker.work():
                waiting[worker] = None
            if clock() >= until:
                break
        self._scheduled = bool(waiting)
        if waiting:
            self._next_tick(self._tick)
