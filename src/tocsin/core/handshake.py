"""What a CONNECT is answered: whether it can be served, on what terms, and in which words it is refused.

Pure functions of the packet, the version and the limits; ``core.session`` decides when they are asked. What is
spoken today is QoS 0 without retained messages and without sessions that outlive their connection, and every
CONNACK says so; a feature that is added changes ``terms`` and ``connack`` here.
"""

from __future__ import annotations

import msgspec
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectReasonCode,
    PublishPacket,
    QoS,
    Will,
)

from tocsin.core.session_signals import Accepted
from tocsin.errors import ProtocolViolation, UnsupportedVersion
from tocsin.wire.codec import V5, V311, Version
from tocsin.wire.topics import check_topic

REASON_MAX_CHARS = (
    200  # of a reason string: enough for every sentence of ours, little on a small device's link
)


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may take. Times in microseconds unless named otherwise."""

    connect_deadline_us: int = 10_000_000  # from the connection to the CONNACK
    packet_max_bytes: int = 1 << 20  # as PAYLOAD_MAX_BYTES in ports: what a log record can hold
    subscriptions_max: int = 1_000
    topic_max_bytes: int = 1_024  # as SUBJECT_MAX_BYTES in ports
    topic_max_levels: int = 32
    client_id_max_bytes: int = 256
    keep_alive_max_s: int = 3_600  # a longer or no keep-alive is shortened to this one (MQTT 5); 0: never
    early_max_bytes: int = 1 << 20  # of packets that come before the client is authenticated
    # Whether subscription identifiers are advertised and accepted; the shell must then send them.
    subscription_ids: bool = False


class Terms(msgspec.Struct, frozen=True):
    """What a client gets."""

    client_id: str
    assigned: bool  # the id is ours, and the client must be told
    keep_alive_s: int  # in force; 0: none
    session_expiry_s: int = 0  # sessions end with their connection


class ConnectRefused(ProtocolViolation):
    """A CONNECT that cannot be served; its reason code is one of CONNACK's."""


def terms(packet: ConnectPacket, version: Version, limits: SessionLimits, assigned_client_id: str) -> Terms:
    """What this CONNECT gets, or ``ConnectRefused``."""
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
    )


def _check_will(will: Will, limits: SessionLimits) -> None:
    if will.qos != QoS.AT_MOST_ONCE:
        raise ConnectRefused("the will's QoS is over 0, the highest that is offered", 0x9B)
    if will.retain:
        raise ConnectRefused("the will is to be retained, and retained messages are not offered", 0x9A)
    try:
        check_topic(will.topic, max_bytes=limits.topic_max_bytes, max_levels=limits.topic_max_levels)
    except ProtocolViolation as error:
        raise ConnectRefused(f"the will's {error.problem}", error.reason_code) from None


def connack(packet: ConnectPacket, granted: Terms, limits: SessionLimits) -> ConnAckPacket:
    """The welcome, with everything that is not offered said."""
    shortened = granted.session_expiry_s != packet.session_expiry_interval
    return ConnAckPacket(
        session_present=False,
        session_expiry_interval=granted.session_expiry_s if shortened else None,
        assigned_client_id=granted.client_id if granted.assigned else None,
        server_keep_alive=granted.keep_alive_s if granted.keep_alive_s != packet.keep_alive else None,
        max_qos=QoS.AT_MOST_ONCE,
        retain_available=False,
        max_packet_size=limits.packet_max_bytes,
        wildcard_subscription_available=True,
        subscription_id_available=limits.subscription_ids,
        shared_subscription_available=False,
    )


def acceptance(packet: ConnectPacket, granted: Terms, version: Version) -> Accepted:
    """What the shell needs to know of a client that came in."""
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
    )


def refusal(reason_code: int, reason: str | None, server_reference: str | None = None) -> ConnAckPacket:
    return ConnAckPacket(
        reason_code=connack_code(reason_code),
        reason_str=reason and reason[:REASON_MAX_CHARS],
        server_reference=server_reference,
    )


def answer_version(error: UnsupportedVersion) -> Version | None:
    """The version in which to tell a peer that its own is not spoken; None if it does not look like MQTT at all."""
    if error.name not in ("MQTT", "MQIsdp"):
        return None
    return V311 if error.level < V5 else V5


def will_message(will: Will) -> PublishPacket:
    """The PUBLISH that a will becomes."""
    return PublishPacket(
        will.topic,
        will.payload or b"",
        payload_format_indicator=will.payload_format_indicator,
        message_expiry_interval=will.message_expiry_interval,
        content_type=will.content_type,
        response_topic=will.response_topic,
        correlation_data=will.correlation_data,
        user_properties=will.user_properties,
    )


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
