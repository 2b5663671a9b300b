"""Tracks: one client's deliveries by position, several of them in one window.

There are four at most: messages and results of channels, and of both the **critical** ones and the others. The priority
is committed with a message or result, and never changes. So each message or result is on one track, always, and
whatever holds of one track (nothing lost, in order, repeats with their packet ids) holds of all. That critical ones
overtake is then no more than this: they have a place of their own, a part of the window that is spared for them, and
while the client is behind with them it gets no others of the same log.

**Results of channels** are delivered like the log's entries (``core.delivery.window``), at QoS 1 at most, by **place**
(``model.results``) instead of position: handed in as notices bring them, or, while the client is behind, read from the
files that notices name. A client that is behind with one track is not behind with the other, and what is slow to read
holds no messages up. They begin with the first subscription to a channel at QoS 1, where the results are at that time:
everything before is settled. How far they are must not lag far behind in the stored session, also of a client that gets
nothing: results are kept while a session may need them. So it is stored every CHECKPOINT_US.

**Messages.** Both tracks are over the same log, by position. The position of the one says "everything critical up to
here", that of the other "everything else up to here"; entries that the log's follower brings are handed in to their own
track, and for a client that is behind the log is read for either class alone.

The critical track begins late. Most clients never get a critical message. So there is no critical track before a
critical message is handed in, or may be in the part of the log that a stored session has not seen. Until then the
position of the others counts for both; a session that is stored without a critical position says just that. The
reserved part of the window is reserved from the beginning: the first alarm must not wait. ``critical_tail`` is how far
there may be critical messages among what was dispatched here. A client that is beyond it has none to read, and where
nothing is critical, nothing is read for it.

**A client that is behind** reads the log of each track, batch by batch, until it is live again. One batch is read at a
time, for the filters that the client has when it is asked for. The read does not look for a subscription that is made
during it: entries beyond its ``since`` are read again, because it may be durable, with a message in the log, before the
read is answered. A batch ends where the window is full, or the connection congested; the rest is read again when there
is room. For other messages it also ends where the log was dispatched to: beyond, there may be an older critical message
that nobody here knows of. Newer entries are handed in. Results of channels are read in the same way, by place instead
of by position, for the names of subscriptions instead of filters.

Invariants: as in ``core.delivery.window``; what is under way of all tracks is within one window; whatever of the others
is sent is sent while the client is not behind with critical ones; without a critical track no critical message was
handed in, and none that the client is to get lies between the position of the others and the end of the log, as it was
when the deliveries began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tocsin.core.channels.channel_filter import ChannelFilter
from tocsin.core.delivery.session_cell import AGAIN_US
from tocsin.core.delivery.signals import BatchRead, DeliveryTimer, ReadBatch, ReadResults, ResultsRead
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import (
    CRITICAL,
    CRITICAL_MESSAGES,
    MESSAGES,
    POSITION_IDS,
    RESULTS,
    SETTLED,
    WAIT,
    DeliveryWindow,
    Ids,
    Progress,
)
from tocsin.core.filters import QueryFilter, RequestFilter, TopicFilter, filter_type
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, Say, SetTimer
from tocsin.errors import TocsinError, Trimmed

SPARED_PART: Final = 4  # one in so many of the window's places is for what is critical alone …
SPARED_MAX: Final = 32  # … up to so many
CHECKPOINT_US: Final = 900_000_000  # a write a minute for each fifteen clients; results are kept for days


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
            delivery.live = True  # a subscription to come is for what comes after it, and that is handed in
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
        return filter_type(name) in (TopicFilter, QueryFilter, RequestFilter)  # a group's come as claims

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
        for matched in batch.entries:
            position = matched.position
            if not delivery.next <= position < end:
                continue
            if congested:
                delivery.fall_behind(position)
                return sent, False
            identifier = delivery.hand_in(position, matched.qos)
            if identifier == WAIT:
                return sent, False
            if identifier != SETTLED:
                sent.append(matched.sent(identifier, delivery.is_repeat(position)))
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


def spared(receive_max: int) -> int:
    """How much of a window is left to what is critical."""
    return min(receive_max // SPARED_PART, SPARED_MAX)


class Track:
    """Deliveries, and the reading for them. ``tail`` is the newest position that was dispatched here."""

    __slots__ = ("catching_up", "delivery")

    def __init__(self, progress: Progress, ids: Ids, tail: int, *, receive_max: int, durable: bool) -> None:
        self.delivery = DeliveryWindow(progress, receive_max=receive_max, durable=durable, ids=ids)
        self.delivery.live = self.delivery.next > tail  # whatever is to come will be handed in
        results, critical = ids in (RESULTS, CRITICAL), ids in (CRITICAL, CRITICAL_MESSAGES)
        self.catching_up = CatchingUp(self.delivery, results=results, critical=critical)
        if ids in (MESSAGES, RESULTS):
            self.delivery.spared = spared(receive_max)


def link(deliveries: Sequence[DeliveryWindow]) -> None:
    """One window for all of a client's."""
    for each in deliveries:
        each.beside = tuple(other for other in deliveries if other is not each)


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

    def hand_in(self, place: int, critical: bool, congested: bool) -> tuple[int, bool]:
        """A result that a notice has just brought → the packet id to send it with (0: don't), repeat."""
        track = self.critical if critical else self.others
        if track is None or not track.delivery.live or place < track.delivery.next:
            return 0, False
        delivery = track.delivery
        if congested:
            delivery.fall_behind(place)
            return 0, False
        return max(0, delivery.hand_in(place, 1)), delivery.is_repeat(place)

    def passed(self, tail: int) -> None:
        """Every result up to there was dispatched, and handed in if it was for the client."""
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


class MessagesTrack:
    """Delivers messages to one client on two tracks: critical and other."""

    __slots__ = (
        "_durable",
        "_receive_max",
        "_results",
        "_saving",
        "critical",
        "deliveries",
        "delivery",
        "others",
        "tracks",
    )

    def __init__(self, results: ResultsTrack) -> None:
        self.others: Track | None = None  # none before the first subscription above QoS 0
        self.critical: Track | None = None
        self.delivery: DeliveryWindow | None = None  # of ``others``: what has the packet ids of claims, too
        self.tracks: tuple[Track, ...] = ()  # those that there are, the critical one first
        self.deliveries: tuple[DeliveryWindow, ...] = ()  # theirs
        self._results = results  # in the same window
        self._receive_max = 1
        self._durable = False
        self._saving: tuple[DeliveryWindow, ...] = ()  # those that the write under way is about

    def begin(
        self,
        progress: Progress,
        critical: Progress | None = None,
        *,
        tail: int,
        critical_tail: int = 0,
        receive_max: int,
        durable: bool,
    ) -> None:
        """Go on from there. ``tail`` is the newest position that was dispatched here."""
        self._receive_max, self._durable = receive_max, durable
        self.others = Track(progress, MESSAGES, tail, receive_max=receive_max, durable=durable)
        self.delivery = self.others.delivery
        if critical is not None or critical_tail > progress.position:
            self._begin_critical(critical or Progress(progress.position + 1), critical_tail)
        self.link()

    def _begin_critical(self, progress: Progress, tail: int) -> DeliveryWindow:
        assert self.delivery is not None
        most, durable = self._receive_max, self._durable
        self.critical = Track(progress, CRITICAL_MESSAGES, tail, receive_max=most, durable=durable)
        self.delivery.first = self.critical.delivery
        return self.critical.delivery

    def link(self) -> None:
        """Put all of the client's deliveries into one window: whenever there is one more."""
        self.tracks = tuple(each for each in (self.critical, self.others) if each is not None)
        self.deliveries = tuple(each.delivery for each in self.tracks)
        link((*self.deliveries, *self._results.deliveries))

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────

    def hand_in(self, position: int, qos: int, critical: bool, congested: bool) -> tuple[int, bool]:
        """The hot path: an entry that the log has just brought → the packet id to send it with (0: don't), repeat."""
        delivery = self._for_critical(position) if critical else self.delivery
        if delivery is None or not delivery.live or position < delivery.next:
            return 0, False
        if congested:
            delivery.fall_behind(position)
            return 0, False
        return max(0, delivery.hand_in(position, qos)), delivery.is_repeat(position)

    def _for_critical(self, position: int) -> DeliveryWindow | None:
        """The track of critical messages, which begins with the first that is handed in."""
        if self.critical is not None:
            return self.critical.delivery
        if self.delivery is None or position < self.delivery.next:
            return None  # a client that is further than this broker has it, or was not to get it
        delivery = self._begin_critical(Progress(position), position - 1)
        self.link()
        return delivery

    def passed(self, tail: int) -> None:
        """Every entry up to here was dispatched, and handed in if it matched: what is stored next may say so."""
        for track in self.tracks:
            if track.delivery.live:
                track.delivery.passed(tail)

    def of_packet(self, packet_id: int) -> DeliveryWindow | None:
        """The track that a packet id belongs to, unless it is one of results."""
        if packet_id > POSITION_IDS and packet_id in CRITICAL_MESSAGES:
            return None if self.critical is None else self.critical.delivery
        return self.delivery

    @property
    def level(self) -> bool:
        """Whether the client was sent everything that the log has for it so far."""
        return all(each.live for each in self.deliveries)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────

    def subscribed(self, subscription: Subscription) -> bool:
        """A subscription to messages; False if the deliveries have to begin for it."""
        for track in self.tracks:
            track.catching_up.subscribed(subscription)
        return self.others is not None or not subscription.qos

    def reading(self, critical: bool) -> CatchingUp | None:
        track = self.critical if critical else self.others
        return None if track is None else track.catching_up

    def ask(self, subscriptions: Mapping[str, Subscription]) -> list[Effect]:
        """The next read, if one is needed: other messages once the client is not behind with critical ones."""
        asked: list[Effect] = []
        for track in self.tracks:
            if not track.delivery.live:
                asked += track.catching_up.ask(subscriptions)
        return asked

    # ── storing ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def urgent(self) -> bool:
        """Whether the client waits for something that no write under way contains."""
        return any(each.urgent for each in self.deliveries)

    def save(self) -> None:
        """How far they are is being stored, as ``written_into`` has it."""
        self._saving = self.deliveries
        for each in self._saving:
            each.save()

    def saved(self) -> tuple[int, ...]:
        """That is durable: the packet ids whose PUBREL may go now."""
        saving, self._saving = self._saving, ()
        return tuple(identifier for each in saving for identifier in each.saved())

    def written_into(self, session: StoredSession) -> StoredSession:
        """A session, with how far they are."""
        if self.delivery is None:
            return session
        critical = None if self.critical is None else self.critical.delivery.progress()
        progress = self.delivery.progress()
        return msgspec.structs.replace(session, progress=progress, critical_messages=critical)
