"""Visitors of a coordinator's door that wait: how many have not been given to a broker, and how many bytes they sent.

    came ──► said (some bytes of the first packet) … ──► passed (a broker is being found) ──► done

An honest client says its first packet within milliseconds, and goes where it is sent. So if there are too many
visitors, or they made the door hold too much, the one that came first has to go, and nobody is kept out by others that
wait. Visitors for which the door looks for a broker wait for us: they are not counted, but their bytes are.

Invariants: no more than ``most`` visitors wait to be passed on; ``held_bytes`` is the sum of what visitors said that
are not done, and no more than ``most_bytes``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Visitor = TypeVar("Visitor", bound=Hashable)


class Waiting(Generic[Visitor]):
    """The visitors of one door that wait. Methods that make room return those that have to go, already forgotten."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.held_bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._waiting: dict[Visitor, None] = {}  # the oldest first
        self._held: dict[Visitor, int] = {}  # in the order of their first bytes

    def __len__(self) -> int:
        return len(self._waiting)

    def came(self, visitor: Visitor) -> list[Visitor]:
        """One more has come; who has to go for it."""
        gone: list[Visitor] = []
        while len(self._waiting) >= self._most:
            gone.append(self._forget_first(self._waiting))
        self._waiting[visitor] = None
        return gone

    def said(self, visitor: Visitor, size: int) -> list[Visitor]:
        """A visitor made the door hold so many bytes more; who has to go for it, perhaps itself."""
        self._held[visitor] = self._held.get(visitor, 0) + size
        self.held_bytes += size
        gone: list[Visitor] = []
        while self.held_bytes > self._most_bytes:
            gone.append(self._forget_first(self._held))
        return gone

    def passed(self, visitor: Visitor) -> None:
        """A broker is being found for a visitor."""
        self._waiting.pop(visitor, None)

    def done(self, visitor: Visitor) -> None:
        """A visitor is with its broker, or has gone. Harmless when repeated."""
        self._waiting.pop(visitor, None)
        self.held_bytes -= self._held.pop(visitor, 0)

    def _forget_first(self, some: dict[Visitor, None] | dict[Visitor, int]) -> Visitor:
        first = next(iter(some))
        self.done(first)
        return first
