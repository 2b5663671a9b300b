"""A heap of deadlines: one time for each key, which may be put off, brought forward or dropped.

Cost: logarithmic in what is kept. A deadline that was put off keeps its place in the heap until its turn comes. One
that was brought forward or dropped leaves an entry behind, until that is at the top, or until such ones are most of
the heap.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

SLACK: Final = 1_024  # stale entries that are not worth a sweep


class Deadlines:
    """Keys with the time at which each is due. Equal times come in the order of the keys."""

    def __init__(self) -> None:
        self._at_us: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._heaped: dict[
            str, int
        ] = {}  # of the entries of the heap, which counts; never later than ``_at_us``

    def __contains__(self, key: str) -> bool:
        return key in self._at_us

    def set(self, key: str, at_us: int) -> bool:
        """It is due then, and not before; whether the heap has to be asked earlier than it had to be."""
        self._at_us[key] = at_us
        if self._heaped.get(key, at_us + 1) <= at_us:
            return False  # when its turn comes it is put off
        self._heaped[key] = at_us
        heappush(self._heap, (at_us, key))
        if len(self._heap) > 2 * len(self._at_us) + SLACK:
            self._sweep()
        return self._heap[0][1] == key

    def drop(self, key: str) -> None:
        """It is due no more."""
        self._at_us.pop(key, None)

    def _sweep(self) -> None:
        self._heaped = dict(self._at_us)
        self._heap = [(at_us, key) for key, at_us in self._at_us.items()]
        heapify(self._heap)

    @property
    def next_us(self) -> int | None:
        """When to ask what is due; perhaps nothing is, then."""
        return self._heap[0][0] if self._heap else None

    def first(self) -> tuple[int, str] | None:
        """When the next one is due, and which; None if there is none."""
        heap, heaped = self._heap, self._heaped
        while heap:
            at_us, key = heap[0]
            due_us = self._at_us.get(key)
            if heaped.get(key) != at_us:
                heappop(heap)
            elif due_us is None:
                heappop(heap)
                del heaped[key]
            elif due_us != at_us:
                heapreplace(heap, (due_us, key))
                heaped[key] = due_us
            else:
                return at_us, key
        return None

    def due(self, now_us: int) -> list[str]:
        """Those whose time has come, the earliest first; they have none any more."""
        found = []
        while (first := self.first()) is not None and first[0] <= now_us:
            heappop(self._heap)
            key = first[1]
            del self._heaped[key], self._at_us[key]
            found.append(key)
        return found
