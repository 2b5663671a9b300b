"""One accepted connection: bytes in, through the decoder to the session machine; its effects carried out.

Publishes of a connected client at QoS 0 take the short way (``Session.check_publish``, then the exchange) and make no
event and no effect; everything else goes through ``Session.handle``.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

import msgspec
from mqtt5 import (
    Packet,
    PubCompPacket,
    PubCompReasonCode,
    PublishPacket,
    QoS,
    RetainHandling,
    SubAckPacket,
    UnsubAckPacket,
)

from tocsin.broker.aliases import NONE, Aliases
from tocsin.broker.fanout import Group
from tocsin.broker.links import NO_MAXIMUM, PACKET_MARGIN_BYTES
from tocsin.broker.pace import HELD_BACK, UNDER_WAY, Pace
from tocsin.broker.sessions import NotYours
from tocsin.core.forwarding import Subscription
from tocsin.core.grant import Grant
from tocsin.core.machine import CancelTimer, Effect, Event, SetTimer, TimerFired
from tocsin.core.session import (
    Accepted,
    Acknowledged,
    Authenticate,
    Close,
    Commit,
    CommitFailed,
    Committed,
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
from tocsin.core.stored_session import StoredSession
from tocsin.errors import StoreFull, TocsinError, WireError
from tocsin.model.publication import Publication
from tocsin.model.subjects import fits
from tocsin.runtime.pump import Pump, now_us
from tocsin.runtime.timers import Timers
from tocsin.wire.codec import V5, Decoder, PublishRun, Version, encode

LINGER_S: Final = 5.0  # for a closed connection's last bytes
AT_MOST_ONCE: Final = QoS.AT_MOST_ONCE
UNSPECIFIED: Final = 0x80
CLIENT_ID_NOT_VALID: Final = 0x85
SERVER_UNAVAILABLE: Final = 0x88
SESSION_TAKEN_OVER: Final = 0x8E  # the session is another connection's to keep or to forget
TOPIC_NAME_INVALID: Final = 0x90
QUOTA_EXCEEDED: Final = 0x97

if TYPE_CHECKING:
    from tocsin.broker.listener import Listener


class Connection(asyncio.Protocol):
    """A client, or another broker's link to us."""

    def __init__(self, listener: Listener, number: int) -> None:
        limits = listener.limits
        self.client_id = ""  # empty until accepted
        self.version: Version = V5
        self.send_max_bytes = NO_MAXIMUM
        self.group = Group(self)
        self._listener = listener
        self._exchange = listener.exchange
        self._durability = listener.exchange.durability
        self._cause = f"{listener.own.id}:c{number}"
        self._session = Session(limits)
        self._decoder = Decoder(limits.packet_max_bytes)
        self.post = Pump(self._session, self._carry_out).post  # hand an event to the session
        self._timers = Timers(lambda name, cause: self.post(TimerFired(name=name, cause=cause)))
        self._transport: asyncio.Transport | None = None  # None before the connection and after its end
        self._link_cluster: str | None = None  # the peer's, if this is a link
        self._aliases = NONE  # topics that the client takes by number
        self._congested = False  # the kernel takes no more for now
        self._commits = False  # it has published above QoS 0
        self._pace = Pace(listener.publish_bucket())
        self._expiry_s = 0  # how long its session outlives the connection
        self._ended = False
        self._resuming: asyncio.Task[None] | None = None
        self.attendant = self._durability.attend(self, self._cause)

    # ── asyncio tells ───────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._listener.admit(self, self._transport):
            self._transport.abort()
            return
        self._pace.begin(self._transport)
        self.post(Opened(assigned_client_id=f"tocsin-{secrets.token_hex(8)}", cause=self._cause))

    def data_received(self, data: bytes) -> None:
        session = self._session
        items: Sequence[Packet | PublishRun | WireError]
        if session.state == "connected":
            items = self._decoder.feed_runs(data)
            if items:
                session.heard(now_us())
        else:
            items = self._decoder.feed(data)
        if self._pace.limited and self._link_cluster is None:
            self._pace.published(sum(map(_messages, items)))
        for item in items:
            if self._transport is None:
                return
            if type(item) is PublishRun:
                self._publish_run(item)
            elif type(item) is PublishPacket and item.qos == AT_MOST_ONCE and session.state == "connected":
                self._publish(item)
            elif isinstance(item, WireError):
                self.post(WireFailed(error=item, version=self._decoder.version, cause=self._cause))
            else:
                version = self._decoder.version
                assert version is not None, "a packet was decoded, so that its version is known"
                self.post(PacketArrived(packet=item, version=version, cause=self._cause))

    def _publish(self, packet: PublishPacket) -> None:
        try:
            topic = self._session.check_publish(packet)
        except WireError as error:
            self.post(WireFailed(error=error, version=self.version, cause=self._cause))
            return
        if topic is None:
            return  # not the client's to publish to
        if self._link_cluster is None:
            self._forward(topic, packet)
        else:
            self._exchange.relay(self._link_cluster, topic, packet)

    def _publish_run(self, run: PublishRun) -> None:
        """Packets that are legal whatever is in them; whether their topic is, the session says of one for all."""
        try:
            topic = self._session.check_publish(PublishPacket(run.topic, b""))
        except WireError as error:
            self.post(WireFailed(error=error, version=self.version, cause=self._cause))
            return
        if topic is None:
            return  # not the client's to publish to
        if self._link_cluster is None:
            self._exchange.publish_run(self, run)
        else:
            self._exchange.relay_run(self._link_cluster, run)

    def _forward(self, topic: str, packet: PublishPacket) -> None:
        if packet.topic_alias is not None:  # it may have come without its topic
            packet = Publication.of(packet, topic, self.client_id).packet(retain=packet.retain)
        self._exchange.publish(self, topic, packet)
        if packet.retain:
            self._durability.retain(Publication.of(packet, topic, self.client_id))

    def pause_writing(self) -> None:
        self._congested = True
        self.attendant.congested(True)

    def resume_writing(self) -> None:
        self._congested = False
        self.attendant.congested(False)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self.post(PeerClosed(cause=self._cause))
            self._end(0)

    # ── the exchange tells ──────────────────────────────────────────────────────────────────────────────────

    def deliver(self, data: bytes, messages: int) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._congested and transport.get_write_buffer_size() > self._listener.outbound_max_bytes:
            self._exchange.counts.dropped += messages
        else:
            transport.write(data)

    def queue(self, frame: bytes) -> None:
        self._exchange.queue(self.group, self.aliased(frame))

    @property
    def takes_aliases(self) -> bool:
        return bool(self._aliases)

    def aliased(self, frame: bytes) -> bytes:
        # What is congested may be dropped, and with it the meaning of a number.
        return frame if self._congested else self._aliases.of(frame)

    def hold_back(self, held: bool) -> None:
        """The broker is behind with its log: read no more from those who write to it, or go on."""
        self._pace.wait(HELD_BACK, held and self._commits)

    # ── the session ─────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendPacket(packet=SubAckPacket() | UnsubAckPacket() as packet):
                self.attendant.when_durable(lambda: self._send(packet))
            case SendPacket(packet=PubCompPacket(packet_id=packet_id) as packet) if _is_unknown(packet):
                # The session does not know the id, but what is stored may: it must not outlive this answer.
                self.attendant.release(packet_id, lambda: self._send(packet))
            case SendPacket(packet=packet):
                self._send(packet)
            case Commit(packet=packet, topic=topic, packet_id=packet_id, qos=qos):
                self._commit(packet, topic, packet_id, qos)
            case Acknowledged(packet=packet):
                self.attendant.answered(packet)
            case Release(packet_id=packet_id):
                self.attendant.release(packet_id, lambda: self._tell(Released(packet_id=packet_id)))
            case Subscribe():
                self._subscribe(effect)
            case Unsubscribe(name=name):
                self._exchange.unsubscribe(self, name)
                self.attendant.unsubscribed(name)
            case Publish(packet=packet, topic=topic):
                self._publish_now(topic, packet)
            case DelayWill(packet=packet, delay_s=delay_s):
                self._durability.delay_will(
                    self.client_id, Publication.of(packet, packet.topic, self.client_id), delay_s
                )
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
                self._end(self._expiry_s if code == SESSION_TAKEN_OVER else expiry_s)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    def _send(self, packet: Packet) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(packet, self._session.version))

    def _tell(self, event: Event) -> None:
        """Hand an outcome to the session, if it is still there to hear it."""
        if not self._ended:
            self.post(event)
            self._count_under_way()

    def _count_under_way(self) -> None:
        self._pace.wait(UNDER_WAY, self._session.committing >= self._listener.limits.receive_max)

    def _commit(self, packet: PublishPacket, topic: str, packet_id: int, qos: int) -> None:
        """Make a QoS 1 or 2 message durable, and tell the session."""
        self._commits = True
        self._exchange.counts.committed += 1
        if not fits(topic):
            reason = "the topic is too long to be stored"
            self._tell(CommitFailed(packet_id=packet_id, reason_code=TOPIC_NAME_INVALID, reason=reason))
            return
        publication = Publication.of(packet, topic, self.client_id)

        def stored(error: TocsinError | None) -> None:
            if error is None and publication.retain:
                self._durability.retain(publication, done)
            else:
                done(error)

        def done(error: TocsinError | None) -> None:
            if error is None:
                if qos == 2:
                    self.attendant.kept(packet_id)
                self._tell(Committed(packet_id=packet_id))
            else:
                code = QUOTA_EXCEEDED if isinstance(error, StoreFull) else UNSPECIFIED
                failed = CommitFailed(packet_id=packet_id, reason_code=code, reason=str(error))
                if qos == 2:  # its id must not stand for the next message on this packet id
                    self.attendant.release(packet_id, lambda: self._tell(failed))
                else:
                    self._tell(failed)

        record_id = self.attendant.record_id(packet_id, qos)
        journal = self._durability.journal
        if qos == 2:  # its repeat must be known as one, so that its id is stored before it is used
            self.attendant.when_durable(lambda: journal.commit(publication, record_id, stored))
        else:
            journal.commit(publication, record_id, stored)
        self._count_under_way()

    def _publish_now(self, topic: str, packet: PublishPacket) -> None:
        """A message that waits for no acknowledgement: QoS 0 that came early, or a will of any QoS."""
        if packet.qos == AT_MOST_ONCE:
            self._forward(topic, packet)
        else:
            self._durability.publish(Publication.of(packet, topic, self.client_id))

    # ── coming in ───────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, accepted: Accepted) -> None:
        self.client_id = accepted.client_id
        self.version = accepted.version
        self._expiry_s = accepted.session_expiry_s
        if accepted.topic_alias_max:
            self._aliases = Aliases(accepted.topic_alias_max)
        if accepted.send_max_bytes is not None:
            self.send_max_bytes = accepted.send_max_bytes
        self._link_cluster = self._listener.accept(self, accepted)
        if self._link_cluster is not None:
            self._session.become_link()
            self._decoder.max_packet_bytes += PACKET_MARGIN_BYTES
        else:
            self.rights_changed()
        if self._link_cluster is None and (accepted.session_expiry_s or not accepted.clean_start):
            self._resuming = asyncio.get_running_loop().create_task(self._resume(accepted))
            return
        if self._link_cluster is None:
            self._durability.client_came(self.client_id, self._listener.who(self).user)
        self._begin(None, 0, accepted)
        self.post(Resumed(present=False, cause=self._cause))

    def rights_changed(self) -> None:
        """What the client may do is no longer what it was."""
        if self._listener.rights(self).open:
            self._session.permit()
        else:
            self._session.permit(publish=self._may_publish, subscribe=self._may_subscribe)

    def _may_publish(self, topic: str) -> bool:
        return self._listener.rights(self).may_publish(topic)

    def _may_subscribe(self, topic_filter: str) -> bool:
        return self._listener.rights(self).may_subscribe(topic_filter)

    def may_receive(self, topic: str) -> bool:
        return self._listener.rights(self).may_receive(topic)

    def _begin(self, session: StoredSession | None, revision: int, accepted: Accepted) -> None:
        prefix = self._durability.prefix()
        self.attendant.begin(session, revision, receive_max=accepted.receive_max, prefix=prefix)

    async def _resume(self, accepted: Accepted) -> None:
        """Take the session that the client has stored, whoever has it now."""
        try:
            taken = await self._durability.take(
                self.client_id,
                owner=self._listener.who(self).user,
                clean=accepted.clean_start,
                expiry_s=accepted.session_expiry_s,
            )
        except NotYours as error:
            self._tell(ResumeFailed(reason_code=CLIENT_ID_NOT_VALID, reason=str(error)))
            return
        except TocsinError as error:
            self._tell(ResumeFailed(reason_code=SERVER_UNAVAILABLE, reason=str(error)))
            return
        session, revision, present = taken or (None, 0, False)
        if self._ended:  # it went while it waited
            self._begin(session, revision, accepted)
            self._durability.end(self.client_id, self.attendant, accepted.session_expiry_s)
            return
        self._begin(session, revision, accepted)  # what it sends comes after the CONNACK: it is queued
        subscriptions = self.attendant.subscriptions
        self._session.restore(subscriptions, self.attendant.inbound_ids)
        for name, subscription in subscriptions.items():
            self._exchange.subscribe(self, name, subscription)
        self.post(Resumed(present=present, cause=self._cause))

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, asked: Subscribe) -> None:
        subscription = Subscription(
            asked.no_local,
            asked.subscription_id,
            int(asked.qos),
            asked.retain_as_published,
            self._durability.journal.tail,
        )
        before = self.attendant.subscriptions.get(asked.name)
        if before is not None:  # its options change; it is not a new one
            subscription = msgspec.structs.replace(subscription, since=before.since)
        self._exchange.subscribe(self, asked.name, subscription)
        self.attendant.subscribed(asked.name, subscription)
        wanted = asked.retain_handling == RetainHandling.SEND_ALWAYS or (
            asked.retain_handling == RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS and not asked.existed
        )
        if wanted and asked.group is None:  # a group gets no retained messages (MQTT 5, section 3.3.1.3)
            self.attendant.when_durable(lambda: self._replay(asked.pattern, subscription))

    def _replay(self, topic_filter: str, subscription: Subscription) -> None:
        identifiers = () if subscription.identifier is None else (subscription.identifier,)
        self.attendant.replay(
            (kept, Grant(min(subscription.qos, kept.publication.qos), identifiers, True))
            for kept in self._durability.retained.matching(topic_filter)
            if self.may_receive(kept.publication.topic)
        )

    # ── going ───────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, expiry_s: int) -> None:
        """Nothing more is sent or heard."""
        self._timers.close()
        self._pace.end()
        if not self._ended:
            self._ended = True
            self.attendant.depart()
            self._listener.release(self)
            if self.attendant.begun:
                self._durability.end(self.client_id, self.attendant, expiry_s)
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.close()
            if transport.get_write_buffer_size():  # a peer that does not read could hold it open for ever
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)


def _is_unknown(packet: PubCompPacket) -> bool:
    return packet.reason_code == PubCompReasonCode.PACKET_ID_NOT_FOUND


def _messages(item: Packet | PublishRun | WireError) -> int:
    return item.count if isinstance(item, PublishRun) else isinstance(item, PublishPacket)
