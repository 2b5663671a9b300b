"""The shell of ``core.delivery.machine``: one client's durable deliveries and its stored session.

A client that is behind has the message log and results of channels read in batches. Entries that are not for it (by its
rights, its maximum packet size, its subscriptions and their age) are left out here; the rest is handed in to its
delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket

from tocsin.broker.client import Client, Recipient
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.links.link import NO_MAXIMUM
from tocsin.broker.retained.replay import Copy, Pages, Replay
from tocsin.core.budgets.budget import Kind
from tocsin.core.channels.channel_filter import ChannelFilter
from tocsin.core.delivery.grant import Frames, Grant, grant, grant_of_results
from tocsin.core.delivery.machine import ClientDelivery
from tocsin.core.delivery.session_cell import SESSIONS
from tocsin.core.delivery.signals import (
    Answered,
    AwaitSave,
    BatchRead,
    Began,
    Begins,
    ClaimsForgotten,
    ClaimsSettled,
    Deliver,
    DeliverResult,
    DeliveryState,
    Durable,
    Ended,
    Gone,
    Kept,
    MatchedEntry,
    MatchedResult,
    Overfull,
    ReadBatch,
    ReadFailed,
    ReadResults,
    ReleaseAsked,
    Reply,
    ResultsFailed,
    ResultsRead,
    StreamSaid,
    Subscribed,
    Unsubscribed,
    Usurped,
    Violated,
    Writable,
)
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import DeliveryWindow
from tocsin.core.filters import (
    QueryFilter,
    RequestFilter,
    TopicFilter,
    filter_type,
    interest_of,
    stored_filter,
)
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, Event, PutKey, Say, TimerFired
from tocsin.core.quality.judging import Judge, owns
from tocsin.core.quality.offers import needs_offers
from tocsin.core.quality.ownership import Owners
from tocsin.core.quality.texts import request_of
from tocsin.core.session.signals import TakenOver, WireFailed
from tocsin.core.shared.stored_group import Claim
from tocsin.core.streams.query_topics import filters_of
from tocsin.errors import StoreFull, TocsinError
from tocsin.model.publication import Publication
from tocsin.model.results import Notice
from tocsin.model.stream import Metadata, Value
from tocsin.ports import Entry, Table
from tocsin.runtime.faults.kill_points import AFTER_SEND, BEFORE_SEND, IN_REPLAY, reach
from tocsin.runtime.machines.clock import wall_s
from tocsin.runtime.machines.shell import PendingCallbacks, Shell
from tocsin.wire.internal.replication import Positions
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.topics import matches

if TYPE_CHECKING:
    from tocsin.broker.channels.channels import Channels
    from tocsin.results.reader import Result


RESULTS_BYTES: Final = 2 << 20  # of a page of results
SESSIONS_FULL: Final = "stored sessions take all that they may: shares.sessions_bytes, or its disk"

Subscriptions = Mapping[str, Subscription]


class _Absent:
    """Stands in for the client of a delivery that is over. The connection has its delivery, so that the two would be a
    circle, which only the garbage collector finds."""

    __slots__ = ("client_id",)
    heard_us = 0

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id


class DurableDelivery:
    """Delivers durable messages and results to one connected client, and stores its session."""

    provisional = False  # the session is not taken (``broker.survival.provisional``)

    __slots__ = (
        "_cause",
        "_changed",
        "_channels",
        "_connection",
        "_departed",
        "_gone",
        "_level",
        "_machine",
        "_message_log",
        "_owned",
        "_replay",
        "_settle",
        "_shell",
        "_tickets",
        "_wrote",
        "sent_bytes",
        "session",
        "session_epoch",
    )

    def __init__(
        self,
        connection: Client,
        message_log: MessageLog,
        sessions: Table,
        cause: str,
        settle: Callable[[str, str, int], None],
        channels: Channels,
        changed: Callable[[str, str], None] = lambda client, name: None,
        wrote: Callable[[str, int], None] = lambda client, size: None,
    ) -> None:
        self._connection = connection
        self._wrote = wrote  # told the client, and the size of the cell that is written
        self._changed = changed  # told the client, and the subscription that is not as it was
        self._message_log = message_log
        self._channels = channels
        self._settle = settle  # told the group, the client and the position of a message that it is done with
        self._cause = cause
        self._machine = ClientDelivery()
        self._shell = Shell(
            self._machine,
            self._carry_out,
            self._failed,
            tables={SESSIONS: sessions},
            answer=self._answer,
        )
        # Made when needed: most clients need none of these.
        self._tickets: PendingCallbacks | None = None  # of what is to be done when something is durable
        self._replay: Replay | None = None
        self._level: Callable[[], None] | None = None  # to be done when the client has caught up with the log
        self._departed = False
        self._owned: Owners | None = None
        self.sent_bytes = (
            0  # above QoS 0: what would be sent again, as far as nobody knows that it was acknowledged
        )
        self.session, self.session_epoch = "", 0  # the uid of the stored one, and its epoch
        self._gone: Callable[[bool], None] | None = None  # told when nothing is left to store

    # ── the connection tells ────────────────────────────────────────────────────────────────────────────────

    def begin(
        self,
        session: StoredSession | None,
        revision: int,
        *,
        receive_max: int,
        prefix: str,
        claims: tuple[tuple[str, Claim], ...] = (),
    ) -> None:
        """The client is accepted; ``claims`` are what it has as a member of groups, each with the group's name."""
        self.session, self.session_epoch = ("", 0) if session is None else (session.uid, session.epoch)
        if session is not None and session.named(ChannelFilter):
            self._channels.results.expected()  # so that what is behind the tail is dispatched
        self._post(
            Began(
                receive_max=receive_max,
                prefix=prefix,
                session=session,
                revision=revision,
                tail=self._message_log.reading.horizon(() if session is None else _followed(session)),
                critical_tail=self._message_log.critical_tail,
                results_tail=self._channels.results.tail,
                claims=claims,
                cause=self._cause,
            )
        )

    @property
    def begun(self) -> bool:
        return self._machine.state is not DeliveryState.NEW

    @property
    def here(self) -> bool:
        """Whether the client has its session, and is still here."""
        return self.begun and not self._departed

    @property
    def _owners(self) -> Owners:
        """The owners of exclusive topics in what it has read of the log."""
        if self._owned is None:
            self._owned = Owners()
        return self._owned

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        return self._machine.subscriptions

    @property
    def streams(self) -> dict[str, dict[str, Value]]:
        """The session's metadata of the streams that the client publishes on."""
        return self._machine.streams

    def is_unkept(self, topic: str) -> bool:
        """Whether the session tells of a stream what no coordinator has."""
        return topic in self._machine.unkept

    def said(self, topic: str, keys: Metadata, *, kept: bool) -> None:
        """The current metadata of such a stream; ``kept``: a coordinator has them."""
        news = self.streams.get(topic, {}) != keys or self.is_unkept(topic) == (kept or not keys)
        if self.session and self.here and news:
            self._post(StreamSaid(topic=topic, keys=keys, kept=kept, cause=self._cause))

    @property
    def positions(self) -> Positions | None:
        """How far the client is; None if nothing is delivered to it by position."""
        messages, results = self._machine.messages, self._machine.results
        if messages.others is None and results.others is None:
            return None
        tracks = (messages.others, results.others, results.critical, messages.critical)
        return Positions(*(0 if each is None else each.delivery.position for each in tracks))

    @property
    def inbound_ids(self) -> tuple[int, ...]:
        return self._machine.inbound_ids

    def has_room(self, packet_id: int, topic: str) -> bool:
        """Whether the id of one more QoS 2 message can be stored."""
        return self._machine.record_ids.has_room(packet_id, topic)

    def record_id(self, packet_id: int, qos: int, topic: str) -> str:
        return self._machine.record_ids.give(packet_id, qos, topic, self._message_log.tail)

    def behind(self, packet_id: int) -> int | None:
        """The position behind which the log may have a QoS 2 message already; None if this is the first try."""
        return self._machine.record_ids.behind(packet_id)

    def kept(self, packet_id: int) -> None:
        """The log has the client's QoS 2 message."""
        self._post(Kept(packet_id=packet_id, cause=self._cause))

    def subscribed(self, topic_filter: str, subscription: Subscription) -> None:
        tail = self._message_log.tail
        self._post(
            Subscribed(topic_filter=topic_filter, subscription=subscription, tail=tail, cause=self._cause)
        )
        self._changed(self._connection.client_id, topic_filter)

    def begins(self, topic_filter: str, before: Subscription, subscription: Subscription) -> None:
        """It is known now from which position on a subscription has to get messages."""
        self._post(
            Begins(
                topic_filter=topic_filter,
                before=before,
                subscription=subscription,
                cause=self._cause,
            )
        )
        self._changed(self._connection.client_id, topic_filter)

    def unsubscribed(self, topic_filter: str) -> None:
        self._post(Unsubscribed(topic_filter=topic_filter, cause=self._cause))
        self._forget_replay(topic_filter)
        self._changed(self._connection.client_id, topic_filter)

    def when_durable(self, act: Callable[[], None]) -> None:
        """Do something once what has changed so far is durable; at once, if nothing has to be."""
        self._post(AwaitSave(ticket=self._ticket(act), cause=self._cause))

    def when_tried(self, act: Callable[[], None]) -> None:
        """The same; or once it is known that the store does not take it now."""
        self._post(AwaitSave(ticket=self._ticket(act), needed=False, cause=self._cause))

    def release(self, packet_id: int, act: Callable[[], None]) -> None:
        """The client gives a QoS 2 packet id back; ``act`` when that is durable."""
        self._post(ReleaseAsked(packet_id=packet_id, ticket=self._ticket(act), cause=self._cause))

    def _ticket(self, act: Callable[[], None]) -> int:
        if self._tickets is None:
            self._tickets = PendingCallbacks()
        return self._tickets.give(act)

    def answered(self, packet: PubAckPacket | PubRecPacket | PubCompPacket) -> None:
        reach(AFTER_SEND)
        self._post(Answered(packet=packet, cause=self._cause))
        self._look()
        if self._replay is not None:
            self._replay.more()

    def congested(self, now: bool) -> None:
        self._machine.congested = now
        if not now:
            self._post(Writable(cause=self._cause))
            self._look()
            if self._replay is not None:
                self._replay.more()

    def when_level(self, act: Callable[[], None]) -> bool:
        """Whether the client has got all messages of the log that there are; if not, ``act`` when it has."""
        if not self._machine.level:
            self._level = act
        return self._machine.level

    def _look(self) -> None:
        if self._level is not None and self._machine.level:
            act, self._level = self._level, None
            act()

    def depart(self) -> None:
        """Nothing is handed in to the client from now on; everything up to here was."""
        self._departed = True
        self._pass()

    def _pass(self) -> None:
        """Everything that was dispatched up to now was handed in, if it was for the client."""
        self._machine.passed(self._message_log.tail)
        self._machine.results.passed(self._channels.results.done)

    def end(self, expiry_s: int, then: Callable[[bool], None], *, settled: bool = False) -> None:
        """The connection is over; ``then`` is told, at once or later, whether what it leaves was stored, or cannot be.
        ``settled``: no will is left."""
        self._gone = then
        self._post(Ended(expiry_s=expiry_s, settled=settled, cause=self._cause))

    # ── as a member of groups ───────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> bool:
        return self._machine.room

    @property
    def claims(self) -> DeliveryWindow | None:
        return self._machine.claims

    def forget_claims(self, packet_ids: tuple[int, ...]) -> None:
        """That these are settled is durable."""
        self._post(ClaimsForgotten(packet_ids=packet_ids, cause=self._cause))

    # ── messages to the client ──────────────────────────────────────────────────────────────────────────────

    def hand_in(self, entry: Entry, critical: bool, granted: Grant, frames: Frames) -> None:
        """The hot path: an entry that the log has just brought."""
        if too_large(self._connection, frames, granted):
            return
        machine = self._machine
        packet_id, repeat = machine.messages.hand_in(entry.position, granted.qos, critical, machine.congested)
        if packet_id:
            reach(BEFORE_SEND)
            frame = frames.of(self._connection.version, granted, packet_id, repeat)
            self.sent_bytes += len(frame)
            self._connection.queue(frame)

    def hand_in_result(self, place: int, critical: bool, granted: Grant, frames: Frames) -> None:
        """The same of a result that a notice has just brought; at QoS 0 it is sent once."""
        if too_large(self._connection, frames, granted):
            return
        packet_id, repeat = 0, False
        if granted.qos:
            packet_id, repeat = self._machine.results.hand_in(place, critical, self._machine.congested)
        if packet_id or not granted.qos:
            reach(BEFORE_SEND)
            self._channels.sent += 1
            frame = frames.of(self._connection.version, granted, packet_id, repeat)
            self.sent_bytes += len(frame) if granted.qos else 0
            self._connection.queue(frame)

    def replay(self, name: str, pages: Pages, copy: Copy) -> None:
        """Send the retained messages of a subscription, as fast as the client takes them."""
        if self._replay is None:
            self._replay = Replay(self._connection, self._machine, copy)
        self._replay.add(name, pages)

    def send_history(self, name: str, pages: Pages, copy: Copy, done: Callable[[], None]) -> None:
        """Send what a subscription gets from before it, as fast as the client takes it."""
        if self._replay is None:
            self._replay = Replay(self._connection, self._machine, copy)
        self._replay.add_now(name, pages, done)

    def awaits_retained(self, name: str) -> bool:
        """Whether nothing of what is retained for a subscription was sent yet, and all will be."""
        return self._replay is not None and self._replay.is_early(name)

    def _forget_replay(self, name: str) -> None:
        if self._replay is not None:
            self._replay.cancel(name)

    def _answer(self, event: Event) -> None:
        """A timer has fired, or the store has answered."""
        if type(event) is TimerFired and not self._departed:
            self._pass()  # so that what is stored does not lag behind a quiet client
        self._post(event)

    def _post(self, event: Event) -> None:
        self._machine.heard_us = self._connection.heard_us
        self._shell.post(event)

    # ── the machine's effects ───────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Deliver() | DeliverResult():
                self._deliver(effect)
            case Reply(packet=packet):
                self._connection.queue(encode(packet, self._connection.version))
            case ClaimsSettled(claims=claims):
                for group, position, _ in claims:
                    self._settle(group, self._connection.client_id, position)
            case ReadBatch() | ReadResults():
                self._shell.spawn(self._read(effect))
            case PutKey(value=value):
                self._wrote(self._connection.client_id, len(value))
                self._shell.carry_out(effect)
            case Durable(tickets=tickets):
                assert self._tickets is not None, "they were given"
                self._tickets.redeem(tickets)
            case Say():
                self._shell.say(effect, subscriber=self._connection.client_id)
            case Overfull():
                self._connection.exhausted(StoreFull("store the session", SESSIONS_FULL))
            case Violated(error=error):
                self._connection.post(WireFailed(error=error, cause=self._cause))
            case Usurped():
                self._connection.post(TakenOver(cause=self._cause))
            case Gone(unstored=unstored):
                self._shell.close()
                then, self._gone = self._gone, None
                if then is not None:
                    then(not unstored)
                self._shell.let_go()
                self._replay = self._level = None
                self._connection = cast("Client", _Absent(self._connection.client_id))
            case _:
                self._shell.carry_out(effect)

    async def _read(self, asked: ReadBatch | ReadResults) -> None:
        """Read a page when there is room for it, and have it sent."""
        connection, subscriptions = self._connection, self.subscriptions
        size = self._page_bytes(asked)
        await self._room(size)
        try:
            found: Event
            if isinstance(asked, ReadBatch):
                owners = self._owners
                found = await read_messages(asked, self._message_log, connection, subscriptions, owners)
            else:
                found = await read_results(asked, self._channels, connection, subscriptions)
            # A connection that is over may receive nothing: all of the page would count as settled.
            if not self._departed:
                self._post(found)
        finally:
            connection.account.give(Kind.PAGES, size)
        self._look()

    def _page_bytes(self, asked: ReadBatch | ReadResults) -> int:
        size = RESULTS_BYTES
        if isinstance(asked, ReadBatch):
            _, size = self._message_log.pages_of(read_for(asked.filters), asked.critical)
        return min(size, self._connection.account.limit(Kind.PAGES))

    async def _room(self, size: int) -> None:
        """Take so many bytes for a page; wait while there is no room for it, or for what would be sent of it."""
        account = self._connection.account
        while True:
            if account.over(Kind.OUTBOUND):
                await self._when_room(Kind.OUTBOUND, 1)
            elif account.room(Kind.PAGES) < size:
                await self._when_room(Kind.PAGES, size)
            else:
                refusal = account.take(Kind.PAGES, size)
                if refusal is None:
                    return
                await asyncio.get_running_loop().create_future()  # the connection is over, and so is this

    async def _when_room(self, kind: Kind, size: int) -> None:
        room = asyncio.Event()
        self._connection.account.when_room(kind, size, room.set)
        await room.wait()

    def _deliver(self, effect: Deliver | DeliverResult) -> None:
        reach(IN_REPLAY)
        connection = self._connection
        if isinstance(effect, Deliver):
            frame = message_frame(effect, connection)
        else:
            self._channels.sent += 1
            frame = result_frame(effect, self._channels, connection, self.subscriptions)
        self.sent_bytes += len(frame)
        connection.queue(frame)

    def _failed(self, error: BaseException) -> None:
        """The client has to come back: what it was sent and what it settled is stored, or is sent again."""
        self._connection.post(TakenOver(cause=self._cause))


def too_large(recipient: Recipient, frames: Frames, granted: Grant) -> bool:
    """Whether the client takes no packet of that size: it is then as good as delivered (MQTT 5, 3.1.2.11.4)."""
    most, packet_id = recipient.send_max_bytes, 1 if granted.qos else 0
    return most < NO_MAXIMUM and len(frames.of(recipient.version, granted, packet_id)) > most


# ── what is read for a client: messages ─────────────────────────────────────────────────────────────────────


async def read_messages(
    asked: ReadBatch,
    message_log: MessageLog,
    recipient: Recipient,
    subscriptions: Subscriptions,
    owners: Owners,
) -> BatchRead | ReadFailed:
    """The next batch of the log. What comes behind the last one is dispatched: so the log must be followed for these
    filters before it is read. Critical messages always are. ``owners``: of exclusive topics, as the log has shown."""
    critical = asked.critical
    if not critical:
        await message_log.cover(read_for(asked.filters))
        if asked.start > (tail := message_log.tail):
            return BatchRead(entries=[], next=asked.start, tail=tail, critical=False, cause=asked.cause)
    try:
        batch = await message_log.read(read_for(asked.filters), asked.start, critical=critical)
        by_metadata = _judges(asked.filters) or _compares(subscriptions)
        entries = await message_log.resolved(batch.entries) if by_metadata else batch.entries
        judge = Judge() if any(each.request for each in subscriptions.values()) else None
        each = (_matched(entry, message_log, recipient, subscriptions, judge, owners) for entry in entries)
        matched = [one for one in each if one is not None]
    except TocsinError as error:
        return ReadFailed(error=error, critical=critical, cause=asked.cause)
    tail = message_log.critical_tail if critical else message_log.tail
    return BatchRead(entries=matched, next=batch.next, tail=tail, critical=critical, cause=asked.cause)


def _followed(session: StoredSession) -> Sequence[str]:
    """The filters for which the log has to be read, so that a session's client gets what comes."""
    wanted = session.subscriptions.items()
    return read_for(
        [
            name
            for name, each in wanted
            if each.qos and filter_type(name) in (TopicFilter, QueryFilter, RequestFilter)
        ]
    )


def _matched(
    entry: Entry,
    message_log: MessageLog,
    recipient: Recipient,
    subscriptions: Subscriptions,
    judge: Judge | None,
    owners: Owners,
) -> MatchedEntry | None:
    """An entry of a batch, if the client is to get it above QoS 0; ``judge``, where a subscription has a request."""
    publication = message_log.publication(entry)
    if publication is None or publication.expired(_waited_s(entry)):
        return None
    if not recipient.may_receive(publication.topic):
        return None
    concerned = [
        each
        for name, each in subscriptions.items()
        if concerns(name, publication)
        and (
            judge is None
            or not each.request
            or meets_request(each.request, publication, entry.at_us, judge, owners)
        )
    ]
    granted = grant(concerned, publication, entry.position, recipient.client_id)
    if granted is None or not granted.qos or too_large(recipient, Frames(publication, 0), granted):
        return None
    return MatchedEntry(entry, granted.qos, (publication, granted))


def meets_request(request: str, publication: Publication, at_us: int, judge: Judge, owners: Owners) -> bool:
    """Whether a message meets a request, at the time of its entry: who was alive then is known by its messages."""
    return judge.fits(request, publication) and owns(owners, request, publication, 0, at_us)


def message_frame(effect: Deliver, recipient: Recipient) -> bytes:
    """An entry that was handed in, as it is sent: as it was read, and granted, then."""
    publication: Publication
    granted: Grant
    publication, granted = effect.message
    frames = Frames(publication, _waited_s(effect.entry))
    return frames.of(recipient.version, granted, effect.packet_id, effect.repeat)


def _judges(names: Sequence[str]) -> bool:
    """Whether entries are judged by their streams' metadata, and not only by their topics."""
    return any(filter_type(name) is QueryFilter for name in names)


def _compares(subscriptions: Subscriptions) -> bool:
    """Whether it matters what streams offer."""
    requests = {each.request for each in subscriptions.values() if each.request}
    return any(needs_offers(request_of(request)) for request in requests)


def read_for(names: Sequence[str]) -> Sequence[str]:
    """The filters to read the log for: whether a query concerns an entry, only the entry tells."""
    return tuple(each for name in names for each in _read_for(name))


def _read_for(name: str) -> tuple[str, ...]:
    if filter_type(name) is QueryFilter and isinstance(wanted := stored_filter(name), QueryFilter):
        return filters_of(wanted.query)
    return (interest_of(name).pattern,)


def concerns(name: str, publication: Publication) -> bool:
    """Whether a subscription matches a message: by its topic, or by its stream's metadata at the time."""
    match stored_filter(name):
        case TopicFilter():
            return matches(name, publication.topic)
        case RequestFilter(pattern=pattern):
            return matches(pattern, publication.topic)
        case QueryFilter(query=query):
            return query.matches(publication.metadata)
        case _:
            return False


def _waited_s(entry: Entry) -> float:
    return max(0.0, wall_s() - entry.at_us / 1e6)


# ── what is read for a client: results ──────────────────────────────────────────────────────────────────────


async def read_results(
    asked: ReadResults, channels: Channels, recipient: Recipient, subscriptions: Subscriptions
) -> ResultsRead | ResultsFailed:
    """The next batch of results."""
    meant, critical = channels.meant(asked.names), asked.critical
    ks = {k: channel for k, (_, channel) in meant.items()}
    try:
        batch = await channels.results.read(ks, asked.start, critical=critical)
    except TocsinError as error:
        return ResultsFailed(error=error, critical=critical, cause=asked.cause)
    matched: list[MatchedResult] = []
    for place, notice, result in batch.results:
        name = meant[result.k][0]
        subscription = subscriptions.get(name)
        if subscription is None or not subscription.qos or place <= subscription.since:
            continue
        frames = Frames(channels.publication(name, place, notice, result), 0)
        if channels.may_receive(recipient, name) and not too_large(
            recipient, frames, grant_of_results(subscription)
        ):
            matched.append(MatchedResult(place, name, (notice, result)))
    tail = channels.results.tail
    return ResultsRead(entries=matched, next=batch.next, tail=tail, critical=critical, cause=asked.cause)


def result_frame(
    effect: DeliverResult, channels: Channels, recipient: Recipient, subscriptions: Subscriptions
) -> bytes:
    """A result that was handed in, as it is sent."""
    notice: Notice
    result: Result
    notice, result = effect.result
    frames = Frames(channels.publication(effect.name, effect.position, notice, result), 0)
    granted = grant_of_results(subscriptions[effect.name])
    return frames.of(recipient.version, granted, effect.packet_id, effect.repeat)
