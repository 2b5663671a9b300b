"""One client's connection, server side, as a pure machine for MQTT 5 and 3.1.1.

    session = Session(limits)
    session.handle(Opened(assigned_client_id="tocsin-…"), now_us)         first; -> [SetTimer("connect-deadline")]
    session.handle(PacketArrived(packet=…, version=decoder.version), now) every packet but hot publishes
    session.handle(WireFailed(error=…, version=decoder.version), now)     the WireError that feed() ended with
    session.handle(TimerFired(name=…), now)                               timers set by SetTimer
    session.handle(PeerClosed(), now) / TakenOver() / ServerStopping() / ServerMoved(server_reference=…)
    Authenticate effect -> shell answers (at once or later) with Authenticated() or Rejected(reason_code=…)
                           while session.state == "authenticating" pause reading

Hot path, in state "connected" only (no effects, no events):
    session.heard(now_us)             once per chunk that held at least one packet (keep-alive)
    topic = session.check_publish(packet)   the topic to forward on; raises WireError -> handle(WireFailed(...))

States: new -> connecting -> authenticating -> connected -> closed.   session.version: 4 or 5, to encode with.

Packets that a client sends behind its CONNECT without waiting for the answer are kept while it is authenticated (at
most ``early_max_bytes``) and handled, in order, right after the CONNACK.

Invariants
- ``Close`` is always the last effect; after it every event gives ``[]``.
- At most one CONNACK is sent, and it is the first packet; ``Accepted`` comes at most once, just before a CONNACK
  that says success.
- Nothing that a peer does raises: its mistakes are answered as its version knows how, and end in ``Close``.
  ``IllegalEvent`` means that the shell is wrong.
- The will is published, once, whenever a connected client goes in another way than by a DISCONNECT that says
  that all is well. As a session ends with its connection, a will delay has nothing left to wait for: it counts as 0.
- No packet is sent that is larger than the client takes.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec
from mqtt5 import (
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PubCompPacket,
    PubCompReasonCode,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    PubRelReasonCode,
    QoS,
    SubAckPacket,
    SubscribePacket,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tocsin.core import handshake
from tocsin.core.handshake import REASON_MAX_CHARS, ConnectRefused
from tocsin.core.handshake import SessionLimits as SessionLimits
from tocsin.core.machine import Effect, Event, Handler, SetTimer, TableMachine, TimerFired
from tocsin.core.session_signals import Accepted as Accepted
from tocsin.core.session_signals import Authenticate as Authenticate
from tocsin.core.session_signals import Authenticated as Authenticated
from tocsin.core.session_signals import Close as Close
from tocsin.core.session_signals import Opened as Opened
from tocsin.core.session_signals import PacketArrived as PacketArrived
from tocsin.core.session_signals import PeerClosed as PeerClosed
from tocsin.core.session_signals import Publish as Publish
from tocsin.core.session_signals import Rejected as Rejected
from tocsin.core.session_signals import SendPacket as SendPacket
from tocsin.core.session_signals import ServerMoved as ServerMoved
from tocsin.core.session_signals import ServerStopping as ServerStopping
from tocsin.core.session_signals import Subscribe as Subscribe
from tocsin.core.session_signals import TakenOver as TakenOver
from tocsin.core.session_signals import Unsubscribe as Unsubscribe
from tocsin.core.session_signals import WireFailed as WireFailed
from tocsin.core.subscriptions import Subscriptions
from tocsin.errors import ProtocolViolation, UnsupportedVersion, WireError
from tocsin.wire.codec import V5, Version, encode
from tocsin.wire.topics import TopicInvalid, topic_size

CONNECT_DEADLINE = "connect-deadline"
KEEP_ALIVE = "keep-alive"

_QOS_0: Final = QoS.AT_MOST_ONCE
_PATIENCE_US = 1_500_000  # of silence for each second of keep-alive: one and a half times (MQTT 5, 3.1.2.10)
_EARLY_OVERHEAD_BYTES = 64  # what a kept packet costs beside its contents, about
# Whose fault a rejection is, where it is not the peer's: unavailable and busy, use another server and moved.
_FAULT_OF_REJECTION: Final = {0x88: "ours", 0x89: "ours", 0x9C: "none", 0x9D: "none"}


class Session(TableMachine):
    """One connection, from ``Opened`` to ``Close``."""

    def __init__(self, limits: SessionLimits) -> None:
        self.version: Version = V5
        self.client_id = ""  # empty until a CONNECT was understood
        self._limits = limits
        self._assigned_client_id = ""
        self._connect: ConnectPacket | None = None  # while authenticating only
        self._terms: handshake.Terms | None = None  # while authenticating only
        self._early: list[Packet] = []  # what came while authenticating
        self._early_bytes = 0
        self._will: Will | None = None  # while connected only
        self._send_max_bytes: int | None = None
        self._explains = False  # the client wants reason strings
        self._outlives = False  # the client asked for a session that outlives its connection
        self._subscriptions = Subscriptions(limits)
        self._patience_us = 0  # how long the client may be silent; 0: for ever
        self._heard_us = 0

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        if self.state == "closed":
            return []
        effects = super().handle(event, now_us)
        if event.cause:
            return [msgspec.structs.replace(effect, cause=event.cause) for effect in effects]
        return effects

    # ── the hot path ────────────────────────────────────────────────────────────────────────────────────────

    def heard(self, now_us: int) -> None:
        """The client gave a sign of life."""
        self._heard_us = now_us

    def check_publish(self, packet: PublishPacket) -> str:
        """The topic to forward on, or the ``WireError`` that ends the connection."""
        if packet.qos != _QOS_0:
            raise ProtocolViolation("a PUBLISH has a QoS over 0, the highest that is offered", 0x9B)
        if packet.retain:
            raise ProtocolViolation(
                "a PUBLISH is to be retained, and retained messages are not offered", 0x9A
            )
        if packet.topic_alias is not None:
            raise ProtocolViolation("a PUBLISH has a topic alias, and none are offered", 0x94)
        topic, limits = packet.topic, self._limits
        if len(topic) > limits.topic_max_bytes:  # first, so that only short topics are remembered
            raise TopicInvalid(topic, f"it has more than the {limits.topic_max_bytes} bytes that are allowed")
        size, levels = topic_size(topic)
        if size > limits.topic_max_bytes:
            raise TopicInvalid(topic, f"it has {size} bytes; at most {limits.topic_max_bytes} are allowed")
        if levels > limits.topic_max_levels:
            raise TopicInvalid(
                topic, f"it has {levels} levels; at most {limits.topic_max_levels} are allowed"
            )
        return topic

    # ── coming in ───────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, event: Opened, now_us: int) -> list[Effect]:
        self._assigned_client_id = event.assigned_client_id
        self.state = "connecting"
        return [SetTimer(name=CONNECT_DEADLINE, delay_us=self._limits.connect_deadline_us)]

    def _first(self, event: PacketArrived, now_us: int) -> list[Effect]:
        self.version = event.version
        packet = event.packet
        if not isinstance(packet, ConnectPacket):
            return self._close(0x82, "the first packet was not CONNECT", "peer")
        self._send_max_bytes = packet.max_packet_size
        try:
            self._terms = handshake.terms(packet, self.version, self._limits, self._assigned_client_id)
        except ConnectRefused as error:
            return self._refuse(error.reason_code, error.problem, "peer")
        self._connect = packet
        self.client_id = self._terms.client_id
        self.state = "authenticating"
        return [
            Authenticate(
                client_id=self.client_id,
                username=packet.username,
                password=packet.password,
                user_properties=tuple(packet.user_properties),
            )
        ]

    def _keep_early(self, event: PacketArrived, now_us: int) -> list[Effect]:
        self._early_bytes += _contents_bytes(event.packet) + _EARLY_OVERHEAD_BYTES
        if self._early_bytes > self._limits.early_max_bytes:
            reason = (
                f"more than {self._limits.early_max_bytes} bytes came before the connection was acknowledged"
            )
            return self._refuse(0x97, reason, "peer")
        self._early.append(event.packet)
        return []

    def _accept(self, event: Authenticated, now_us: int) -> list[Effect]:
        packet, granted = self._connect, self._terms
        assert packet is not None and granted is not None, "both are set while authenticating"
        welcome = handshake.connack(packet, granted, self._limits)
        if not self._fits(welcome):
            return self._close(0x95, f"the client takes no packet over {self._send_max_bytes} bytes", "peer")
        self._connect = self._terms = None
        self._will = packet.will
        self._explains = packet.request_problem_info
        self._outlives = packet.session_expiry_interval > 0
        self._patience_us = granted.keep_alive_s * _PATIENCE_US
        self._heard_us = now_us
        self.state = "connected"
        effects: list[Effect] = [
            handshake.acceptance(packet, granted, self.version),
            SendPacket(packet=welcome),
        ]
        if self._patience_us:
            effects.append(SetTimer(name=KEEP_ALIVE, delay_us=self._patience_us))
        early, self._early = self._early, []
        for each in early:
            if self.state == "connected":
                effects += self._take(each)
        return effects

    def _reject(self, event: Rejected, now_us: int) -> list[Effect]:
        fault = _FAULT_OF_REJECTION.get(event.reason_code, "peer")
        return self._refuse(event.reason_code, event.reason, fault, event.server_reference)

    # ── connected ───────────────────────────────────────────────────────────────────────────────────────────

    def _on_packet(self, event: PacketArrived, now_us: int) -> list[Effect]:
        self._heard_us = now_us
        return self._take(event.packet)

    def _take(self, packet: Packet) -> list[Effect]:
        try:
            match packet:
                case PublishPacket():
                    self.check_publish(packet)
                    return [Publish(packet=packet)]
                case PingReqPacket():
                    return self._answer(PingRespPacket())
                case SubscribePacket():
                    return self._subscribe(packet)
                case UnsubscribePacket():
                    return self._unsubscribe(packet)
                case DisconnectPacket():
                    return self._leave(packet)
                case PubAckPacket() | PubCompPacket():
                    return []  # of a message from an earlier session, which nobody waits for any more
                case PubRecPacket():
                    code = PubRelReasonCode.PACKET_ID_NOT_FOUND
                    return self._answer(PubRelPacket(packet.packet_id, reason_code=code))
                case PubRelPacket():
                    unknown = PubCompReasonCode.PACKET_ID_NOT_FOUND
                    return self._answer(PubCompPacket(packet.packet_id, reason_code=unknown))
                case ConnectPacket():
                    raise ProtocolViolation("a second CONNECT came on the same connection")
            name = type(packet).__name__.removesuffix("Packet").upper()
            raise ProtocolViolation(f"a client may not send {name} now")
        except WireError as error:
            return self._disconnect(error.reason_code, error.problem, "peer")

    def _subscribe(self, packet: SubscribePacket) -> list[Effect]:
        if packet.subscription_id is not None and not self._limits.subscription_ids:
            raise ProtocolViolation("a SUBSCRIBE has a subscription identifier, and none are offered", 0xA1)
        effects, codes, reason = self._subscriptions.add(packet)
        reason = reason[:REASON_MAX_CHARS] if reason and self._explains else None
        return [*effects, *self._answer(SubAckPacket(packet.packet_id, codes, reason_str=reason))]

    def _unsubscribe(self, packet: UnsubscribePacket) -> list[Effect]:
        effects, codes = self._subscriptions.remove(packet)
        return [*effects, *self._answer(UnsubAckPacket(packet.packet_id, codes))]

    def _leave(self, packet: DisconnectPacket) -> list[Effect]:
        if packet.session_expiry_interval and not self._outlives:
            raise ProtocolViolation("a DISCONNECT wants the session kept, but the CONNECT did not")
        code = int(packet.reason_code)
        if code == 0:
            self._will = None
        fault = "peer" if code >= 0x80 else "none"
        reason = (packet.reason_str or "the client disconnected")[:REASON_MAX_CHARS]
        return self._close(code, reason, fault)

    # ── going ───────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == CONNECT_DEADLINE and self.state == "connecting":
            seconds = self._limits.connect_deadline_us / 1e6
            return self._close(0xA0, f"no CONNECT came within {seconds:g} s", "peer")
        if event.name == CONNECT_DEADLINE and self.state == "authenticating":
            return self._refuse(0x88, "the client could not be authenticated in time", "ours")
        if event.name != KEEP_ALIVE or self.state != "connected":
            return []  # it ran out when it no longer mattered
        silent_us = now_us - self._heard_us
        if silent_us < self._patience_us:
            return [SetTimer(name=KEEP_ALIVE, delay_us=self._patience_us - silent_us)]
        reason = f"nothing came for {silent_us / 1e6:g} s, more than one and a half times the keep-alive"
        return self._disconnect(0x8D, reason, "peer")

    def _on_wire_failure(self, event: WireFailed, now_us: int) -> list[Effect]:
        error = event.error
        if self.state == "connected":
            return self._disconnect(error.reason_code, error.problem, "peer")
        version = handshake.answer_version(error) if isinstance(error, UnsupportedVersion) else event.version
        if version is not None:
            self.version = version
        if version == V5 or (version is not None and isinstance(error, UnsupportedVersion)):
            return self._refuse(error.reason_code, error.problem, "peer")
        return self._close(error.reason_code, error.problem, "peer")

    def _on_peer_closed(self, event: PeerClosed, now_us: int) -> list[Effect]:
        return self._close(0x80, event.reason, "peer")

    def _on_taken_over(self, event: TakenOver, now_us: int) -> list[Effect]:
        return self._disconnect(0x8E, "another connection came with this client id", "none")

    def _on_stopping(self, event: ServerStopping, now_us: int) -> list[Effect]:
        if self.state == "authenticating":
            return self._refuse(0x88, "the server is shutting down", "none")
        return self._disconnect(0x8B, "the server is shutting down", "none")

    def _on_moved(self, event: ServerMoved, now_us: int) -> list[Effect]:
        code = 0x9D if event.permanent else 0x9C
        reason = "this server has moved" if event.permanent else "use another server for now"
        if self.state == "authenticating":
            return self._refuse(code, reason, "none", event.server_reference)
        return self._disconnect(code, reason, "none", event.server_reference)

    def _refuse(self, code: int, reason: str, fault: str, reference: str | None = None) -> list[Effect]:
        """Say no to a CONNECT."""
        full = handshake.refusal(code, reason, reference)
        return self._last_word(full, handshake.refusal(code, None, reference)) + self._close(
            code, reason, fault
        )

    def _disconnect(self, code: int, reason: str, fault: str, reference: str | None = None) -> list[Effect]:
        """Tell a connected client why it has to go, if its version has words for it; then close."""
        effects: list[Effect] = []
        if self.version == V5 and self.state == "connected":
            said = handshake.disconnect_code(code)
            effects = self._last_word(
                DisconnectPacket(
                    reason_code=said, reason_str=reason[:REASON_MAX_CHARS], server_reference=reference
                ),
                DisconnectPacket(reason_code=said, server_reference=reference),
            )
        return effects + self._close(code, reason, fault)

    def _close(self, code: int, reason: str, fault: str) -> list[Effect]:
        effects: list[Effect] = []
        if self._will is not None:
            effects.append(Publish(packet=handshake.will_message(self._will), will=True))
        self._will = self._connect = self._terms = None
        self._early = []
        self._subscriptions = Subscriptions(self._limits)
        self.state = "closed"
        effects.append(Close(reason_code=code, reason=reason, fault=fault))
        return effects

    def _answer(self, packet: Packet) -> list[Effect]:
        if self._fits(packet):
            return [SendPacket(packet=packet)]
        reason = f"the answer is over the {self._send_max_bytes} bytes that the client takes"
        raise ProtocolViolation(reason, 0x95)

    def _last_word(self, *candidates: Packet) -> list[Effect]:
        """Send the first that the client takes; nothing if there is none."""
        for packet in candidates:
            if self._fits(packet):
                return [SendPacket(packet=packet)]
        return []

    def _fits(self, packet: Packet) -> bool:
        return self._send_max_bytes is None or len(encode(packet, self.version)) <= self._send_max_bytes

    table: ClassVar[dict[tuple[str, type[Event]], Handler]] = {
        ("new", Opened): _open,
        ("connecting", PacketArrived): _first,
        ("connecting", WireFailed): _on_wire_failure,
        ("connecting", TimerFired): _on_timer,
        ("connecting", PeerClosed): _on_peer_closed,
        ("connecting", ServerStopping): _on_stopping,
        ("connecting", ServerMoved): _on_moved,
        ("authenticating", PacketArrived): _keep_early,
        ("authenticating", WireFailed): _on_wire_failure,
        ("authenticating", TimerFired): _on_timer,
        ("authenticating", PeerClosed): _on_peer_closed,
        ("authenticating", ServerStopping): _on_stopping,
        ("authenticating", ServerMoved): _on_moved,
        ("authenticating", Authenticated): _accept,
        ("authenticating", Rejected): _reject,
        ("connected", PacketArrived): _on_packet,
        ("connected", WireFailed): _on_wire_failure,
        ("connected", TimerFired): _on_timer,
        ("connected", PeerClosed): _on_peer_closed,
        ("connected", ServerStopping): _on_stopping,
        ("connected", ServerMoved): _on_moved,
        ("connected", TakenOver): _on_taken_over,
    }


def _contents_bytes(packet: Any) -> int:
    """About how much a packet holds."""
    if isinstance(packet, PublishPacket):
        properties = sum(len(name) + len(value) for name, value in packet.user_properties)
        return len(packet.topic) + len(packet.payload) + properties
    patterns = getattr(packet, "patterns", None) or [
        each.pattern for each in getattr(packet, "topic_filters", ())
    ]
    return sum(len(pattern) + _EARLY_OVERHEAD_BYTES for pattern in patterns)
