"""The answer to a CONNECT: whether the client can be served, on what terms, or why it is refused.

Pure functions of the packet, the version and the limits; ``core.session.machine`` decides when they are asked.
"""

from __future__ import annotations

from typing import Final

import msgspec
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    QoS,
    Will,
)

from tocsin.core.session.signals import Accepted
from tocsin.errors import ProtocolViolation, UnsupportedVersion
from tocsin.ports import PACKET_MAX_BYTES, TOPIC_MAX_BYTES
from tocsin.wire.connect import V5, V311, Version
from tocsin.wire.topics import check_topic

# Bytes of a reason string: enough for every sentence of ours, little on a small device's link.
REASON_MAX_CHARS = 200
BRIDGE_BIT: Final = 0x80
# Errors in a CONNECT that have a return code in 3.1.1: the version, the client id.
ANSWERED_IN_311: Final = (0x84, 0x85)
# With which a client may leave (MQTT 5, 3.14.2.1); the others are a server's.
LEAVING_CODES: Final = frozenset(
    (0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99)
)
# Refusals that are the server's fault by their code alone: unavailable and busy, use another server and moved.
_FAULTS: Final = {0x88: "ours", 0x89: "ours", 0x9C: "none", 0x9D: "none"}


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one client's session. Times are in microseconds unless named otherwise."""

    connect_deadline_us: int = 10_000_000  # from the connection to the CONNACK
    packet_max_bytes: int = PACKET_MAX_BYTES  # so that every packet can be stored
    subscriptions_max: int = 1_000
    subscriptions_max_bytes: int = 256 << 10  # of their names, with what is stored beside each
    topic_max_bytes: int = TOPIC_MAX_BYTES  # so that every topic can be stored
    topic_max_levels: int = 32
    client_id_max_bytes: int = 256
    keep_alive_max_s: int = 3_600  # a longer or no keep-alive is shortened to this one (MQTT 5); 0: never
    early_max_bytes: int = 1 << 20  # of packets that come before the client is authenticated
    # Whether subscription identifiers are advertised and accepted; the shell must then send them.
    subscription_ids: bool = True
    session_expiry_max_s: int = 604_800  # seven days; a client that asks for longer, or for ever, gets this
    # Messages at QoS 1 and 2 that an MQTT 5 client may send before the first is answered.
    receive_max: int = 100
    # Received packet ids of QoS 2 that are remembered; where they are stored, ``core.delivery.record_ids`` bounds their
    # bytes.
    inbound_max: int = 10_000
    topic_alias_max: int = 16  # topics that an MQTT 5 client may publish to by a number
    shared: bool = True  # whether shared subscriptions are advertised and granted; the shell must then share


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
    if packet.will is not None:
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


def _check_will(will: Will, limits: SessionLimits) -> None:
    if will.topic.startswith("$"):
        raise ConnectRefused("the will's topic begins with $, and such topics belong to the server", 0x87)
    try:
        check_topic(will.topic, max_bytes=limits.topic_max_bytes, max_levels=limits.topic_max_levels)
    except ProtocolViolation as error:
        raise ConnectRefused(f"the will's {error.problem}", error.reason_code) from None


def connack(
    packet: ConnectPacket,
    granted: Terms,
    limits: SessionLimits,
    present: bool,
    user_properties: tuple[tuple[str, str], ...] = (),
) -> ConnAckPacket:
    """The welcome. The standard's defaults are offered, and left out on the wire."""
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
        user_properties=list(user_properties),
    )


def acceptance(packet: ConnectPacket, granted: Terms, version: Version) -> Accepted:
    """The data of an accepted client that the shell needs."""
    return Accepted(
        client_id=granted.client_id,
        version=version,
        clean_start=packet.clean_start,
        keep_alive_s=granted.keep_alive_s,
        session_expiry_s=granted.session_expiry_s,
        username=packet.username,
        user_properties=tuple(packet.user_properties),
        send_max_bytes=packet.max_packet_size,
        receive_max=packet.receive_max,
        topic_alias_max=packet.topic_alias_max,
        will_delay_s=packet.will.will_delay_interval if packet.will else 0,
    )


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

    Bridges of mosquitto set the highest bit of the level of 3.1 and 3.1.1; told in that version, they try without.
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
