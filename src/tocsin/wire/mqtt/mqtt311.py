"""MQTT 3.1.1 and 3.1 in the vocabulary of MQTT 5: packets of the ``mqtt5`` classes, as 3.1.1 writes them.

    decode(frame, at) -> Packet      a whole frame, and where its body begins; Malformed or ProtocolViolation
    encode(packet) -> bytes          ValueError if 3.1.1 cannot say it

3.1.1 has neither properties nor most reason codes, so that encoding drops them and decoding fills in what they
mean by default:

- *Clean session* is ``clean_start``; without it the session is kept: ``session_expiry_interval`` is for ever.
- CONNACK's six return codes stand for the v5 reasons nearest to them; a v5 reason that has none becomes 3, *server
  unavailable*, the only refusal that blames nobody.
- SUBACK says granted or 0x80, *failure*; UNSUBACK says nothing, so it decodes to no reason codes.
- A subscription gets messages with the retain flag as 3.1.1 has it: set only on retained ones sent at subscribing.

MQTT 3.1 (``MQIsdp``, level 3), which old devices speak, differs in its CONNECT: the client id must not be empty, and a
user name or password that the flags announce may be missing at the end. It knows no SUBACK for a filter that is
refused; such a client gets 0x80 as one of 3.1.1 does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import mqtt5
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    SubAckPacket,
    SubAckReasonCode,
    SubscribePacket,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tocsin.errors import Malformed, ProtocolViolation
from tocsin.wire.mqtt.connect import V31, check_connect_flags, check_will_topic
from tocsin.wire.mqtt.fields import (
    read_binary,
    read_filter,
    read_string,
    read_u8,
    read_u16,
    write_binary,
    write_packet_id,
    write_string,
    write_varint,
)
from tocsin.wire.mqtt.topics import check_topic

CLIENT_ID_NOT_VALID: Final = 0x85
FOREVER_S: Final = 0xFFFF_FFFF  # a session expiry interval that never passes

QOS: Final = (QoS.AT_MOST_ONCE, QoS.AT_LEAST_ONCE, QoS.EXACTLY_ONCE)

_REASON_OF_RETURN: Final = (
    ConnAckReasonCode.SUCCESS,
    ConnAckReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ConnAckReasonCode.CLIENT_ID_NOT_VALID,
    ConnAckReasonCode.SERVER_UNAVAILABLE,
    ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ConnAckReasonCode.NOT_AUTHORIZED,
)
_RETURN_OF_REASON: Final = {
    0x00: 0,
    0x84: 1,
    0x85: 2,
    0x86: 4,
    0x87: 5,
    0x8A: 5,  # banned
    0x8C: 5,  # bad authentication method
}
_SERVER_UNAVAILABLE: Final = 3
_NO_LOCAL: Final = 0x04  # options of a subscription in MQTT 5
_AS_PUBLISHED: Final = 0x08
_SHARE: Final = b"$share/"

_GRANTED: Final = {
    0x00: SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE,
    0x01: SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE,
    0x02: SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE,
    0x80: SubAckReasonCode.UNSPECIFIED_ERROR,
}


def decode(frame: bytes, at: int) -> Packet:
    """One whole frame, whose type and flags are known to be legal, with its body from ``at`` on."""
    return _DECODERS[frame[0] >> 4](frame, at)


def encode(packet: Packet) -> bytes:
    encoder = _ENCODERS.get(type(packet))
    if encoder is None:
        raise ValueError("MQTT 3.1.1 has no such packet")
    first, body = encoder(packet)
    return bytes((first,)) + write_varint(len(body)) + body


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────────────────


def _connect(frame: bytes, at: int) -> ConnectPacket:
    end = len(frame)
    _, at = read_string(frame, at, end, "the protocol name")
    level, at = read_u8(frame, at, end, "the protocol level")
    flags, at = read_u8(frame, at, end, "the connect flags")
    check_connect_flags(flags)
    if flags & 0xC0 == 0x40:
        raise Malformed("the connect flags have a password without a user name, which MQTT 3.1.1 forbids")
    keep_alive, at = read_u16(frame, at, end, "the keep-alive")
    client_id, at = read_string(frame, at, end, "the client id")
    if level == V31 and not client_id:
        raise ProtocolViolation("the client id is empty, which MQTT 3.1 does not allow", CLIENT_ID_NOT_VALID)
    will = None
    if flags & 0x04:
        topic, at = read_string(frame, at, end, "the will topic")
        payload, at = read_binary(frame, at, end, "the will message")
        check_will_topic(topic)
        will = Will(topic, payload=payload, qos=QOS[flags >> 3 & 3], retain=bool(flags & 0x20))
    username, password = None, None
    if flags & 0x80 and (level != V31 or at < end):
        username, at = read_string(frame, at, end, "the user name")
    if flags & 0x40 and (level != V31 or at < end):
        password, at = read_binary(frame, at, end, "the password")
    _end_here("CONNECT", at, end)
    clean = bool(flags & 0x02)
    return ConnectPacket(
        client_id,
        username=username,
        password=password,
        clean_start=clean,
        will=will,
        keep_alive=keep_alive,
        session_expiry_interval=0 if clean else FOREVER_S,
    )


def _connack(frame: bytes, at: int) -> ConnAckPacket:
    flags, at = read_u8(frame, at, len(frame), "the acknowledge flags")
    code, at = read_u8(frame, at, len(frame), "the return code")
    _end_here("CONNACK", at, len(frame))
    if flags > 1:
        raise Malformed(f"the acknowledge flags are {flags:#04x}; all but the lowest bit are reserved")
    if code >= len(_REASON_OF_RETURN):
        raise Malformed(f"the return code {code} is reserved")
    return ConnAckPacket(session_present=bool(flags), reason_code=_REASON_OF_RETURN[code])


def _publish(frame: bytes, at: int) -> PublishPacket:
    first, end = frame[0], len(frame)
    topic, at = read_string(frame, at, end, "the topic")
    check_topic(topic)
    qos, packet_id = QOS[first >> 1 & 3], None
    if first & 0x06:
        packet_id, at = _packet_id(frame, at, "PUBLISH")
    return PublishPacket(
        topic,
        frame[at:],
        qos=qos,
        retain=bool(first & 0x01),
        packet_id=packet_id,
        duplicate=bool(first & 0x08),
    )


def _acknowledgement(kind: Callable[[int], Packet], name: str) -> Callable[[bytes, int], Packet]:
    def read(frame: bytes, at: int) -> Packet:
        packet_id, at = _packet_id(frame, at, name)
        _end_here(name, at, len(frame))
        return kind(packet_id)

    return read


def bridge_subscribe(frame: bytes, at: int) -> Packet:
    """A SUBSCRIBE of a bridge. In MQTT 5's words it wants nothing back of what it brings, and messages as they were
    published; so that two bridged brokers do not send each other the same for ever, and keep what is retained."""
    return _subscribe(frame, at, bridges=True)


def _subscribe(frame: bytes, at: int, *, bridges: bool = False) -> Packet:
    end, start = len(frame), at
    marked = bytearray(frame) if bridges else None
    _, at = _packet_id(frame, at, "SUBSCRIBE")
    if at == end:
        raise ProtocolViolation("a SUBSCRIBE must hold at least one topic filter")
    while at < end:
        begin, at = at, read_filter(frame, at, end)
        qos, at = read_u8(frame, at, end, "a requested QoS")
        if qos > 2:
            raise Malformed(f"the requested QoS byte is {qos:#04x}; 0, 1 and 2 are possible")
        if marked is not None and not frame.startswith(_SHARE, begin + 2):  # MQTT 5 forbids it there
            marked[at - 1] |= _NO_LOCAL | _AS_PUBLISHED
    return _as_version_5(frame if marked is None else bytes(marked), start)


def _suback(frame: bytes, at: int) -> SubAckPacket:
    packet_id, at = _packet_id(frame, at, "SUBACK")
    codes = frame[at:]
    for code in codes:
        if code not in _GRANTED:
            raise Malformed(f"the SUBACK return code {code:#04x} is reserved")
    if not codes:
        raise ProtocolViolation("a SUBACK must hold at least one return code")
    return SubAckPacket(packet_id, [_GRANTED[code] for code in codes])


def _unsubscribe(frame: bytes, at: int) -> Packet:
    end, start = len(frame), at
    _, at = _packet_id(frame, at, "UNSUBSCRIBE")
    if at == end:
        raise ProtocolViolation("an UNSUBSCRIBE must hold at least one topic filter")
    while at < end:
        at = read_filter(frame, at, end)
    return _as_version_5(frame, start)


def _as_version_5(frame: bytes, at: int) -> Packet:
    """A list of filters, read by the wheel after the packet id got the empty properties that MQTT 5 has there.

    The classes' constructors refuse a filter that is not valid, and the wheel's reader does not; a server must be
    able to refuse one filter and grant the next.
    """
    body = frame[at : at + 2] + b"\0" + frame[at + 2 :]
    first = frame[0] & ~0x08  # DUP, which MQTT 3.1 has here
    packet, _ = mqtt5.read(memoryview(bytes((first,)) + write_varint(len(body)) + body))
    return packet


def _unsuback(frame: bytes, at: int) -> UnsubAckPacket:
    packet_id, at = _packet_id(frame, at, "UNSUBACK")
    _end_here("UNSUBACK", at, len(frame))
    return UnsubAckPacket(packet_id, [])


def _bare(kind: Callable[[], Packet], name: str) -> Callable[[bytes, int], Packet]:
    def read(frame: bytes, at: int) -> Packet:
        _end_here(name, at, len(frame))
        return kind()

    return read


def _packet_id(frame: bytes, at: int, name: str) -> tuple[int, int]:
    packet_id, at = read_u16(frame, at, len(frame), "the packet id")
    if packet_id == 0:
        raise ProtocolViolation(f"the packet id of a {name} is 0; it must be between 1 and 65535")
    return packet_id, at


def _end_here(name: str, at: int, end: int) -> None:
    if at != end:
        raise Malformed(f"{end - at} bytes follow the end of the {name}")


_DECODERS: Final[dict[int, Callable[[bytes, int], Packet]]] = {
    1: _connect,
    2: _connack,
    3: _publish,
    4: _acknowledgement(PubAckPacket, "PUBACK"),
    5: _acknowledgement(PubRecPacket, "PUBREC"),
    6: _acknowledgement(PubRelPacket, "PUBREL"),
    7: _acknowledgement(PubCompPacket, "PUBCOMP"),
    8: _subscribe,
    9: _suback,
    10: _unsubscribe,
    11: _unsuback,
    12: _bare(PingReqPacket, "PINGREQ"),
    13: _bare(PingRespPacket, "PINGRESP"),
    14: _bare(DisconnectPacket, "DISCONNECT"),
}


# ── encoding ─────────────────────────────────────────────────────────────────────────────────────────────────


def _connect_body(packet: ConnectPacket) -> tuple[int, bytes]:
    will, username, password = packet.will, packet.username, packet.password
    if password is not None and username is None:
        raise ValueError("a password needs a user name")
    flags = 0x02 if packet.clean_start else 0
    body = write_string(packet.client_id, "the client id")
    if will is not None:
        flags |= 0x04 | code_of(will.qos) << 3 | (0x20 if will.retain else 0)
        body += write_string(will.topic, "the will topic") + write_binary(
            will.payload or b"", "the will message"
        )
    if username is not None:
        flags |= 0x80
        body += write_string(username, "the user name")
    if password is not None:
        flags |= 0x40
        body += write_binary(password, "the password")
    return 0x10, b"\0\4MQTT\4" + bytes((flags,)) + packet.keep_alive.to_bytes(2, "big") + body


def _connack_body(packet: ConnAckPacket) -> tuple[int, bytes]:
    code = _RETURN_OF_REASON.get(code_of(packet.reason_code), _SERVER_UNAVAILABLE)
    return 0x20, bytes((packet.session_present and code == 0, code))


def _publish_body(packet: PublishPacket) -> tuple[int, bytes]:
    if not packet.topic:
        raise ValueError("the topic is empty, and MQTT 3.1.1 has no topic aliases")
    qos = code_of(packet.qos)
    first = 0x30 | (0x08 if packet.duplicate else 0) | qos << 1 | (0x01 if packet.retain else 0)
    packet_id = write_packet_id(packet.packet_id) if qos else b""
    return first, write_string(packet.topic, "the topic") + packet_id + packet.payload


def _acknowledgement_body(first: int) -> Callable[[Any], tuple[int, bytes]]:
    return lambda packet: (first, write_packet_id(packet.packet_id))


def _subscribe_body(packet: SubscribePacket) -> tuple[int, bytes]:
    if not packet.topic_filters:
        raise ValueError("at least one topic filter is needed")
    body = bytearray(write_packet_id(packet.packet_id))
    for wanted in packet.topic_filters:
        body += write_string(wanted.pattern, "a topic filter")
        body.append(code_of(wanted.max_qos))
    return 0x82, bytes(body)


def _suback_body(packet: SubAckPacket) -> tuple[int, bytes]:
    codes = (code_of(reason) for reason in packet.reason_codes)
    return 0x90, write_packet_id(packet.packet_id) + bytes(min(code, 0x80) for code in codes)


def _unsubscribe_body(packet: UnsubscribePacket) -> tuple[int, bytes]:
    if not packet.patterns:
        raise ValueError("at least one topic filter is needed")
    patterns = (write_string(pattern, "a topic filter") for pattern in packet.patterns)
    return 0xA2, write_packet_id(packet.packet_id) + b"".join(patterns)


def code_of(value: Any) -> int:
    """The number of a QoS or reason code. The stubs call them IntEnums; in truth they only convert to int."""
    return int(value)


_ENCODERS: Final[dict[type[Any], Callable[[Any], tuple[int, bytes]]]] = {
    ConnectPacket: _connect_body,
    ConnAckPacket: _connack_body,
    PublishPacket: _publish_body,
    PubAckPacket: _acknowledgement_body(0x40),
    PubRecPacket: _acknowledgement_body(0x50),
    PubRelPacket: _acknowledgement_body(0x62),
    PubCompPacket: _acknowledgement_body(0x70),
    SubscribePacket: _subscribe_body,
    SubAckPacket: _suback_body,
    UnsubscribePacket: _unsubscribe_body,
    UnsubAckPacket: _acknowledgement_body(0xB0),
    PingReqPacket: lambda _: (0xC0, b""),
    PingRespPacket: lambda _: (0xD0, b""),
    DisconnectPacket: lambda _: (0xE0, b""),
}
