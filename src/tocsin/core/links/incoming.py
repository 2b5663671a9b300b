"""Another broker's link to this one, receiving side, as a pure machine.

    link = IncomingLink("north-2", limits)                  the name that the peer's certificate proves
    link.handle(Opened(…), now_us)                          -> [SetTimer("connect-deadline")]
    link.handle(PacketArrived(packet=CONNECT), now_us)      -> [SendPacket(CONNACK), LinkUp(cluster=…), SetTimer(…)]
    link.handle(PacketArrived(packet=PINGREQ), now_us)      -> [SendPacket(PINGRESP)]
    link.handle(WireFailed(…) / TimerFired(…) / PeerClosed() / TakenOver() / ServerStopping(), now_us)

Hot path, while up (no events, no effects):
    link.heard(now_us)                 once per chunk that held a packet
    link.takes(topic, messages)        whether messages on this topic are relayed; raises ``WireError``

A link brings messages at QoS 0 and signs of life, and nothing else: a peer that sends another packet breaks the
protocol. Messages are on topics of clients, and on those that brokers use among themselves
(``wire.mqtt.topics.between_brokers``). A link's client id is ``$link/`` and the name in the peer's certificate: nobody
speaks for another.

A **probe** is a connection by which a peer measures the way to us (``core.links.prober``). Its CONNECT says so
(PROPERTY_PROBE), and our CONNACK how many bytes we take; a broker of an earlier release does not say that. A probe
brings PINGREQ, and bytes on PROBE_TOPIC, which go nowhere. It carries no message and ends no link. Bounds:
PROBE_MAX_BYTES and PROBE_US of one; how often a peer may make one is the listener's affair (``may_probe``).

A peer that cannot be dialled (``BrokerInfo.outward``) **turns** a connection around: its CONNECT says so
(PROPERTY_TURN), and behind our CONNACK it sends a PINGREQ. From then on it is as if we had dialled: we greet, and it
listens.

A peer may make **extra** connections beside its link, for copies of messages (``broker.links.extra``). Each has a name
(PROPERTY_EXTRA), and its next one of that name ends the one before.

States: new -> greeting -> up, probed or turning -> closed; turning -> turned, which is an end too.
``Close`` is the last effect; after it every event gives [].

Transitions of ``IncomingLink``:

    new       Opened → greeting
    greeting  PacketArrived → up, probed, turning, closed
    up        PacketArrived → closed
    probed    PacketArrived → closed
    turning   PacketArrived → turned, closed
    *         TimerFired, WireFailed, PeerClosed, TakenOver, ServerStopping → closed
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import ClassVar, Final

from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    QoS,
)

from tocsin.core.machine import CancelTimer, Effect, Event, SetTimer, Table, TableMachine, TimerFired
from tocsin.core.session import connect
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.publish import Publishing
from tocsin.core.session.signals import (
    Close,
    Opened,
    PacketArrived,
    PeerClosed,
    SendPacket,
    ServerStopping,
    TakenOver,
    WireFailed,
)
from tocsin.errors import WireError
from tocsin.model.versions import speaks
from tocsin.wire.mqtt import topics
from tocsin.wire.mqtt.connect import V5

LINK_PREFIX: Final = "$link/"  # of a link's client id; the rest is the name in its broker's certificate
PROPERTY_CLUSTER: Final = "cluster"
PROPERTY_LEVELS: Final = "levels"  # of the protocol that the peer speaks
PROPERTY_PROBE: Final = "probe"  # of CONNECT: this is one; of CONNACK: so many bytes are taken
PROPERTY_TURN: Final = "turn"  # of CONNECT: we are to speak over this connection, and the peer listens
PROBE_MAX_BYTES: Final = 128 << 10  # of one probe: more than ``core.links.prober`` sends
PROBE_US: Final = 10_000_000  # for one: longer than ``core.links.prober`` takes
PROPERTY_EXTRA: Final = (
    "extra"  # of CONNECT: it is a further connection, which ends none but its own one before
)
EXTRA_MAX_CHARS: Final = 16  # of which one it is
KEEP_ALIVE_MAX_S: Final = 60  # a link that wants to be silent for longer, or for ever, may not
CLUSTER_MAX_CHARS: Final = 300
_PATIENCE_US: Final = 1_500_000  # of silence for each second of keep-alive, as MQTT has it

UNSUPPORTED_VERSION: Final = 0x84
CLIENT_ID_NOT_VALID: Final = 0x85
PROTOCOL_ERROR: Final = 0x82
KEEP_ALIVE_TIMEOUT: Final = 0x8D
TAKEN_OVER: Final = 0x8E
QUOTA_EXCEEDED: Final = 0x97
RATE_EXCEEDED: Final = 0x9F
SHUTTING_DOWN: Final = 0x8B


class LinkUp(Effect, frozen=True, kw_only=True):
    """The peer was welcomed: what comes from now on is relayed as coming from this cluster."""

    cluster: str
    extra: str = ""  # which further connection this is; empty: it is the link


class ProbeTaken(Effect, frozen=True, kw_only=True):
    """A probe has brought so many bytes, which go nowhere."""

    size: int


class TurnedAround(Effect, frozen=True, kw_only=True):
    """The peer listens on this connection now: it is ours as if we had dialled it. The last effect."""


class LinkState(StrEnum):
    """Where a link is."""

    NEW = "new"
    GREETING = "greeting"
    UP = "up"
    PROBED = "probed"
    TURNING = "turning"
    TURNED = "turned"
    CLOSED = "closed"


class LinkTimer(StrEnum):
    """The timers of a link."""

    CONNECT_DEADLINE = "connect-deadline"
    KEEP_ALIVE = "keep-alive"


ENDED: Final = (LinkState.CLOSED, LinkState.TURNED)
WELCOMED: Final = (LinkState.UP, LinkState.PROBED, LinkState.TURNING)  # the peer hears why it is sent away


class IncomingLink(TableMachine):
    """One connection of a peer's, from ``Opened`` to ``Close``."""

    timers = LinkTimer
    state: LinkState = LinkState.NEW

    def __init__(
        self, peer: str, limits: SessionLimits, may_probe: Callable[[], bool] = lambda: True
    ) -> None:
        """``may_probe`` is asked whether the peer may make a probe now."""
        self.peer = peer
        self._may_probe = may_probe
        self._probed_bytes = 0
        self._limits = limits
        publishing = Publishing(limits, link=True)
        self.takes = publishing.takes
        self.topic_of = publishing.topic_of
        self._patience_us = 0
        self._heard_us = 0

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        return [] if self.state in ENDED else super().handle(event, now_us)

    def heard(self, now_us: int) -> None:
        """The peer gave a sign of life."""
        self._heard_us = now_us

    def _open(self, event: Opened, now_us: int) -> list[Effect]:
        self.state = LinkState.GREETING
        return [SetTimer(name=LinkTimer.CONNECT_DEADLINE, delay_us=self._limits.connect_deadline_us)]

    def _greet(self, event: PacketArrived, now_us: int) -> list[Effect]:
        packet = event.packet
        if not isinstance(packet, ConnectPacket):
            return self._close(PROTOCOL_ERROR, "the first packet was not CONNECT")
        if event.version != V5:
            return self._refuse(UNSUPPORTED_VERSION, "links speak MQTT 5")
        if packet.client_id != f"{LINK_PREFIX}{self.peer}":
            reason = (
                f"the certificate is that of {self.peer}, and the link says that it is {packet.client_id!r}"
            )
            return self._refuse(CLIENT_ID_NOT_VALID, reason)
        if packet.will is not None or not packet.clean_start or packet.session_expiry_interval:
            return self._refuse(PROTOCOL_ERROR, "a link has no session and no will")
        said = dict(packet.user_properties)
        if (problem := _unspoken(said.get(PROPERTY_LEVELS, ""))) is not None:
            return self._refuse(UNSUPPORTED_VERSION, problem)
        cluster = said.get(PROPERTY_CLUSTER, "")
        if not 0 < len(cluster) <= CLUSTER_MAX_CHARS:
            return self._refuse(PROTOCOL_ERROR, "a link must say which cluster it comes from")
        if PROPERTY_PROBE in said:
            return self._welcome_probe()
        if PROPERTY_TURN in said:
            self.state = LinkState.TURNING
            return [SendPacket(packet=ConnAckPacket(reason_code=ConnAckReasonCode.SUCCESS))]
        extra = said.get(PROPERTY_EXTRA, "")
        if len(extra) > EXTRA_MAX_CHARS:
            return self._refuse(PROTOCOL_ERROR, "a further connection has a short name")
        keep_alive_s = min(packet.keep_alive or KEEP_ALIVE_MAX_S, KEEP_ALIVE_MAX_S)
        self._patience_us = keep_alive_s * _PATIENCE_US
        self._heard_us = now_us
        self.state = LinkState.UP
        welcome = ConnAckPacket(
            reason_code=ConnAckReasonCode.SUCCESS,
            max_packet_size=self._limits.packet_max_bytes,
            max_qos=QoS.AT_MOST_ONCE,
            server_keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive else None,
        )
        return [
            SendPacket(packet=welcome),
            LinkUp(cluster=cluster, extra=extra),
            SetTimer(name=LinkTimer.KEEP_ALIVE, delay_us=self._patience_us),
        ]

    # ── probes ──────────────────────────────────────────────────────────────────────────────────────────────

    def _welcome_probe(self) -> list[Effect]:
        if not self._may_probe():
            return self._refuse(RATE_EXCEEDED, "too many probes; measure later")
        self.state = LinkState.PROBED
        welcome = ConnAckPacket(
            reason_code=ConnAckReasonCode.SUCCESS,
            max_packet_size=self._limits.packet_max_bytes,
            max_qos=QoS.AT_MOST_ONCE,
            user_properties=[(PROPERTY_PROBE, str(PROBE_MAX_BYTES))],
        )
        return [SendPacket(packet=welcome), SetTimer(name=LinkTimer.KEEP_ALIVE, delay_us=PROBE_US)]

    def _on_probe(self, event: PacketArrived, now_us: int) -> list[Effect]:
        match event.packet:
            case PingReqPacket():
                return [SendPacket(packet=PingRespPacket())]
            case DisconnectPacket():
                return self._close(0, "the peer ended the probe")
            case PublishPacket(topic=topics.PROBE_TOPIC, qos=QoS.AT_MOST_ONCE, payload=payload):
                self._probed_bytes += len(payload)
                if self._probed_bytes > PROBE_MAX_BYTES:
                    return self._disconnect(QUOTA_EXCEEDED, f"a probe has {PROBE_MAX_BYTES} bytes at most")
                return [ProbeTaken(size=len(payload))]
            case packet:
                name = type(packet).__name__.removesuffix("Packet").upper()
                return self._disconnect(PROTOCOL_ERROR, f"a probe may not send this {name}")

    # ── connections that are turned around ──────────────────────────────────────────────────────────────────

    def _turn(self, event: PacketArrived, now_us: int) -> list[Effect]:
        if not isinstance(event.packet, PingReqPacket):
            return self._disconnect(
                PROTOCOL_ERROR, "a peer that turns a connection around sends a PINGREQ first"
            )
        self.state = LinkState.TURNED
        return [CancelTimer(name=LinkTimer.CONNECT_DEADLINE), TurnedAround()]

    # ── links ───────────────────────────────────────────────────────────────────────────────────────────────

    def _on_packet(self, event: PacketArrived, now_us: int) -> list[Effect]:
        self._heard_us = now_us
        match event.packet:
            case PingReqPacket():
                return [SendPacket(packet=PingRespPacket())]
            case DisconnectPacket():
                return self._close(0, "the peer ended the link")
            case PublishPacket():
                return self._disconnect(PROTOCOL_ERROR, "links carry messages at QoS 0 only")
            case packet:
                name = type(packet).__name__.removesuffix("Packet").upper()
                return self._disconnect(PROTOCOL_ERROR, f"a link may not send {name}")

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == LinkTimer.CONNECT_DEADLINE and self.state is LinkState.GREETING:
            return self._close(KEEP_ALIVE_TIMEOUT, "no CONNECT came in time")
        if event.name == LinkTimer.CONNECT_DEADLINE and self.state is LinkState.TURNING:
            return self._close(KEEP_ALIVE_TIMEOUT, "the peer did not turn the connection around in time")
        if event.name == LinkTimer.KEEP_ALIVE and self.state is LinkState.PROBED:
            return self._disconnect(KEEP_ALIVE_TIMEOUT, f"a probe takes {PROBE_US // 1_000_000} s at most")
        if event.name != LinkTimer.KEEP_ALIVE or self.state is not LinkState.UP:
            return []
        silent_us = now_us - self._heard_us
        if silent_us < self._patience_us:
            return [SetTimer(name=LinkTimer.KEEP_ALIVE, delay_us=self._patience_us - silent_us)]
        return self._disconnect(KEEP_ALIVE_TIMEOUT, f"nothing came for {silent_us / 1e6:g} s")

    def _on_wire_failure(self, event: WireFailed, now_us: int) -> list[Effect]:
        return self._fail(event.error)

    def _on_peer_closed(self, event: PeerClosed, now_us: int) -> list[Effect]:
        return self._close(0, event.reason)

    def _on_taken_over(self, event: TakenOver, now_us: int) -> list[Effect]:
        return self._disconnect(TAKEN_OVER, "the peer has made another link")

    def _on_stopping(self, event: ServerStopping, now_us: int) -> list[Effect]:
        return self._disconnect(SHUTTING_DOWN, "this broker stops, or wants to see certificates again")

    def _fail(self, error: WireError) -> list[Effect]:
        if self.state in WELCOMED:
            return self._disconnect(error.reason_code, error.problem)
        return self._close(error.reason_code, error.problem)

    def _refuse(self, code: int, reason: str) -> list[Effect]:
        return [SendPacket(packet=connect.refusal(code, reason)), *self._close(code, reason)]

    def _disconnect(self, code: int, reason: str) -> list[Effect]:
        words = [SendPacket(packet=connect.dismissal(code, reason))] if self.state in WELCOMED else []
        return [*words, *self._close(code, reason)]

    def _close(self, code: int, reason: str) -> list[Effect]:
        self.state = LinkState.CLOSED
        return [Close(reason_code=code, reason=reason, fault="peer" if code >= 0x80 else "none")]

    table: ClassVar[Table] = {
        (LinkState.NEW, Opened): _open,
        (LinkState.GREETING, PacketArrived): _greet,
        (LinkState.UP, PacketArrived): _on_packet,
        (LinkState.PROBED, PacketArrived): _on_probe,
        (LinkState.TURNING, PacketArrived): _turn,
        ("*", TimerFired): _on_timer,
        ("*", WireFailed): _on_wire_failure,
        ("*", PeerClosed): _on_peer_closed,
        ("*", TakenOver): _on_taken_over,
        ("*", ServerStopping): _on_stopping,
    }


def _unspoken(said: str) -> str | None:
    """Why the peer and this broker do not understand each other; None if they do."""
    own = speaks()
    if not said or own.shares(said):
        return None
    return f"this broker speaks the levels {own.text} of the protocol, and the link {said[:16]}; upgrade the older one"
