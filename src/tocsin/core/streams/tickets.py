"""Tickets: the numbers of what a broker tells the coordinator of its clients, and a bound on what waits for it.

Tickets grow over all clients of a broker. A change is **settled** when it is in the coordinator's log. While no
coordinator answers nothing is, so that the changes that wait are bounded, by number and by bytes.

Invariants: tickets are given once, each larger than the one before; ``_bytes`` is the sum over ``_unsettled``.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tocsin.model.stream import Diff, size_of

UNSETTLED_MAX: Final = 100_000  # changes that wait for a coordinator before no stream is made any more
UNSETTLED_MAX_BYTES: Final = 64 << 20  # of those
CHANGE_BYTES: Final = 600  # of one, beside its texts, here and on its way


class Tickets:
    """Gives tickets, and says whether one change more may wait."""

    __slots__ = ("_bytes", "_unsettled", "last", "settled")

    def __init__(self) -> None:
        self.last = 0
        self.settled = 0
        self._unsettled: deque[tuple[int, int]] = (
            deque()
        )  # tickets of declarations that are not, with their bytes
        self._bytes = 0

    def next(self) -> int:
        self.last += 1
        return self.last

    @property
    def room(self) -> bool:
        """Whether one change more may wait for a coordinator."""
        return self.last - self.settled < UNSETTLED_MAX and self._bytes < UNSETTLED_MAX_BYTES

    def declared(self, ticket: int, topic: str, diff: Diff | None) -> None:
        """A stream's metadata are changed under this ticket."""
        size = CHANGE_BYTES + len(topic) + size_of(diff or {})
        self._unsettled.append((ticket, size))
        self._bytes += size

    def settle(self, ticket: int) -> None:
        """Everything up to this ticket is in the coordinator's log."""
        self.settled = max(self.settled, ticket)
        while self._unsettled and self._unsettled[0][0] <= ticket:
            self._bytes -= self._unsettled.popleft()[1]
