"""The event heap: what happens next, in virtual time.

An entry is ``(at_us, sequence, act, subject, detail)``; to run it is ``act(subject, detail)``. The sequence number
breaks ties in the order of scheduling and is never equal, so nothing behind it is ever compared. Time never goes
back.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Act = Callable[[Any, Any], None]
Entry = tuple[int, int, Act, Any, Any]

# Entries waiting at once: beyond it a run leaks timers, and should end before the memory does.
PENDING_MAX = 20_000_000


# Events between two looks at whether the run is sound: a power of two, so that it costs nothing.
LOOK_EVERY = 1 << 16
STALLED_LOOKS = 64  # looks in a row at which time has not moved: four million events in one microsecond


class ScheduleOverflow(RuntimeError):
    """The run would not end: more entries wait than any sound run needs, or time stands still."""


class Schedule:
    """The heap and the clock that it moves."""

    __slots__ = ("_heap", "_looked_at_us", "_sequence", "_stalled", "events", "now_us")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._sequence = 0
        self._looked_at_us = -1  # the time at the last look
        self._stalled = 0  # looks in a row that found the same time
        self.now_us = 0
        self.events = 0  # entries that were run

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, at_us: int, act: Act, subject: Any, detail: Any) -> int:
        """Have ``act(subject, detail)`` run at ``at_us``, or now if that is past; the entry's sequence number."""
        self._sequence = sequence = self._sequence + 1
        if at_us < self.now_us:
            at_us = self.now_us
        heappush(self._heap, (at_us, sequence, act, subject, detail))
        return sequence

    def run_until(self, end_us: int, after_each: Callable[[], None] | None = None) -> None:
        """Run every entry up to and including ``end_us``, in order, and set the clock there."""
        heap = self._heap
        events = self.events
        try:
            while heap and heap[0][0] <= end_us:
                self.now_us, _, act, subject, detail = heappop(heap)
                events += 1
                act(subject, detail)
                if after_each is not None:
                    after_each()
                if events % LOOK_EVERY == 0:
                    self._look()
        finally:
            self.events = events
        self.now_us = max(self.now_us, end_us)

    def _look(self) -> None:
        if len(self._heap) > PENDING_MAX:
            raise ScheduleOverflow(
                f"{len(self._heap)} events wait at {self.now_us} µs: something schedules faster than time passes"
            )
        self._stalled = self._stalled + 1 if self.now_us == self._looked_at_us else 0
        self._looked_at_us = self.now_us
        if self._stalled >= STALLED_LOOKS:
            raise ScheduleOverflow(
                f"time stands still at {self.now_us} µs: something goes round without a delay"
            )

    def fingerprint(self) -> str:
        return f"events={self.events} scheduled={self._sequence} now={self.now_us}"
