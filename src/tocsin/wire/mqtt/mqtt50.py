"""MQTT 5: the codec of the ``mqtt5`` wheel, behind the checks that it leaves out.

    decode(frame, at) -> Packet      a whole frame, and where its body begins; Malformed or ProtocolViolation
    encode(packet) -> bytes          ValueError if the packet cannot be said

Version 0.8 of the wheel panics on a string that is not UTF-8 (a Rust stack trace on stderr, and an exception that
is no ``Exception``) and on a frame of 2**28 bytes or more; and it does not look at strings that run past the properties
into the payload, U+0000, packet id 0, DUP at QoS 0, wildcards in topic names, reserved bits in CONNECT flags and
subscription options, empty lists of filters, or the range of the payload format indicator. So a frame is walked first
(``_walk``), field by field but without making anything of it, and the packet is looked at afterwards (``_check``). A
PUBLISH without properties never comes here: ``codec`` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import mqtt5
from mqtt5 import (
    ConnectPacket,
    Packet,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tocsin.errors import Malformed, ProtocolViolation, WireError
from tocsin.wire.mqtt.connect import check_connect_flags, check_will_topic
from tocsin.wire.mqtt.fields import (
    VARINT_MAX,
    read_binary,
    read_filter,
    read_string,
    read_u8,
    read_u16,
    read_varint,
    skip_string,
)
from tocsin.wire.mqtt.topics import TopicInvalid, check_topic

PROPERTIES_MAX = 1_000  # in one packet: a bound on the time that a hostile one costs
_FIXED_HEADER_MAX_BYTES = 5

_STRING, _PAIR, _BINARY, _VARINT = -1, -2, -3, -4
# The type of each property: so many bytes, or one of the above (MQTT 5, section 2.2.2.2).
_PROPERTY_FORM: Final = {
    0x01: 1, 0x02: 4, 0x03: _STRING, 0x08: _STRING, 0x09: _BINARY, 0x0B: _VARINT, 0x11: 4, 0x12: _STRING,
    0x13: 2, 0x15: _STRING, 0x16: _BINARY, 0x17: 1, 0x18: 4, 0x19: 1, 0x1A: _STRING, 0x1C: _STRING,
    0x1F: _STRING, 0x21: 2, 0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1, 0x26: _PAIR, 0x27: 4,
    0x28: 1, 0x29: 1, 0x2A: 1,
}  # fmt: skip


def decode(frame: bytes, at: int) -> Packet:
    """One whole frame, whose type and flags are known to be legal, with its body from ``at`` on."""
    _WALKS.get(frame[0] >> 4, _walk_nothing)(frame, at)
    try:
        packet, _ = mqtt5.read(memoryview(frame))
    except (ValueError, IndexError) as error:
        raise _complaint(str(error)) from None
    check = _CHECKS.get(type(packet))
    if check is not None:
        check(packet)
    return packet


def encode(packet: Packet) -> bytes:
    packet_id = getattr(packet, "packet_id", None)
    if packet_id == 0:
        raise ValueError("the packet id must be between 1 and 65535")
    if isinstance(packet, PublishPacket) and len(packet.payload) > VARINT_MAX >> 1:
        # The wheel panics on a frame that the remaining length cannot say; properties and topic fit in the other half.
        raise ValueError(f"a payload of {len(packet.payload)} bytes is more than a packet can carry")
    return packet.write()


def _complaint(words: str) -> WireError:
    """The wheel's words as our error, with the reason code that MQTT 5 has for that fault."""
    if words == "Topic alias must be != 0":
        return ProtocolViolation("the topic alias is 0; it must be between 1 and the announced maximum", 0x94)
    if words == "Not enough bytes":
        return Malformed("a field runs past the end of the packet")
    if words.startswith("Invalid PropertyType value: "):
        return Malformed(f"there is no property {int(words.rpartition(' ')[2]):#04x}")
    if words.startswith("Invalid property type: "):
        # It can be read, and does not belong there: section 1.2 calls that a protocol error, 2.2.2.2 malformed.
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", words.rpartition(" ")[2]).lower()
        return ProtocolViolation(f"the property {name!r} is not allowed in this packet")
    protocol_error = (
        "Duplicate value",
        "Topic alias",
        "Subscription ID",
        "Receive maximum",
        "Maximum packet size",
    )
    unknown = ("Invalid boolean", "Invalid RetainHandling", "Invalid QoS")
    if words.startswith((*protocol_error, *unknown)) or "ReasonCode value" in words:
        return ProtocolViolation(words[0].lower() + words[1:])
    return Malformed(words[0].lower() + words[1:])


# ── before: the frame, field by field ────────────────────────────────────────────────────────────────────────


def _walk_connect(frame: bytes, at: int) -> None:
    end = len(frame)
    at = skip_string(frame, at, end, "the protocol name")
    flags, _ = read_u8(frame, at + 1, end, "the connect flags")
    check_connect_flags(flags)
    at = _walk_properties(frame, at + 4, end)
    at = skip_string(frame, at, end, "the client id")
    if flags & 0x04:
        at = _walk_properties(frame, at, end)
        at = skip_string(frame, at, end, "the will topic")
        _, at = read_binary(frame, at, end, "the will message")
    if flags & 0x80:
        skip_string(frame, at, end, "the user name")


def _walk_connack(frame: bytes, at: int) -> None:
    _walk_properties(frame, at + 2, len(frame))


def _walk_publish(frame: bytes, at: int) -> None:
    """The topic, the packet id and the properties.

    Where all of them are ASCII and the properties end where they should, no string can make the wheel panic and no
    length is written in more bytes than it needs, so that the wheel's own checks do, and those of ``_check_publish``
    for U+0000. That is nearly twice as fast.
    """
    topic, end = at, len(frame)
    length, at = read_u16(frame, at, end, "the length of the topic")
    at += length + (2 if frame[0] & 0x06 else 0)
    if at < end:
        stop = at + 1 + frame[at]
        if stop <= end and frame[topic:stop].isascii() and _end_at(frame, at + 1, stop):
            return
    _, at = read_string(frame, topic, end, "the topic")
    _walk_properties(frame, at + 2 if frame[0] & 0x06 else at, end)


def _end_at(frame: bytes, at: int, stop: int) -> bool:
    """Whether the properties end at ``stop``: the wheel would read on in the payload for a string that is too long."""
    while at < stop:
        form = _PROPERTY_FORM.get(frame[at], _VARINT)
        if form > 0:
            at += 1 + form
            continue
        if form == _VARINT or at + 3 > stop:
            return False
        at += 3 + (frame[at + 1] << 8 | frame[at + 2])
        if form == _PAIR:
            if at + 2 > stop:
                return False
            at += 2 + (frame[at] << 8 | frame[at + 1])
    return at == stop


def _walk_acknowledgement(frame: bytes, at: int) -> None:
    """Packet id, and perhaps a reason code, and perhaps properties."""
    _walk_reason(frame, at + 2)


def _walk_reason(frame: bytes, at: int) -> None:
    if at + 1 < len(frame):
        _walk_properties(frame, at + 1, len(frame))


def _walk_listing(frame: bytes, at: int) -> None:
    """SUBACK and UNSUBACK: packet id, properties, codes."""
    _walk_properties(frame, at + 2, len(frame))


def _walk_subscribe(frame: bytes, at: int) -> None:
    at, end = _walk_properties(frame, at + 2, len(frame)), len(frame)
    while at < end:
        at = read_filter(frame, at, end)
        options, at = read_u8(frame, at, end, "the subscription options")
        if options & 0xC0:
            raise Malformed(f"reserved bits of the subscription options {options:#04x} are set")


def _walk_unsubscribe(frame: bytes, at: int) -> None:
    at = _walk_properties(frame, at + 2, len(frame))
    while at < len(frame):
        at = read_filter(frame, at, len(frame))


def _walk_nothing(frame: bytes, at: int) -> None:
    """PINGREQ and PINGRESP hold nothing, and the wheel sees to it."""


def _walk_properties(frame: bytes, at: int, end: int) -> int:
    """Look at every property; where they end."""
    if at < end and not frame[at]:
        return at + 1  # there are none
    length, at = read_varint(frame, at, end, "the property length")
    stop = at + length
    if stop > end:
        raise Malformed(f"the properties should have {length} bytes, but the packet has only {end - at} left")
    count = 0
    while at < stop:
        count += 1
        if count > PROPERTIES_MAX:
            raise ProtocolViolation(f"a packet has more than {PROPERTIES_MAX} properties", 0x97)
        identifier, at = read_varint(frame, at, stop, "a property identifier")
        form = _PROPERTY_FORM.get(identifier)
        if form is None:
            raise Malformed(f"there is no property {identifier:#04x}")
        if form > 0:
            at += form
        elif form == _BINARY:
            _, at = read_binary(frame, at, stop, f"property {identifier:#04x}")
        elif form == _VARINT:
            _, at = read_varint(frame, at, stop, f"property {identifier:#04x}")
        else:
            at = skip_string(frame, at, stop, f"property {identifier:#04x}")
            if form == _PAIR:
                at = skip_string(frame, at, stop, "the value of a user property")
    if at != stop:
        raise Malformed("the last property runs past the property length")
    return stop


_WALKS: Final[dict[int, Callable[[bytes, int], None]]] = {
    1: _walk_connect,
    2: _walk_connack,
    3: _walk_publish,
    4: _walk_acknowledgement,
    5: _walk_acknowledgement,
    6: _walk_acknowledgement,
    7: _walk_acknowledgement,
    8: _walk_subscribe,
    9: _walk_listing,
    10: _walk_unsubscribe,
    11: _walk_listing,
    14: _walk_reason,
    15: _walk_reason,
}


# ── after: the packet ────────────────────────────────────────────────────────────────────────────────────────


def _check_id(packet: Any) -> None:
    if not packet.packet_id:
        raise ProtocolViolation(f"the packet id of a {_name(packet)} is 0; it must be between 1 and 65535")


def _check_connect(packet: ConnectPacket) -> None:
    if packet.authentication_data is not None and packet.authentication_method is None:
        raise ProtocolViolation("a CONNECT has authentication data, but no authentication method")
    will = packet.will
    if will is not None:
        check_will_topic(will.topic)
        _check_message(will)


def _check_publish(packet: PublishPacket) -> None:
    if packet.qos != QoS.AT_MOST_ONCE:
        _check_id(packet)
    if packet.topic:  # an empty one has an alias, or the wheel would have complained
        check_topic(packet.topic)
    _check_message(packet)


def _check_message(message: PublishPacket | Will) -> None:
    """The properties that a PUBLISH and a will share."""
    if message.payload_format_indicator > 1:
        raise ProtocolViolation(
            f"the payload format indicator is {message.payload_format_indicator}; 0 and 1 are possible"
        )
    if message.response_topic is not None:
        _check_response_topic(message.response_topic)
    if message.content_type is not None and "\0" in message.content_type:
        raise Malformed("the content type holds the character U+0000")
    for name, value in message.user_properties:
        if "\0" in name or "\0" in value:
            raise Malformed("a user property holds the character U+0000")


def _check_response_topic(topic: str) -> None:
    """A response topic is a topic name (3.3.2.3.5). Its errors are not those of the message's own topic."""
    if "\0" in topic:
        raise Malformed("the response topic holds the character U+0000")
    try:
        check_topic(topic)
    except TopicInvalid as error:
        raise ProtocolViolation(f"the response {error.problem}") from None


def _check_list(field: str) -> Callable[[Any], None]:
    def check(packet: Any) -> None:
        _check_id(packet)
        if not getattr(packet, field):
            raise ProtocolViolation(f"the list of a {_name(packet)} is empty; at least one item is needed")

    return check


def _name(packet: Packet) -> str:
    return type(packet).__name__.removesuffix("Packet").upper()


_CHECKS: Final[dict[type[Any], Callable[[Any], None]]] = {
    ConnectPacket: _check_connect,
    PublishPacket: _check_publish,
    PubAckPacket: _check_id,
    PubRecPacket: _check_id,
    PubRelPacket: _check_id,
    PubCompPacket: _check_id,
    SubscribePacket: _check_list("topic_filters"),
    SubAckPacket: _check_list("reason_codes"),
    UnsubscribePacket: _check_list("patterns"),
    UnsubAckPacket: _check_list("reason_codes"),
}
