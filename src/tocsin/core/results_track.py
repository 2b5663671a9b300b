"""One client's deliveries of results of channels: a track beside that of the message log, in the same window.

Results are delivered like the log's entries (``core.delivery``), at QoS 1 at most, by **place** (``model.results``)
instead of position: offered as notices bring them, or, while the client is behind, read from the files that notices
name (``core.catching_up``). Each track goes on by itself: a client that is behind with one is not behind with the
other, and what is slow to read holds nothing else up.

It begins with the first subscription to a channel at QoS 1, where the results are at that time: everything before is
settled.

How far it is must not lag far behind in the stored session, also of a client that gets nothing: results are kept while
a session may need them. So it is stored every CHECKPOINT_US.

Invariants: as in ``core.delivery``; what is under way of both tracks is within one window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tocsin.core.catching_up import CatchingUp
from tocsin.core.delivery import RESULTS, Delivery, Progress
from tocsin.core.forwarding import Subscription
from tocsin.core.machine import Effect, SetTimer

CHECKPOINT: Final = "checkpoint"
CHECKPOINT_US: Final = 900_000_000  # a write a minute for each fifteen clients; results are kept for days


def checkpoint_later(cause: str) -> Effect:
    return SetTimer(name=CHECKPOINT, delay_us=CHECKPOINT_US, cause=cause)


class ResultsTrack:
    """See the module's text."""

    __slots__ = ("catching_up", "delivery")

    def __init__(self) -> None:
        self.delivery: Delivery | None = None  # none before it begins
        self.catching_up: CatchingUp | None = None

    def begin(
        self, progress: Progress, tail: int, messages: Delivery | None, *, receive_max: int, durable: bool
    ) -> None:
        """Go on from there; ``tail`` is the newest place that was dispatched here."""
        self.delivery = Delivery(progress, receive_max=receive_max, durable=durable, ids=RESULTS)
        self.delivery.live = self.delivery.next > tail  # whatever is to come will be offered
        self.catching_up = CatchingUp(self.delivery, results=True)
        self.link(messages)

    def link(self, messages: Delivery | None) -> None:
        """The client's messages: one window for both."""
        if self.delivery is not None and messages is not None:
            self.delivery.beside, messages.beside = messages, self.delivery

    def subscribed(self, subscription: Subscription) -> bool:
        """A subscription to a channel; False if the track has to begin for it."""
        if self.catching_up is not None:
            self.catching_up.subscribed(subscription)
        return self.catching_up is not None or not subscription.qos

    def offer(self, place: int, congested: bool) -> tuple[int, bool]:
        """A result that a notice has just brought → the packet id to send it with (0: don't), repeat."""
        delivery = self.delivery
        if delivery is None or not delivery.live or place < delivery.next:
            return 0, False
        if congested:
            delivery.fall_behind(place)
            return 0, False
        return max(0, delivery.offer(place, 1)), delivery.is_repeat(place)

    def passed(self, tail: int) -> None:
        """Every result up to there was dispatched, and offered if it was for the client."""
        if self.delivery is not None and self.delivery.live:
            self.delivery.passed(tail)

    def ask(self, subscriptions: Mapping[str, Subscription], cause: str) -> list[Effect]:
        """What to read now, if something has to be."""
        return [] if self.catching_up is None else self.catching_up.ask(subscriptions, cause)

    def progress(self, stored: Progress | None) -> Progress | None:
        return stored if self.delivery is None else self.delivery.progress()
