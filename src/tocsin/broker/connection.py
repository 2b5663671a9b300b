"""One accepted connection: bytes in, through the decoder to the session machine; its effects carried out.

Publishes of a connected client at QoS 0 take the short way (``Session.check_publish``, then the exchange) and make no
event and no effect; everything else goes through ``Session.handle``. What is published goes through ``broker.source``,
but for streams that are known while nothing waits.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from mqtt5 import (
    Packet,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tocsin.broker.outflow import ANSWERS_BYTES, Outflow
from tocsin.broker.pace import HELD_BACK, NO_ROOM, NOT_CLEAR, TURN, UNDER_WAY, UNREAD, Pace
from tocsin.broker.partaking import Refused
from tocsin.broker.permitted import Permitted
from tocsin.broker.provisional import DEGRADED
from tocsin.broker.sessions import Abandoned, NotYours, SessionsFull
from tocsin.broker.source import PAIR_BYTES, Source
from tocsin.broker.sources import will_id
from tocsin.broker.subscribing import Subscribing
from tocsin.broker.turns import MUCH_BYTES, SLICE
from tocsin.core.access import Rights
from tocsin.core.budget import OVERHEAD_BYTES, Kind, Refusal
from tocsin.core.machine import CancelTimer, Effect, Event, SetTimer, TimerFired
from tocsin.core.session import (
    Accepted,
    Acknowledged,
    Authenticate,
    Close,
    Commit,
    DelayWill,
    Opened,
    PacketArrived,
    PeerClosed,
    Publish,
    Release,
    Released,
    Resumed,
    ResumeFailed,
    SendPacket,
    Session,
    Subscribe,
    Unsubscribe,
    WireFailed,
)
from tocsin.core.stored_group import Claim
from tocsin.core.stored_session import StoredSession
from tocsin.errors import ProtocolViolation, StoreFull, TocsinError, WireError
from tocsin.runtime.pump import Pump, now_us
from tocsin.runtime.timers import Timers
from tocsin.wire.codec import V5, Decoder, PublishRun, Version, encode
from tocsin.wire.replication import Bequest

LINGER_S: Final = 5.0  # for a closed connection's last bytes
AT_MOST_ONCE: Final = QoS.AT_MOST_ONCE
DEAR: Final = (SubscribePacket, UnsubscribePacket)  # packets that are a slice of their own
FREE_BYTES: Final = 4 << 10  # of an incomplete packet that every connection may have
QUOTA_EXCEEDED: Final = 0x97

Item = Packet | PublishRun | WireError
CLIENT_ID_NOT_VALID: Final = 0x85
SERVER_UNAVAILABLE: Final = 0x88
SESSION_TAKEN_OVER: Final = 0x8E  # the session is another connection's to keep or to forget

if TYPE_CHECKING:
    from tocsin.broker.listener import Listener


class Connection(Outflow, Permitted):
    """A client. What it sends to the client is the affair of ``broker.outflow``."""

    def __init__(self, listener: Listener, number: int) -> None:
        super().__init__(listener.exchange, listener.outbound_max_bytes)
        limits = listener.limits
        self.client_id = self.prefix = ""  # its name, and what its record ids begin with: once it is accepted
        self.version: Version = V5
        self._listener = listener
        self._durability = listener.exchange.durability
        self._cause = f"{listener.own.id}:c{number}"
        self._session = Session(limits)
        self._decoder = Decoder(limits.packet_max_bytes)
        self.post = Pump(self._session, self._carry_out).post  # hand an event to the session
        self._timers = Timers(self._on_timer)
        self._commits = False  # it has published above QoS 0
        self._pace = Pace(listener.publish_bucket(), self._freed)
        self._turns = listener.turns
        self._later: Sequence[Item] = ()  # decoded, and waits for its turn
        self._packets = 0  # bytes of packets that the budget knows of
        self.expiry_s = 0  # how long its session outlives the connection
        self.epoch = 0  # of the connection, as the coordinator knows it
        self._source: Source | None = None  # of messages; made when there are any
        self._bequeaths = False  # the client came with a will
        self._ended = False
        self._resuming: asyncio.Task[None] | None = None
        self.attendant = self._durability.attend(self, self._cause)
        self.subscribing = Subscribing(self, self._exchange, self._cause)

    # ── asyncio tells ───────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._listener.admit(self, transport):
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)
        self._pace.begin(self._transport)
        self._go_direct(self._transport)
        self.post(Opened(assigned_client_id=f"tocsin-{secrets.token_hex(8)}", cause=self._cause))

    def data_received(self, data: bytes) -> None:
        pace, session = self._pace, self._session
        if pace.reasons or (len(data) > MUCH_BYTES and len(self._turns)):
            self._decoder.put(data)  # a transport may have had it in its hands
            self._take_turns()
            return
        if not pace.limited and session.state == "connected":
            run = self._decoder.repeated(data)
            if run is not None and run.count <= SLICE:  # the hot path: all that follows does the same
                session.heard(now_us())
                self._publish_run(run)
                return
        self._take(data)
        if self._decoder.keeps or self._later or self._packets:
            self._keep_rest()

    def _take(self, data: bytes) -> None:
        """Decode and handle the next slice."""
        session = self._session
        items: Sequence[Item]
        if session.state == "connected":
            items = self._decoder.feed_runs(data, SLICE)
            if items:
                session.heard(now_us())
        else:
            items = self._decoder.feed(data, SLICE)
        if self._pace.limited:
            self._pace.published(items)
        self._handle(items)

    def _handle(self, items: Sequence[Item]) -> None:
        session = self._session
        for index, item in enumerate(items):
            if self._transport is None:
                return
            if type(item) is PublishRun:
                if item.count > SLICE and self._parts(item):
                    first, rest = item.parted(SLICE)
                    self._publish_run(first)
                    self._later = [rest, *items[index + 1 :]]
                    return
                self._publish_run(item)
            elif type(item) is PublishPacket and item.qos == AT_MOST_ONCE and session.state == "connected":
                self._publish(item)
            elif isinstance(item, WireError):
                self.post(WireFailed(error=item, version=self._decoder.version, cause=self._cause))
            else:
                version = self._decoder.version
                assert version is not None, "a packet was decoded, so that its version is known"
                self.post(PacketArrived(packet=item, version=version, cause=self._cause))
                if type(item) in DEAR and index + 1 < len(items):
                    self._later = items[index + 1 :]  # it may have had a thousand filters
                    return

    def _parts(self, run: PublishRun) -> bool:
        """Whether the messages of a long run cost what as many packets do."""
        return not self._exchange.passes_whole(self, run)

    def work(self) -> bool:
        """It is this connection's turn: handle a slice of what waits; whether more can be handled now."""
        if self._transport is None or self._pace.blocked:
            return False
        if self._later:
            later, self._later = self._later, ()
            self._handle(later)
        else:
            self._take(b"")
        return self._is_left()

    def _is_left(self) -> bool:
        if self._transport is None:
            return False
        self._count_packets()
        if self._later or self._decoder.more:
            return not self._pace.blocked
        self._pace.wait(TURN, False)
        return False

    def _keep_rest(self) -> None:
        """Something is, or was, left of what was read: packets that wait for their turn, or a part of one."""
        if self._transport is None:
            return
        if self._later or self._decoder.more:
            self._take_turns()
        elif self._packets or self._decoder.held_bytes > FREE_BYTES:
            self._count_packets()

    def _take_turns(self) -> None:
        self._pace.wait(TURN, True)
        self._count_packets()
        if not self._pace.blocked and self._transport is not None:
            self._turns.add(self)

    def _freed(self) -> None:
        """Nothing is in the way any more of what was read."""
        if self._transport is not None:
            self._turns.add(self)

    def _count_packets(self) -> None:
        """Have the budget know what is kept of packets."""
        held = self._decoder.held_bytes
        size = held if held > FREE_BYTES else 0
        before, self._packets = self._packets, size
        if size > before:
            refusal = self._listener.packets.grow(self, size - before)
            if refusal is not None:
                self._packets = before
                self.exhausted(refusal)
        elif size < before:
            self.account.give(Kind.PACKETS, before - size)
        if size < before or not size:  # a packet was finished
            self._listener.packets.done(self)

    @property
    def kept_waiting(self) -> bool:
        """Whether it is we who do not read on."""
        return self._pace.reasons != 0

    def drop_packets(self, refusal: Refusal) -> None:
        """Somebody else needs the room of a packet that is never finished."""
        self._decoder.close()
        self.account.give(Kind.PACKETS, self._packets)
        self._packets = 0
        self.exhausted(refusal)

    def stalled(self, seconds: float) -> None:
        """The client reads nothing of what waits for it."""
        self._listener.note_exhausted(self, f"nothing that was sent was read for {seconds:.0f} s")
        problem = f"nothing that was sent to you was read for {seconds:.0f} s (limits.unread_deadline_s)"
        error = ProtocolViolation(problem, QUOTA_EXCEEDED)
        self.post(WireFailed(error=error, version=self._decoder.version, cause=self._cause))

    def unread(self, refusal: Refusal) -> None:
        """More waits for the client than may: words would wait behind that."""
        self._listener.note_exhausted(self, str(refusal))
        self.sever()

    # ── budgets ─────────────────────────────────────────────────────────────────────────────────────────────

    def exhausted(self, refusal: Refusal | StoreFull) -> None:
        """A budget of bytes, or the store, has no room for what is here already: the client has to go."""
        self._listener.note_exhausted(self, str(refusal))
        error = ProtocolViolation(str(refusal), QUOTA_EXCEEDED)
        self.post(WireFailed(error=error, version=self._decoder.version, cause=self._cause))

    def spend(self, kind: Kind, size: int) -> bool:
        """Count bytes that the client made us hold; False if it has to go for it. It is not read while it is over."""
        refusal = self.account.charge(kind, size)
        if refusal is not None:
            self.exhausted(refusal)
            return False
        if self.account.over(kind) and not self._pace.waits(NO_ROOM):
            self._pace.wait(NO_ROOM, True)
            self.account.when_room(kind, 1, partial(self._pace.wait, NO_ROOM, False))
        return True

    def _on_timer(self, name: str, cause: str) -> None:
        if self._pace.reasons:
            self._session.heard(now_us())  # who is not read cannot be heard
        self.post(TimerFired(name=name, cause=cause))

    def _publish(self, packet: PublishPacket) -> None:
        try:
            topic = self._session.check_publish(packet)
        except WireError as error:
            self.post(WireFailed(error=error, version=self.version, cause=self._cause))
            return
        if topic is None:
            return  # not the client's to publish to
        source = self._source
        if source is not None and topic in source.gate.ready and not packet.user_properties:
            source.forward(topic, packet)
        else:
            self._publisher().publish(topic, packet)

    def _publish_run(self, run: PublishRun) -> None:
        """Packets that are legal whatever is in them; whether their topic is, the session says of one for all."""
        try:
            taken = self._session.takes(run.topic, run.count)
        except WireError as error:
            self.post(WireFailed(error=error, version=self.version, cause=self._cause))
            return
        if not taken:
            return  # not the client's to publish to
        source = self._source
        if source is not None and run.topic in source.gate.ready:
            self._exchange.publish_run(self, run)
        else:
            self._publisher().publish_run(run)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._listener.unread.began(self)
        self.attendant.congested(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._listener.unread.ended(self)
        self._pace.wait(UNREAD, False)
        self.attendant.congested(False)
        self._exchange.queries.listings.recover(self)
        self.subscribing.room_made()

    def connection_lost(self, error: Exception | None) -> None:
        self._go_direct(None)
        if self._transport is not None:
            self._transport = None
            self.post(PeerClosed(cause=self._cause))
            self._end(0)
        self.account.retire()  # what waited in the transport is gone with it

    # ── the exchange tells ──────────────────────────────────────────────────────────────────────────────────

    def _lost(self) -> None:
        self._exchange.queries.listings.lost(self)

    def wait(self, waits: bool) -> None:
        """As many messages wait to go on as may: read no more, or go on."""
        self._pace.wait(NOT_CLEAR, waits)

    def when_level(self, act: Callable[[], None]) -> bool:
        return self.attendant.when_level(act)

    def hold_back(self, held: bool) -> None:
        """The broker is behind with its log: read no more from those who write to it, or go on."""
        self._pace.wait(HELD_BACK, held and self._commits)

    # ── the session ─────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendPacket(packet=SubAckPacket() as packet):
                self.subscribing.acknowledge(packet)
            case SendPacket(packet=UnsubAckPacket() as packet):
                self.subscribing.confirm(partial(self.send, packet))
            case SendPacket(packet=packet):
                self.send(packet)
            case Commit() if self.attendant.provisional:
                pass  # not now: the client sends it again, when its session is taken
            case Commit(packet=packet, topic=topic, packet_id=packet_id, qos=qos):
                self._commits = True
                self._publisher().commit(packet, topic, packet_id, qos)
                self._count_under_way()
            case Acknowledged(packet=packet):
                full = not self.attendant.room
                self.attendant.answered(packet)
                if full and self.attendant.room:
                    self.subscribing.room_made()
            case Release(packet_id=packet_id):
                self.attendant.release(packet_id, lambda: self.tell(Released(packet_id=packet_id)))
            case Subscribe():
                self.subscribing.subscribe(effect)
            case Unsubscribe(name=name):
                self.subscribing.unsubscribe(name)
            case Publish(packet=packet, topic=topic, will=False):
                self._publisher().publish(topic, packet)
            case Publish(packet=packet, topic=topic):
                self._publisher().bequeath(topic, packet)
            case DelayWill(packet=packet, delay_s=delay_s, moving=moving):
                will = self._publisher().will(packet)
                self._durability.wills.delay(self.client_id, will, delay_s, moving=moving)
            case SetTimer(name=name, delay_us=delay_us, cause=cause):
                self._timers.set(name, delay_us, cause)
            case CancelTimer(name=name):
                self._timers.cancel(name)
            case Authenticate():
                answer = self._listener.authenticate(effect, self)
                if answer is not None:  # else it comes later
                    self.post(answer)
            case Accepted():
                self._accept(effect)
            case Close(session_expiry_s=expiry_s, reason_code=code):
                self._listener.closed(self, effect)
                self._end(self.expiry_s if code == SESSION_TAKEN_OVER else expiry_s)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    def acknowledge(self, packet: SubAckPacket, refused: Refused) -> None:
        self.subscribing.withdraw(refused)
        note = DEGRADED if self._durability.provisional.cut_off else None
        self.send(self._session.amended(packet, refused, note) if refused or note else packet)

    def send(self, packet: Packet) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._answer(encode(packet, self._session.version))
            if self.answers_waiting > ANSWERS_BYTES:
                self._pace.wait(UNREAD, True)

    def tell(self, event: Event) -> None:
        """Hand an outcome to the session, if it is still there to hear it."""
        if not self._ended:
            self.post(event)
            self._count_under_way()

    def _count_under_way(self) -> None:
        self._pace.wait(UNDER_WAY, self._session.committing >= self._listener.limits.receive_max)

    def _publisher(self) -> Source:
        if self._source is None:
            self._source = Source(self, self._exchange)
        return self._source

    # ── coming in ───────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, accepted: Accepted) -> None:
        self.client_id = accepted.client_id
        self.version = accepted.version
        self.expiry_s = accepted.session_expiry_s
        self._bound(accepted.send_max_bytes, accepted.topic_alias_max)
        self._listener.accept(self, accepted)
        self.account.belong(self.user)
        self.rights_changed()
        self.epoch = self._exchange.sources.came(self.client_id)
        will = self._session.will
        refusal = None if will is None else self.account.take(Kind.SESSIONS, _weight(will))
        if refusal is not None:
            self.tell(ResumeFailed(reason_code=QUOTA_EXCEEDED, reason=str(refusal)))
            return
        if accepted.session_expiry_s or not accepted.clean_start:
            self._resuming = asyncio.get_running_loop().create_task(self._resume(accepted))
            return
        self._durability.client_came(self.client_id, self.user)
        self._begin(None, 0, accepted)
        self._welcome(accepted, present=False)

    def _welcome(self, accepted: Accepted, *, present: bool) -> None:
        """Send CONNACK; of a new session that leaves something when the backups know of it."""
        greet = partial(self._greet, accepted, present)
        self._bequeaths = self._session.will is not None
        waits = not present and (self.expiry_s > 0 or self._session.will is not None)
        self._durability.replicating.came(self.client_id, greet, waits=waits)

    def _greet(self, accepted: Accepted, present: bool) -> None:
        told = self._listener.introduce(self, accepted)
        self.tell(Resumed(present=present, user_properties=told, cause=self._cause))

    @property
    def heard_us(self) -> int:
        return self._session.spoke_us

    @property
    def user(self) -> str:
        """The name that was proven; empty if none was."""
        return self._listener.who(self).user

    @property
    def page(self) -> str | None:
        """The origin of the web page that opened the connection, once it has said CONNECT; None: no page."""
        return None if self._transport is None else self._transport.get_extra_info("origin")

    def rights(self) -> Rights:
        return self._listener.rights(self)

    def _begin(
        self,
        session: StoredSession | None,
        revision: int,
        accepted: Accepted,
        claims: tuple[tuple[str, Claim], ...] = (),
    ) -> None:
        self.prefix = self._durability.prefix()
        self.attendant.begin(
            session, revision, receive_max=accepted.receive_max, prefix=self.prefix, claims=claims
        )

    async def _resume(self, accepted: Accepted) -> None:
        """Take the session that the client has stored, whoever has it now."""
        try:
            taken = await self._durability.take(
                self.client_id,
                owner=self.user,
                clean=accepted.clean_start,
                expiry_s=accepted.session_expiry_s,
                wanted=lambda: not self._ended,
            )
        except Abandoned:
            return
        except TocsinError as error:
            self._come_in_provisionally(accepted, error)
            return
        session, revision, present = taken or (None, 0, False)
        claims: tuple[tuple[str, Claim], ...] = ()
        full: StoreFull | None = None  # there is no room for what the session needs
        try:
            if not self._ended and session is not None:
                claims = await self.subscribing.rejoin(session)
        except StoreFull as error:
            full = error
        if self._ended or full is not None:  # it went while it waited, or cannot stay
            self._begin(session, revision, accepted, claims)
            self._durability.end(self.client_id, self.attendant, accepted.session_expiry_s)
            if session is not None:
                self._durability.channels.holding.leave(session.uid, accepted.session_expiry_s)
            if full is not None:
                self.subscribing.end(accepted.session_expiry_s)
                self.tell(ResumeFailed(reason_code=QUOTA_EXCEEDED, reason=str(full)))
            return
        # What it sends comes after the CONNACK: it is queued.
        self._begin(session, revision, accepted, claims)
        self._session.restore(self.attendant.subscriptions, self.attendant.inbound_ids)
        self.subscribing.restore()
        if present:
            self._source = Source(self, self._exchange, resumed=True)
        self._welcome(accepted, present=present)
        self.subscribing.begin()

    def _come_in_provisionally(self, accepted: Accepted, error: TocsinError) -> None:
        """Without its session, if that could not be taken because the store cannot be reached."""
        try:
            attendant = self._durability.attend_provisionally(self, self._cause, accepted, error, self.user)
        except TocsinError as error:
            code = CLIENT_ID_NOT_VALID if isinstance(error, NotYours) else SERVER_UNAVAILABLE
            if isinstance(error, SessionsFull | StoreFull):
                code = QUOTA_EXCEEDED
            self.tell(ResumeFailed(reason_code=code, reason=str(error)))
            return
        self.attendant = attendant or self.attendant
        self._begin(None, 0, accepted)
        self._session.restore(self.attendant.subscriptions, ())
        self.subscribing.restore(channels=False)
        self._welcome(accepted, present=attendant is not None and not accepted.clean_start)

    @property
    def will_id(self) -> str:
        """The id of the will that the client came with, also when it is settled; empty: it came without one."""
        return will_id(self.prefix) if self._bequeaths else ""

    def bequest(self) -> Bequest | None:
        """The client's will."""
        will = self._session.will
        left = (self.prefix, self.attendant.session, self.attendant.session_epoch, self.user)
        return None if will is None else self._exchange.sources.bequest(will, self.client_id, *left)

    # ── going ───────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, expiry_s: int) -> None:
        """Nothing more is sent or heard."""
        self._timers.close()
        self._pace.end()
        self._go_direct(None)
        if not self._ended:
            self._ended = True
            self.attendant.depart()
            self.subscribing.end(expiry_s)
            if self._source is not None:
                self._source.end(expiry_s)
            if self.epoch:
                self._exchange.sources.went(self.client_id, self.epoch)
            if self.attendant.begun:
                self._durability.left(self, expiry_s, self.user)
            self._listener.release(self)
            self._later = ()
            self._decoder.close()  # a connection is a circle, and collected late
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.close()
            if transport.get_write_buffer_size():  # a peer that does not read could hold it open for ever
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)


def _weight(will: Will) -> int:
    """What a will takes in memory."""
    properties = sum(PAIR_BYTES + len(name) + len(value) for name, value in will.user_properties)
    return OVERHEAD_BYTES + len(will.topic) + len(will.payload or b"") + properties
