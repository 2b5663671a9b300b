"""When something is to be looked at again: one time for each, which may be put off, or brought forward.

A heap of times, of which those that were put off are found out when their turn comes.
"""

from __future__ import annotations

from heapq import heappop, heappush


class Appointments:
    """See the module's text."""

    def __init__(self) -> None:
        self._at_us: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._heaped: dict[str, int] = {}  # of the entries of the heap, which counts

    def set(self, name: str, at_us: int) -> bool:
        """Look at it then, and not before; whether it is next now, and was not."""
        self._at_us[name] = at_us
        if self._heaped.get(name, at_us + 1) <= at_us:
            return False  # when its turn comes it is put off
        self._heaped[name] = at_us
        heappush(self._heap, (at_us, name))
        return self._heap[0][1] == name

    @property
    def next_us(self) -> int | None:
        """When to ask what is due."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_us: int) -> list[str]:
        """Whose time has come; they have none any more."""
        found = []
        while self._heap and self._heap[0][0] <= now_us:
            at_us, name = heappop(self._heap)
            if self._heaped.get(name) != at_us:
                continue
            del self._heaped[name]
            if (put_off_us := self._at_us[name]) > now_us:
                self._heaped[name] = put_off_us
                heappush(self._heap, (put_off_us, name))
            else:
                del self._at_us[name]
                found.append(name)
        return found
