"""Hands events to a machine one at a time and has its effects carried out in order, on the real clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from tocsin.core.machine import Effect, Event, Machine


class Pump:
    """An event that is posted while another is handled waits for its turn, so that machines are never re-entered."""

    __slots__ = ("_carry_out", "_clock", "_events", "_handling", "_machine")

    def __init__(
        self,
        machine: Machine,
        carry_out: Callable[[Effect], None],
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._machine = machine
        self._carry_out = carry_out
        self._clock = clock or now_us
        self._events: list[Event] = []  # a deque would take 600 B in every connection
        self._handling = False

    def post(self, event: Event) -> None:
        """Hand an event to the machine, and do what it says before this returns (unless it is busy further up)."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                for effect in self._machine.handle(self._events.pop(0), self._clock()):
                    self._carry_out(effect)
        finally:
            self._handling = False


def now_us() -> int:
    """The clock of nearly every machine in this process: monotonic, in microseconds."""
    return time.monotonic_ns() // 1_000


def wall_us() -> int:
    """The clock of a machine that stores times which others read."""
    return time.time_ns() // 1_000
