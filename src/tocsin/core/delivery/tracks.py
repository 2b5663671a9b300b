"""Tracks: one client's deliveries by position, several of them in one window.

There are four at most: messages and results of channels, and of both the **critical** ones and the others. The priority
is committed with a message or result, and never changes. So each message or result is on one track, always, and
whatever holds of one track (nothing lost, in order, repeats with their packet ids) holds of all. That critical ones
overtake is then no more than this: they have a place of their own, a part of the window that is spared for them, and
while the client is behind with them it gets no others of the same log.

Invariants: as in ``core.delivery.window``; what is under way of all tracks is within one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.core.delivery.catch_up import CatchingUp
from tocsin.core.delivery.window import (
    CRITICAL,
    CRITICAL_MESSAGES,
    MESSAGES,
    RESULTS,
    DeliveryWindow,
    Ids,
    Progress,
)

SPARED_PART: Final = 4  # one in so many of the window's places is for what is critical alone …
SPARED_MAX: Final = 32  # … up to so many


def spared(receive_max: int) -> int:
    """How much of a window is left to what is critical."""
    return min(receive_max // SPARED_PART, SPARED_MAX)


class Track:
    """Deliveries, and the reading for them. ``tail`` is the newest position that was dispatched here."""

    __slots__ = ("catching_up", "delivery")

    def __init__(self, progress: Progress, ids: Ids, tail: int, *, receive_max: int, durable: bool) -> None:
        self.delivery = DeliveryWindow(progress, receive_max=receive_max, durable=durable, ids=ids)
        self.delivery.live = self.delivery.next > tail  # whatever is to come will be offered
        results, critical = ids in (RESULTS, CRITICAL), ids in (CRITICAL, CRITICAL_MESSAGES)
        self.catching_up = CatchingUp(self.delivery, results=results, critical=critical)
        if ids in (MESSAGES, RESULTS):
            self.delivery.spared = spared(receive_max)


def link(deliveries: Sequence[DeliveryWindow]) -> None:
    """One window for all of a client's."""
    for each in deliveries:
        each.beside = tuple(other for other in deliveries if other is not each)
