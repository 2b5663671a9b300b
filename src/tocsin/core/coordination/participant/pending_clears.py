"""A broker's own changes that not every affected broker knows yet, and how long messages wait for them.

A change is clear when a leader says so, or after CLEAR_US; tickets become clear in their order, each is told once.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

# Enough for another to lead, so that messages published in that time are late and not lost.
CLEAR_US: Final = 5_000_000


class _Waiting(NamedTuple):
    number: int
    ticket: int
    since_us: int


class PendingClears:
    """Each method that ends waits returns the highest ticket that is clear with it; 0 if there is none."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, number: int, ticket: int, now_us: int) -> None:
        self._waiting.append(_Waiting(number, ticket, now_us))

    def up_to(self, number: int) -> int:
        """Commands up to this one are clear."""
        ticket = 0
        while self._waiting and self._waiting[0].number <= number:
            ticket = self._waiting.popleft().ticket
        return ticket

    def all(self, ticket: int = 0) -> int:
        """Nobody is waited for any more, up to this ticket at least."""
        if self._waiting:
            ticket = max(ticket, self._waiting[-1].ticket)
            self._waiting.clear()
        return ticket

    def late(self, now_us: int) -> int:
        """The changes that have waited long enough."""
        ticket = 0
        while self._waiting and now_us - self._waiting[0].since_us >= CLEAR_US:
            ticket = self._waiting.popleft().ticket
        return ticket

    def patience_us(self, now_us: int) -> int:
        """How long the first one still waits."""
        return max(0, self._waiting[0].since_us + CLEAR_US - now_us)
