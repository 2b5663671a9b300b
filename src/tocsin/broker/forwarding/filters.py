"""The different topic filters of a broker's clients: the participant is told as they come and go, and they are bounded.

Every broker that sends to a broker has to know its filters, and so do the coordinators; so the filters of one broker's
clients are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tocsin.core.forwarding.table import ForwardingTable, Subscription

Target = TypeVar("Target")

Told = Callable[[tuple[str, ...], tuple[str, ...]], None]  # the filters added and removed


class Interests(Generic[Target]):
    """Counts the different filters of a broker's clients, and tells the participant as they come and go."""

    def __init__(self, table: ForwardingTable[Target], told: Told, most: int) -> None:
        self.count = 0
        self.most = most
        self._table = table
        self._told = told

    def subscribe(
        self, target: Target, topic_filter: str, subscription: Subscription, *, bound: bool = True
    ) -> bool:
        """False, and nothing is done, if that would be one filter too many; if it is not ``bound`` it never is."""
        if not self._table.subscribe(target, topic_filter, subscription):
            return True
        if bound and self.count >= self.most:
            self._table.unsubscribe(target, topic_filter)
            return False
        self.count += 1
        self._told((topic_filter,), ())
        return True

    def has(self, topic_filter: str) -> bool:
        """Whether a client here has this filter."""
        return self._table.has(topic_filter)

    def unsubscribe(self, target: Target, topic_filter: str) -> None:
        if self._table.unsubscribe(target, topic_filter):
            self._gone((topic_filter,))

    def forget(self, target: Target) -> None:
        """The target is gone; so is all that it subscribed to."""
        gone = self._table.drop(target)
        if gone:
            self._gone(gone)

    def _gone(self, filters: tuple[str, ...]) -> None:
        self.count -= len(filters)
        self._told((), filters)
