"""How a client that is behind catches up with the log: batch by batch, until entries can be offered as they come.

One batch is read at a time, for the filters that the client has when it is asked for. A subscription that is made
meanwhile was not looked for: entries beyond its ``since`` are read again, for it may be durable, and a message for it
in the log, before the read is answered.

A batch ends where the window is full, or the connection congested; the rest is read again when there is room.
"""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.core.attendance_signals import BatchRead, Deliver, ReadBatch
from tocsin.core.delivery import SETTLED, WAIT, Delivery
from tocsin.core.forwarding import Subscription
from tocsin.wire.topics import SHARE_PREFIX


class CatchingUp:
    """The reading of the log for one client's deliveries."""

    __slots__ = ("_below", "_delivery", "reading")

    def __init__(self, delivery: Delivery) -> None:
        self.reading = False
        self._delivery = delivery
        self._below: int | None = None  # the batch under way knows all subscriptions only below this position

    def ask(self, subscriptions: Mapping[str, Subscription], cause: str) -> list[ReadBatch]:
        """The batch to read now, if one has to be."""
        delivery = self._delivery
        if self.reading or not delivery.behind:
            return []
        filters = tuple(
            name
            for name, subscription in subscriptions.items()
            if subscription.qos and not name.startswith(SHARE_PREFIX)  # a group's come as claims
        )
        if not filters:
            delivery.live = True  # a subscription to come is for what comes after it, and that is offered
            return []
        self.reading = True
        self._below = None
        return [ReadBatch(filters=filters, start=delivery.next, cause=cause)]

    def subscribed(self, subscription: Subscription) -> None:
        if self.reading:
            bound = subscription.since + 1
            self._below = bound if self._below is None else min(bound, self._below)

    def take(self, batch: BatchRead, congested: bool) -> tuple[list[Deliver], bool]:
        """What to send of a batch, and whether that is all of it: if not, something has to happen before the rest."""
        self.reading = False
        delivery = self._delivery
        end = batch.next if self._below is None else min(batch.next, self._below)
        sent: list[Deliver] = []
        for offered in batch.entries:
            entry = offered.entry
            if not delivery.next <= entry.position < end:
                continue
            if congested:
                delivery.fall_behind(entry.position)
                return sent, False
            identifier = delivery.offer(entry.position, offered.qos)
            if identifier == WAIT:
                return sent, False
            if identifier != SETTLED:
                repeat = delivery.is_repeat(entry.position)
                sent.append(
                    Deliver(
                        entry=entry, packet_id=identifier, qos=offered.qos, repeat=repeat, cause=batch.cause
                    )
                )
        delivery.passed(end - 1)
        delivery.live = delivery.next > batch.tail
        return sent, True

    def trimmed(self, oldest: int) -> None:
        """Everything before that position is lost."""
        self.reading = False
        self._delivery.passed(oldest - 1)

    def failed(self) -> None:
        self.reading = False
