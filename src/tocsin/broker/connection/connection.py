"""One accepted connection: bytes in, through the decoder to the session machine; its effects carried out.

Publishes of a connected client at QoS 0 take the short way and make no event and no effect: ``Session.check_publish``,
``broker.connection.publish``, the exchange. Everything else goes through ``Session.handle``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from mqtt5 import (
    Packet,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tocsin.broker.connection.pacing import HELD_BACK, NO_ROOM, NOT_CLEAR, TURN, UNDER_WAY, UNREAD, Pace
from tocsin.broker.connection.publish import ClientPublisher
from tocsin.broker.connection.subscribe import ClientSubscriber
from tocsin.broker.connection.turns import MUCH_BYTES, SLICE
from tocsin.broker.connection.writer import ClientWriter
from tocsin.broker.streams.registry import will_id
from tocsin.broker.survival.provisional import GIVEN_UP, IN_FORCE
from tocsin.core.access.admission import SERVER_BUSY
from tocsin.core.access.rights import Rights
from tocsin.core.budgets.budget import Kind, Refusal, weight_of
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.taking import Abandoned, NotYours, SessionsFull
from tocsin.core.machine import Effect, Event, SetTimer
from tocsin.core.session.machine import Session, SessionState
from tocsin.core.session.signals import (
    Accepted,
    Acknowledged,
    AskAccount,
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
    Subscribe,
    Unsubscribe,
    WillAnnounced,
    WireFailed,
)
from tocsin.core.session.subscribe import Refused
from tocsin.core.shared.stored_group import Claim
from tocsin.core.survival.wills import WILL_BYTES
from tocsin.errors import ProtocolViolation, StoreFull, TocsinError, WireError
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Tasks
from tocsin.wire.internal.replication import Bequest
from tocsin.wire.mqtt.codec import Decoder, PublishRun, encode
from tocsin.wire.mqtt.connect import V5, Version

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
    from tocsin.broker.entrance.listener import Listener


class Connection(asyncio.Protocol):
    """One client's connection: it decodes, runs the session and carries out its effects with the help of its parts."""

    # A broker has many of them: without a dictionary each is a kilobyte smaller.
    __slots__ = (
        "_bequeaths",
        "_cause",
        "_coming_in",
        "_commits",
        "_decoder",
        "_durable",
        "_ended",
        "_exchange",
        "_later",
        "_listener",
        "_pace",
        "_packets",
        "_publisher",
        "_session",
        "_shell",
        "_transport",
        "_turns",
        "_will_bytes",
        "account",
        "came_us",
        "client_id",
        "delivery",
        "epoch",
        "expiry_s",
        "outlet",
        "post",
        "prefix",
        "queue",
        "subscriber",
        "version",
    )

    def __init__(self, listener: Listener, number: int) -> None:
        exchange, limits = listener.exchange, listener.limits
        self.account = exchange.budget.account(None)  # of the bytes that the client makes us hold
        self.outlet = ClientWriter(self, exchange, self.account, listener.outbound_max_bytes)
        self.queue = self.outlet.queue  # send frames with this tick's others
        self._exchange = exchange
        self._transport: asyncio.Transport | None = None  # None before the connection and after its end
        self.client_id = self.prefix = ""  # its name, and what its record ids begin with: once it is accepted
        self.version: Version = V5
        self._listener = listener
        self._durable = listener.durable
        self._cause = f"{listener.own.id}:c{number}"
        self._session = Session(limits)
        self._decoder = Decoder(limits.packet_max_bytes)
        self._shell = Shell(self._session, self._carry_out, self._failed, answer=self._on_timer)
        self.post = self._shell.post  # hand an event to the session
        self._commits = False  # it has published above QoS 0
        self._pace = Pace(listener.publish_bucket(), self._freed)
        self._turns = listener.turns
        self._later: Sequence[Item] = ()  # decoded, and waits for its turn
        self._packets = 0  # bytes of packets that the budget knows of
        self.expiry_s = 0  # how long its session outlives the connection
        self.came_us = 0  # when the client was accepted
        self.epoch = 0  # of the connection, as the coordinator knows it
        self._publisher: ClientPublisher | None = None  # made when there is something to publish
        self._bequeaths = False  # the client came with a will
        self._will_bytes = 0  # … which the budget knows of
        self._ended = False
        # Not the shell's: a session that was taken is given back also when the connection is over.
        self._coming_in: Tasks | None = None
        self.delivery = self._durable.deliveries.attend(self, self._cause)
        self.subscriber = ClientSubscriber(self, exchange, self._durable, self._cause)

    # ── asyncio tells ───────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._listener.admit(self, transport):
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)
        self._pace.begin(self._transport)
        self.outlet.begin(self._transport)
        self.post(Opened(assigned_client_id=self._listener.draw_id(), cause=self._cause))

    def data_received(self, data: bytes) -> None:
        pace, session = self._pace, self._session
        if pace.reasons or (len(data) > MUCH_BYTES and len(self._turns)):
            self._decoder.put(data)  # a transport may have had it in its hands
            self._take_turns()
            return
        if not pace.limited and session.state is SessionState.CONNECTED:
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
        if session.state is SessionState.CONNECTED:
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
            elif (
                type(item) is PublishPacket
                and item.qos == AT_MOST_ONCE
                and session.state is SessionState.CONNECTED
            ):
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

    def _on_timer(self, fired: Event) -> None:
        if self._pace.reasons:
            self._session.heard(now_us())  # a client that is not read cannot be heard
        self.post(fired)

    def _failed(self, error: BaseException) -> None:
        """The session or one of its effects failed: the client has to come back."""
        if self._transport is not None:
            self._transport.abort()

    def _publish(self, packet: PublishPacket) -> None:
        try:
            topic = self._session.check_publish(packet)
        except WireError as error:
            self.post(WireFailed(error=error, version=self.version, cause=self._cause))
            return
        if topic is None:
            return  # not the client's to publish to
        publisher = self._publisher
        if publisher is None:
            publisher = self._publishing()
        publisher.publish(topic, packet)

    def _publish_run(self, run: PublishRun) -> None:
        """Packets that are legal whatever is in them; whether their topic is, the session says of one for all."""
        try:
            taken = self._session.takes(run.topic, run.count)
        except WireError as error:
            self.post(WireFailed(error=error, version=self.version, cause=self._cause))
            return
        if not taken:
            return  # not the client's to publish to
        publisher = self._publisher
        if publisher is None:
            publisher = self._publishing()
        publisher.publish_run(run)

    def pause_writing(self) -> None:
        self.outlet.pause()
        self._listener.unread.began(self)
        self.delivery.congested(True)

    def resume_writing(self) -> None:
        self.outlet.resume()
        self._listener.unread.ended(self)
        self._pace.wait(UNREAD, False)
        self.delivery.congested(False)
        self._exchange.queries.recover(self)
        self.subscriber.room_made()

    def connection_lost(self, error: Exception | None) -> None:
        self.outlet.end()
        if self._transport is not None:
            self._transport = None
            self.post(PeerClosed(cause=self._cause))
            self._end(0)
        self.account.retire()  # what waited in the transport is gone with it
        if not self._coming_in:
            self._let_go()

    def _let_go(self) -> None:
        """Nothing holds the connection any more but its own parts: undo these circles, so that it is freed now. Of a
        crowd that comes and goes a fifth of the broker's time would be the garbage collector's."""
        self._shell.let_go()
        self._publisher = self._coming_in = None
        del self.subscriber

    # ── the exchange tells ──────────────────────────────────────────────────────────────────────────────────

    def missed(self) -> None:
        """Some of what was to be delivered was dropped."""
        self._exchange.queries.lost(self)

    @property
    def send_max_bytes(self) -> int:
        return self.outlet.send_max_bytes

    @property
    def takes_aliases(self) -> bool:
        return self.outlet.takes_aliases

    @property
    def full(self) -> bool:
        return self.outlet.full

    def count_outbound(self) -> int:
        """Have the budget know how much waits for the client; how much of it the kernel has taken."""
        return self.outlet.count()

    def sever(self) -> None:
        """Break the connection: the client cannot be served as it was promised, and knows that best in this way."""
        self.outlet.sever()

    def wait(self, waits: bool) -> None:
        """As many messages wait to go on as may: read no more, or go on."""
        self._pace.wait(NOT_CLEAR, waits)

    def when_level(self, act: Callable[[], None]) -> bool:
        return self.delivery.when_level(act)

    def hold_back(self, held: bool) -> None:
        """The broker is behind with its log: read no more from those who write to it, or go on."""
        self._pace.wait(HELD_BACK, held and self._commits)

    # ── the session ─────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        act = _ACTS.get(type(effect))
        if act is None:
            self._shell.carry_out(effect)
        else:
            act(self, effect)

    def _on_set_timer(self, effect: SetTimer) -> None:
        self._shell.set_timer(effect.name, effect.delay_us, effect.cause)

    def _on_send(self, effect: SendPacket) -> None:
        packet = effect.packet
        if isinstance(packet, SubAckPacket):
            self.subscriber.acknowledge(packet)
        elif isinstance(packet, UnsubAckPacket):
            self.subscriber.confirm(partial(self._confirm, packet))
        else:
            self.send(packet)

    def _on_commit(self, effect: Commit) -> None:
        if self.delivery.provisional:
            return  # not now: the client sends it again, when its session is taken
        self._commits = True
        self._publishing().commit(effect.packet, effect.topic, effect.packet_id, effect.qos)
        self._count_under_way()

    def _on_acknowledged(self, effect: Acknowledged) -> None:
        full = not self.delivery.room
        self.delivery.answered(effect.packet)
        if full and self.delivery.room:
            self.subscriber.room_made()

    def _on_release(self, effect: Release) -> None:
        released = Released(packet_id=effect.packet_id)
        self.delivery.release(effect.packet_id, partial(self.tell, released))

    def _on_subscribe(self, effect: Subscribe) -> None:
        self.subscriber.subscribe(effect)

    def _on_unsubscribe(self, effect: Unsubscribe) -> None:
        self.subscriber.unsubscribe(effect.filter)

    def _on_publish(self, effect: Publish) -> None:
        if effect.will:
            self._hand_on_will()
            self._publishing().bequeath(effect.topic, effect.packet)
        else:
            self._publishing().publish(effect.topic, effect.packet)

    def _hand_on_will(self) -> None:
        """Give back what the will takes: from now on it counts by itself, and finds the room that it had here."""
        size, self._will_bytes = self._will_bytes, 0
        self.account.give(Kind.SESSIONS, size)

    def _on_delay_will(self, effect: DelayWill) -> None:
        self._hand_on_will()
        will = self._publishing().will(effect.packet)
        self._durable.wills.delay(self.client_id, will, effect.delay_s, moving=effect.moving)

    def _on_authenticate(self, effect: Authenticate) -> None:
        answer = self._listener.authenticate(effect, self)
        if answer is not None:  # else it comes later
            self.post(answer)

    def _on_ask_account(self, effect: AskAccount) -> None:
        self._listener.ask_account(self, effect.packet)

    def _on_close(self, effect: Close) -> None:
        self._listener.closed(self, effect)
        if effect.fault == "none" and not effect.reason_code:  # it has taken its leave
            self._exchange.requests.takes_leave(self)
        self._end(self.expiry_s if effect.reason_code == SESSION_TAKEN_OVER else effect.session_expiry_s)

    def acknowledge(self, packet: SubAckPacket, refused: Refused) -> None:
        note = IN_FORCE if self._degraded else None
        self.send(self._session.amended(packet, refused, note) if refused or note else packet)

    def _confirm(self, packet: UnsubAckPacket) -> None:
        self.send(self._session.noted(packet, GIVEN_UP) if self._degraded else packet)

    @property
    def _degraded(self) -> bool:
        """Whether what the client is told of its subscriptions is not stored."""
        return self._durable.provisional.cut_off or self.delivery.provisional

    def send(self, packet: Packet) -> None:
        if self._transport is not None and not self.outlet.answer(encode(packet, self._session.version)):
            self._pace.wait(UNREAD, True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that ends with the connection."""
        return self._shell.spawn(work)

    def tell(self, event: Event) -> None:
        """Hand an outcome to the session, if it is still there to hear it."""
        if not self._ended:
            self.post(event)
            self._count_under_way()

    def _count_under_way(self) -> None:
        full = self._session.committing >= self._listener.limits.receive_max
        if full or self._pace.reasons:
            self._pace.wait(UNDER_WAY, full)

    def _publishing(self) -> ClientPublisher:
        if self._publisher is None:
            self._publisher = ClientPublisher(self, self._exchange, self._durable)
        return self._publisher

    # ── coming in ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _gone(self) -> bool:
        """Whether the connection is over, or the loop is about to say so: the peer's end was read, or it was cut."""
        return self._ended or self._transport is None or self._transport.is_closing()

    def _on_accepted(self, accepted: Accepted) -> None:
        if self._gone:  # while its log-in was checked: nobody is taken over for it, and nobody hears of it
            self.post(PeerClosed(cause=self._cause))
            return
        self.client_id = accepted.client_id
        self.came_us = now_us()
        self.version = accepted.version
        self.expiry_s = accepted.session_expiry_s
        self.outlet.bound(accepted.send_max_bytes, accepted.topic_alias_max)
        user = self.user
        self.account.belong(user)
        if accepted.watches:
            told = self._listener.watch(self, accepted)
            if isinstance(told, str):
                self.tell(ResumeFailed(reason_code=SERVER_BUSY, reason=told))
            else:
                self.tell(Resumed(present=False, user_properties=told, cause=self._cause))
            return
        if accepted.accounts:
            problem = self._listener.attend(self, accepted)
            if problem:
                self.tell(ResumeFailed(reason_code=SERVER_BUSY, reason=problem))
            else:
                self.tell(Resumed(present=False, cause=self._cause))
            return
        self._listener.accept(self, accepted)
        self.rights_changed()
        self.epoch = self._exchange.registry.came(self.client_id)
        will = self._session.will
        size = 0 if will is None else WILL_BYTES + weight_of(will)
        refusal = self.account.take(Kind.SESSIONS, size) if size else None
        if refusal is None:
            self._will_bytes = size
        else:
            self.tell(ResumeFailed(reason_code=QUOTA_EXCEEDED, reason=str(refusal)))
            return
        if accepted.session_expiry_s or not accepted.clean_start:
            self._coming_in = Tasks("a client that comes in", self._failed)
            self._coming_in.spawn(self._resume(accepted))
            return
        self._durable.session_entry.client_came(self.client_id, user)
        self._begin(None, 0, accepted)
        self._welcome(accepted, present=False)

    def _welcome(self, accepted: Accepted, *, present: bool) -> None:
        """Send CONNACK; of a new session that leaves something when the backups know of it."""
        greet = partial(self._greet, accepted, present)
        self._bequeaths = self._session.will is not None
        waits = not present and (self.expiry_s > 0 or self._session.will is not None)
        self._durable.replication.came(self.client_id, greet, waits=waits)

    def _greet(self, accepted: Accepted, present: bool) -> None:
        told = self._listener.introduce(self, accepted)
        self.tell(Resumed(present=present, user_properties=told, cause=self._cause))

    @property
    def heard_us(self) -> int:
        return self._session.spoke_us

    @property
    def user(self) -> str:
        """The name that was proven; empty if none was."""
        return self._listener.register.who(self).user

    @property
    def page(self) -> str | None:
        """The origin of the web page that opened the connection, once it has said CONNECT; None: no page."""
        return None if self._transport is None else self._transport.get_extra_info("origin")

    # ── rights ──────────────────────────────────────────────────────────────────────────────────────────────

    def rights(self) -> Rights:
        """The client's current rights: rules change, so they are looked up each time."""
        return self._listener.register.rights(self)

    def rights_changed(self) -> None:
        """The client's rights have changed."""
        if self.rights().open:
            self._session.permit()
        else:
            self._session.permit(publish=self._may_publish, subscribe=self.may_subscribe)

    def _may_publish(self, topic: str) -> bool:
        return self.rights().may_publish(topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        return self.rights().may_subscribe(topic_filter)

    def may_receive(self, topic: str) -> bool:
        return self.rights().may_receive(topic)

    # ── its session ─────────────────────────────────────────────────────────────────────────────────────────

    def _begin(
        self,
        session: StoredSession | None,
        revision: int,
        accepted: Accepted,
        claims: tuple[tuple[str, Claim], ...] = (),
    ) -> None:
        self.prefix = self._durable.prefixes.next()
        self.delivery.begin(
            session, revision, receive_max=accepted.receive_max, prefix=self.prefix, claims=claims
        )

    async def _resume(self, accepted: Accepted) -> None:
        """Take the client's stored session, whichever broker has it now."""
        try:
            taken = await self._durable.session_entry.take(
                self.client_id,
                owner=self.user,
                clean=accepted.clean_start,
                expiry_s=accepted.session_expiry_s,
                wanted=lambda: not self._gone,
            )
        except Abandoned:
            return
        except TocsinError as error:
            if not self._ended:
                self._come_in_provisionally(accepted, error)
            return
        session, revision, present = taken or (None, 0, False)
        if session is not None and self._ended and self._listener.register.has(self.client_id):
            self._durable.departures.hand_on(self.client_id, session, accepted.session_expiry_s)
            return
        claims: tuple[tuple[str, Claim], ...] = ()
        full: StoreFull | None = None  # there is no room for what the session needs
        try:
            if not self._ended and session is not None:
                claims = await self.subscriber.rejoin(session)
        except StoreFull as error:
            full = error
        if self._ended or full is not None:  # it went while it waited, or cannot stay
            self._begin(session, revision, accepted, claims)
            self._durable.departures.end(self.client_id, self.delivery, accepted.session_expiry_s)
            if session is not None:
                self._durable.channels.backend.leave(session.uid, accepted.session_expiry_s)
            if full is not None:
                self.subscriber.end(accepted.session_expiry_s)
                self.tell(ResumeFailed(reason_code=QUOTA_EXCEEDED, reason=str(full)))
            return
        # Its packets come after the CONNACK: they are queued.
        self._begin(session, revision, accepted, claims)
        self._restore(self.delivery.inbound_ids)
        self.subscriber.restore()
        if present:
            self._publisher = ClientPublisher(self, self._exchange, self._durable, resumed=True)
            if self.delivery.streams:
                self._exchange.requests.resumed(self)
        self._welcome(accepted, present=present)
        self.subscriber.begin()

    def _restore(self, inbound: Iterable[int]) -> None:
        """Have the session know what the stored one has."""
        held = self.delivery.subscriptions
        requests = {name: each.request for name, each in held.items() if each.request}
        self._session.restore(held, inbound, requests)

    def _come_in_provisionally(self, accepted: Accepted, error: TocsinError) -> None:
        """Without its session, if that could not be taken because the store cannot be reached."""
        try:
            delivery = self._durable.deliveries.attend_provisionally(
                self, self._cause, accepted, error, self.user
            )
        except TocsinError as error:
            code = CLIENT_ID_NOT_VALID if isinstance(error, NotYours) else SERVER_UNAVAILABLE
            if isinstance(error, SessionsFull | StoreFull):
                code = QUOTA_EXCEEDED
            self.tell(ResumeFailed(reason_code=code, reason=str(error)))
            return
        self.delivery = delivery or self.delivery
        self._begin(None, 0, accepted)
        self._restore(())
        self.subscriber.restore(channels=False)
        self._welcome(accepted, present=delivery is not None and not accepted.clean_start)

    @property
    def will_id(self) -> str:
        """The id of the will that the client came with, also when it is settled; empty: it came without one."""
        return will_id(self.prefix) if self._bequeaths else ""

    def bequest(self) -> Bequest | None:
        """The client's will."""
        will = self._session.will
        left = (self.prefix, self.delivery.session, self.delivery.session_epoch, self.user)
        return None if will is None else self._exchange.registry.bequest(will, self.client_id, *left)

    def will_announced(self) -> None:
        """The log has the client's will already, though the client lives: a backup took this broker for lost."""
        self.tell(WillAnnounced())

    # ── going ───────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, expiry_s: int) -> None:
        """Nothing more is sent or heard."""
        self._shell.close()
        self._pace.end()
        self.outlet.end()
        if not self._ended:
            self._ended = True
            self.delivery.depart()
            self.subscriber.end(expiry_s)
            if self._publisher is not None:
                self._publisher.end(expiry_s)
            if self.epoch:
                self._exchange.registry.went(self.client_id, self.epoch)
            if self.delivery.begun:
                self._durable.departures.left(self, expiry_s, self.user)
            self._listener.release(self)
            self._later = ()
            self._decoder.close()  # the transport may hold the connection for a while
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.close()
            if transport.get_write_buffer_size():  # a peer that does not read could hold it open for ever
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)


# How each effect of the session is carried out; the shell knows the others.
_ACTS: Final[dict[type[Effect], Callable[[Connection, Any], None]]] = {
    SendPacket: Connection._on_send,
    SetTimer: Connection._on_set_timer,
    Commit: Connection._on_commit,
    Acknowledged: Connection._on_acknowledged,
    Release: Connection._on_release,
    Subscribe: Connection._on_subscribe,
    Unsubscribe: Connection._on_unsubscribe,
    Publish: Connection._on_publish,
    DelayWill: Connection._on_delay_will,
    Authenticate: Connection._on_authenticate,
    Accepted: Connection._on_accepted,
    AskAccount: Connection._on_ask_account,
    Close: Connection._on_close,
}
