"""A client that is coming in: its CONNECT, the terms that it is granted, and the answer.

A session has one ``Arrival`` from the CONNECT until the CONNACK. It knows whether the client can be served and on what
terms, what the shell has to check and to know, and what the client has sent since without waiting for the answer
(``Early``). The rest are the words of a server that ends a connection: a CONNACK that refuses, or a DISCONNECT.
``core.session.machine`` decides when each is asked for.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    Packet,
    PublishPacket,
    QoS,
    Will,
)

from tocsin.core.access.accounts import ACCOUNTS_USER
from tocsin.core.budgets.budget import weight_of
from tocsin.core.session.bridging import state_topic
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.signals import Accepted, Authenticate
from tocsin.core.survival.homes import GUEST, HOME_MAX_CHARS, PROPERTY_VERSION, PROPERTY_WATCH
from tocsin.errors import ProtocolViolation, UnsupportedVersion
from tocsin.model.versions import UNREADABLE
from tocsin.wire.mqtt.connect import BRIDGE_BIT, V5, V311, Version
from tocsin.wire.mqtt.topics import check_topic

# Bytes of a reason string: enough for every sentence of ours, little on a small device's link.
REASON_MAX_CHARS = 200
# Errors in a CONNECT that have a return code in 3.1.1: the version, the client id.
ANSWERED_IN_311: Final = (0x84, 0x85)
# With which a client may leave (MQTT 5, 3.14.2.1); the others are a server's.
LEAVING_CODES: Final = frozenset(
    (0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99)
)
# Refusals that are the server's fault by their code alone: unavailable and busy, use another server and moved.
_FAULTS: Final = {0x88: "ours", 0x89: "ours", 0x9C: "none", 0x9D: "none"}


_OVERHEAD_BYTES: Final = 64  # what a kept packet or filter costs beside its contents, about


class Terms(msgspec.Struct, frozen=True):
    """The terms that the broker grants a client in its CONNACK."""

    client_id: str
    assigned: bool  # the id is ours, and the client must be told
    keep_alive_s: int  # in force; 0: none
    session_expiry_s: int  # how long the session outlives its connection


class ConnectRefused(ProtocolViolation):
    """A CONNECT that cannot be served; its reason code is one of CONNACK's."""


def terms(packet: ConnectPacket, version: Version, limits: SessionLimits, assigned_client_id: str) -> Terms:
    """The terms for this CONNECT, or ``ConnectRefused``."""
    if packet.authentication_method is not None:
        raise ConnectRefused(
            "no extended authentication is offered; leave out the authentication method", 0x8C
        )
    if not packet.client_id and version == V311 and not packet.clean_start:
        raise ConnectRefused("an empty client id needs clean session set", 0x85)
    size = len(packet.client_id.encode())
    if size > limits.client_id_max_bytes:
        raise ConnectRefused(
            f"the client id has {size} bytes; at most {limits.client_id_max_bytes} are allowed", 0x85
        )
    if packet.will is not None and not _is_state(packet):
        _check_will(packet.will, limits)
    keep_alive_s = packet.keep_alive
    if version == V5 and limits.keep_alive_max_s:
        # Only MQTT 5 can tell a client to use another keep-alive than its own.
        keep_alive_s = min(keep_alive_s or limits.keep_alive_max_s, limits.keep_alive_max_s)
    return Terms(
        client_id=packet.client_id or assigned_client_id,
        assigned=not packet.client_id,
        keep_alive_s=keep_alive_s,
        session_expiry_s=_session_expiry_s(packet, version, limits),
    )


def _session_expiry_s(packet: ConnectPacket, version: Version, limits: SessionLimits) -> int:
    """How long the session is kept. Without *clean session*, 3.1.1 asks for ever, and cannot ask for less."""
    if version == V311:
        return 0 if packet.clean_start else limits.session_expiry_max_s
    return min(packet.session_expiry_interval, limits.session_expiry_max_s)


def _watched(packet: ConnectPacket) -> str:
    """The broker that a connection watches (``core.survival.watchers``); empty for a client's own connection."""
    said = dict(packet.user_properties)
    broker, version = said.get(PROPERTY_WATCH), said.get(PROPERTY_VERSION)
    if not broker or version is None:
        return ""
    try:
        GUEST.check(version)
    except UNREADABLE:
        return ""  # a newer client: its CONNACK does not say that it watches
    if len(broker) > HOME_MAX_CHARS:
        raise ConnectRefused(f"a broker's name has at most {HOME_MAX_CHARS} characters", 0x82)
    _check_aside(packet, "watches a broker")
    return broker


def _check_aside(packet: ConnectPacket, does: str) -> None:
    """A connection beside a client's own leaves nothing behind."""
    if packet.will is not None or packet.session_expiry_interval or not packet.clean_start:
        problem = f"a connection that {does} has no will and no session: connect with clean start"
        raise ConnectRefused(problem, 0x82)


def _asks_about_accounts(packet: ConnectPacket) -> bool:
    """Whether a connection makes or changes accounts."""
    if packet.username != ACCOUNTS_USER:
        return False
    _check_aside(packet, "is about accounts")
    return True


def _is_state(packet: ConnectPacket) -> bool:
    """Whether the will only says that a bridge has gone, which the broker says by itself."""
    return packet.will is not None and packet.will.topic == state_topic(packet.client_id)


def _check_will(will: Will, limits: SessionLimits) -> None:
    if will.topic.startswith("$"):
        raise ConnectRefused("the will's topic begins with $, and such topics belong to the server", 0x87)
    try:
        check_topic(will.topic, max_bytes=limits.topic_max_bytes, max_levels=limits.topic_max_levels)
    except ProtocolViolation as error:
        raise ConnectRefused(f"the will's {error.problem}", error.reason_code) from None


class Early:
    """Packets that came before the CONNACK."""

    __slots__ = ("_bytes", "_max_bytes", "_packets")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._packets: list[Packet] = []
        self._bytes = 0

    def keep(self, packet: Packet) -> bool:
        """Whether there was room for it."""
        self._bytes += _contents_bytes(packet) + _OVERHEAD_BYTES
        if self._bytes > self._max_bytes:
            return False
        self._packets.append(packet)
        return True

    def take(self) -> list[Packet]:
        """All of them; none is kept any more."""
        packets, self._packets = self._packets, []
        return packets


def _contents_bytes(packet: Any) -> int:
    """About how much a packet holds."""
    if isinstance(packet, PublishPacket):
        return weight_of(packet)
    patterns = getattr(packet, "patterns", None) or [
        each.pattern for each in getattr(packet, "topic_filters", ())
    ]
    return sum(len(pattern) + _OVERHEAD_BYTES for pattern in patterns)


class Arrival:
    """A client between its CONNECT and our CONNACK. Raises ``ConnectRefused`` if the CONNECT cannot be served."""

    __slots__ = ("_limits", "_version", "accounts", "early", "granted", "packet", "watches", "will")

    def __init__(
        self, packet: ConnectPacket, version: Version, limits: SessionLimits, assigned_client_id: str
    ) -> None:
        self.packet = packet
        self.granted = terms(packet, version, limits, assigned_client_id)
        self.will = None if _is_state(packet) else packet.will
        self.accounts = _asks_about_accounts(packet)
        self.watches = _watched(packet) if packet.user_properties and not self.accounts else ""
        self.early = Early(limits.early_max_bytes)
        self._limits = limits
        self._version = version

    def credentials(self) -> Authenticate:
        """The check that the shell has to make."""
        return Authenticate(
            client_id=self.granted.client_id,
            username=self.packet.username,
            password=self.packet.password,
            user_properties=tuple(self.packet.user_properties),
            will_topic=None if self.will is None else self.will.topic,
            watches=self.watches,
            accounts=self.accounts,
        )

    def acceptance(self) -> Accepted:
        """The client's data that the shell needs to give it its session."""
        packet, granted = self.packet, self.granted
        return Accepted(
            client_id=granted.client_id,
            version=self._version,
            clean_start=packet.clean_start,
            keep_alive_s=granted.keep_alive_s,
            session_expiry_s=granted.session_expiry_s,
            username=packet.username,
            user_properties=tuple(packet.user_properties),
            send_max_bytes=packet.max_packet_size,
            receive_max=packet.receive_max,
            topic_alias_max=packet.topic_alias_max,
            will_delay_s=self.will.will_delay_interval if self.will else 0,
            watches=self.watches,
            accounts=self.accounts,
        )

    def welcomes(
        self, *, present: bool = False, told: tuple[tuple[str, str], ...] = ()
    ) -> list[ConnAckPacket]:
        """The CONNACK with all properties, then one without them for a client that takes no packet so large."""
        words = (told, ()) if told else ((),)
        return [self._connack(present, each) for each in words]

    def _connack(self, present: bool, told: tuple[tuple[str, str], ...]) -> ConnAckPacket:
        """The standard's defaults are offered, and left out on the wire."""
        packet, granted, limits = self.packet, self.granted, self._limits
        shortened = granted.session_expiry_s != packet.session_expiry_interval
        return ConnAckPacket(
            session_present=present,
            session_expiry_interval=granted.session_expiry_s if shortened else None,
            assigned_client_id=granted.client_id if granted.assigned else None,
            server_keep_alive=granted.keep_alive_s if granted.keep_alive_s != packet.keep_alive else None,
            receive_max=limits.receive_max,
            topic_alias_max=limits.topic_alias_max,
            max_qos=QoS.EXACTLY_ONCE,
            retain_available=True,
            max_packet_size=limits.packet_max_bytes,
            wildcard_subscription_available=True,
            subscription_id_available=limits.subscription_ids,
            shared_subscription_available=limits.shared,
            user_properties=list(told),
        )


# ── last words ─────────────────────────────────────────────────────────────────────────────────────────────


def refusal(reason_code: int, reason: str | None, server_reference: str | None = None) -> ConnAckPacket:
    return ConnAckPacket(
        reason_code=connack_code(reason_code),
        reason_str=reason and reason[:REASON_MAX_CHARS],
        server_reference=server_reference,
    )


def fault_of(reason_code: int, *, otherwise: str) -> str:
    """Whether we or the client are at fault for a refusal with that code."""
    return _FAULTS.get(reason_code, otherwise)


def dismissal(reason_code: int, reason: str | None, server_reference: str | None = None) -> DisconnectPacket:
    """The DISCONNECT with which a server ends a connection."""
    return DisconnectPacket(
        reason_code=disconnect_code(reason_code),
        reason_str=reason and reason[:REASON_MAX_CHARS],
        server_reference=server_reference,
    )


def answer_version(error: UnsupportedVersion) -> Version | None:
    """The version in which to tell a peer that its own is not spoken; None if it does not look like MQTT at all.

    A level with the bit of a bridge is told in its own version.
    """
    if error.name not in ("MQTT", "MQIsdp"):
        return None
    return V311 if error.level & ~BRIDGE_BIT < V5 else V5


def connack_code(code: int) -> ConnAckReasonCode:
    """The CONNACK reason with this number; *unspecified error* where CONNACK has none."""
    try:
        return ConnAckReasonCode(code)
    except ValueError:
        return ConnAckReasonCode.UNSPECIFIED_ERROR


def disconnect_code(code: int) -> DisconnectReasonCode:
    """The DISCONNECT reason with this number; *unspecified error* where DISCONNECT has none."""
    try:
        return DisconnectReasonCode(code)
    except ValueError:
        return DisconnectReasonCode.UNSPECIFIED_ERROR
