"""How a client that is behind catches up with the log, batch by batch, until it is live again.

One batch is read at a time, for the filters that the client has when it is asked for. The read does not look for a
subscription that is made during it: entries beyond its ``since`` are read again, because it may be durable, with a
message in the log, before the read is answered.

A batch ends where the window is full, or the connection congested; the rest is read again when there is room. For other
messages it also ends where the log was dispatched to: beyond, there may be an older critical message that nobody here
knows of. Newer entries are offered.

Results of channels are read in the same way, by place instead of by position, for the names of subscriptions instead of
filters. Of both, critical ones and the others are read each for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.core.channels.request import ChannelFilter
from tocsin.core.delivery.session_cell import AGAIN_US
from tocsin.core.delivery.signals import BatchRead, DeliveryTimer, ReadBatch, ReadResults, ResultsRead
from tocsin.core.delivery.window import SETTLED, WAIT, DeliveryWindow
from tocsin.core.filters import QueryFilter, TopicFilter, filter_type
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, Say, SetTimer
from tocsin.errors import TocsinError, Trimmed


class CatchingUp:
    """The reading of the log, or of ``results``, for one client's deliveries."""

    __slots__ = ("_below", "_critical", "_delivery", "_results", "reading")

    def __init__(self, delivery: DeliveryWindow, *, results: bool = False, critical: bool = False) -> None:
        self.reading = False
        self._delivery = delivery
        self._results = results
        self._critical = critical  # whether it is about critical ones
        self._below: int | None = None  # the batch under way knows all subscriptions only below this position

    def ask(self, subscriptions: Mapping[str, Subscription]) -> list[Effect]:
        """The batch to read now, if one has to be."""
        delivery = self._delivery
        if self.reading or not delivery.behind:
            return []
        filters = tuple(
            name for name, subscription in subscriptions.items() if subscription.qos and self._concerns(name)
        )
        if not filters:
            delivery.live = True  # a subscription to come is for what comes after it, and that is offered
            return []
        self.reading = True
        self._below = None
        start, critical = delivery.next, self._critical
        if self._results:
            return [ReadResults(names=filters, start=start, critical=critical)]
        return [ReadBatch(filters=filters, start=start, critical=critical)]

    def _concerns(self, name: str) -> bool:
        if self._results:
            return filter_type(name) is ChannelFilter
        return filter_type(name) in (TopicFilter, QueryFilter)  # a group's come as claims

    def subscribed(self, subscription: Subscription) -> None:
        if self.reading:
            bound = subscription.since + 1
            self._below = bound if self._below is None else min(bound, self._below)

    def take(self, batch: BatchRead | ResultsRead, congested: bool) -> tuple[list[Effect], bool]:
        """The part of a batch to send, and whether that is all of it: if not, something has to happen before the
        rest.
        """
        self.reading = False
        delivery = self._delivery
        end = batch.next if self._below is None else min(batch.next, self._below)
        if not self._results and not self._critical:
            end = min(end, batch.tail + 1)
        sent: list[Effect] = []
        for offered in batch.entries:
            position = offered.position
            if not delivery.next <= position < end:
                continue
            if congested:
                delivery.fall_behind(position)
                return sent, False
            identifier = delivery.offer(position, offered.qos)
            if identifier == WAIT:
                return sent, False
            if identifier != SETTLED:
                sent.append(offered.sent(identifier, delivery.is_repeat(position)))
        delivery.passed(end - 1)
        delivery.live = delivery.next > batch.tail
        return sent, True

    def failed(self, error: TocsinError) -> list[Effect]:
        """The batch could not be read: again in a while, or (``Trimmed``) everything before a position is lost."""
        self.reading = False
        if not isinstance(error, Trimmed):
            return [SetTimer(name=DeliveryTimer.READ_AGAIN, delay_us=AGAIN_US)]
        self._delivery.passed(error.oldest - 1)
        what = "results" if self._results else "messages"
        words = f"{what} were trimmed before a client got them"
        return [Say(text=words, level="warning", facts={"problem": str(error)})]
