"""Which of many things ends next.

Cost: logarithmic in what is kept. A deadline that no longer holds stays in the heap until it is at the top, or
until such ones are most of it.
"""

from __future__ import annotations

import heapq
from typing import Final

SLACK: Final = 1_024  # stale entries that are not worth a sweep


class Deadlines:
    """Keys with the time at which each ends. Equal times come in the order of the keys."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def set(self, key: str, at_us: int) -> None:
        self._at[key] = at_us
        heapq.heappush(self._heap, (at_us, key))
        if len(self._heap) > 2 * len(self._at) + SLACK:
            self._heap = [(at, each) for each, at in self._at.items()]
            heapq.heapify(self._heap)

    def drop(self, key: str) -> None:
        self._at.pop(key, None)

    def first(self) -> tuple[int, str] | None:
        """When the next one ends, and which; None if there is none."""
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None
