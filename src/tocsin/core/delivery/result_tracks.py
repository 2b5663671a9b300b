"""One client's deliveries of channel results: two tracks beside those of the message log, in the same window.

Results are delivered like the log's entries (``core.delivery.window``), at QoS 1 at most, by **place**
(``model.results``) instead of position: offered as notices bring them, or, while the client is behind, read from the
files that notices name (``core.delivery.catch_up``). Each track goes on by itself: a client that is behind with one is
not behind with the other, and what is slow to read holds no messages up.

**Critical** results are a track of their own, so that they overtake the others (``core.delivery.tracks``). A result's
priority, which is committed with it, decides its track.

They begin with the first subscription to a channel at QoS 1, where the results are at that time: everything before is
settled.

How far they are must not lag far behind in the stored session, also of a client that gets nothing: results are kept
while a session may need them. So it is stored every CHECKPOINT_US.

Invariants: as in ``core.delivery.tracks``; whatever of ``others`` is sent is sent while the client is not behind with
``critical``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tocsin.core.delivery.catch_up import CatchingUp
from tocsin.core.delivery.signals import DeliveryTimer
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.tracks import Track
from tocsin.core.delivery.window import CRITICAL, RESULTS, DeliveryWindow, Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, SetTimer

CHECKPOINT_US: Final = 900_000_000  # a write a minute for each fifteen clients; results are kept for days


def checkpoint_later() -> Effect:
    return SetTimer(name=DeliveryTimer.CHECKPOINT, delay_us=CHECKPOINT_US)


class ResultsTrack:
    """Delivers channel results to one client on two tracks: critical and other."""

    __slots__ = ("critical", "others")

    def __init__(self) -> None:
        self.critical: Track | None = None  # none before they begin …
        self.others: Track | None = None  # … and then both

    def begin(
        self,
        progress: Progress,
        critical: Progress | None,
        tail: int,
        *,
        receive_max: int,
        durable: bool,
    ) -> None:
        """Go on from there; ``tail`` is the newest place that was dispatched here.

        If it is not said how far it is with critical ones, they begin with the oldest that may not be settled.
        """
        critical = critical or Progress(progress.position + 1)
        self.critical = Track(critical, CRITICAL, tail, receive_max=receive_max, durable=durable)
        self.others = Track(progress, RESULTS, tail, receive_max=receive_max, durable=durable)
        self.others.delivery.first = self.critical.delivery

    @property
    def deliveries(self) -> tuple[DeliveryWindow, ...]:
        return tuple(each.delivery for each in (self.critical, self.others) if each is not None)

    def subscribed(self, subscription: Subscription) -> bool:
        """A subscription to a channel; False if the tracks have to begin for it."""
        for track in (self.critical, self.others):
            if track is not None:
                track.catching_up.subscribed(subscription)
        return self.others is not None or not subscription.qos

    def reading(self, critical: bool) -> CatchingUp | None:
        track = self.critical if critical else self.others
        return None if track is None else track.catching_up

    def of_packet(self, packet_id: int) -> DeliveryWindow | None:
        """The track that a packet id of results belongs to."""
        track = self.critical if packet_id in CRITICAL else self.others
        return None if track is None else track.delivery

    def offer(self, place: int, critical: bool, congested: bool) -> tuple[int, bool]:
        """A result that a notice has just brought → the packet id to send it with (0: don't), repeat."""
        track = self.critical if critical else self.others
        if track is None or not track.delivery.live or place < track.delivery.next:
            return 0, False
        delivery = track.delivery
        if congested:
            delivery.fall_behind(place)
            return 0, False
        return max(0, delivery.offer(place, 1)), delivery.is_repeat(place)

    def passed(self, tail: int) -> None:
        """Every result up to there was dispatched, and offered if it was for the client."""
        for track in (self.critical, self.others):
            if track is not None and track.delivery.live:
                track.delivery.passed(tail)

    def ask(self, subscriptions: Mapping[str, Subscription]) -> list[Effect]:
        """The next read, if one is needed: other results once the client is not behind with critical ones."""
        if self.critical is None or self.others is None:
            return []
        critical = self.critical.catching_up.ask(subscriptions)
        return [*critical, *self.others.catching_up.ask(subscriptions)]

    def written_into(self, session: StoredSession) -> StoredSession:
        """A session, with how far they are."""
        if self.critical is None or self.others is None:
            return session
        others, critical = self.others.delivery.progress(), self.critical.delivery.progress()
        return msgspec.structs.replace(session, results=others, critical=critical)
