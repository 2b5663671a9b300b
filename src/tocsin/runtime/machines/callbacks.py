"""Callbacks by number: a machine, which knows no functions, names them by an id."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class PendingCallbacks:
    """Each is redeemed once."""

    __slots__ = ("_given", "_waiting")

    def __init__(self) -> None:
        self._given = 0
        self._waiting: dict[int, Callable[[], None]] = {}

    def give(self, act: Callable[[], None]) -> int:
        self._given += 1
        self._waiting[self._given] = act
        return self._given

    def redeem(self, tickets: Iterable[int]) -> None:
        """Do what they stand for, in their order."""
        for ticket in tickets:
            self._waiting.pop(ticket)()
