"""Frames of QoS 0 PUBLISH packets, encoded once for a group of subscribers.

    publish_frame(topic, payload, version)       without properties: what nearly all messages are
    forward_frame(packet, version)               a packet that arrived, as it goes on to subscribers

Both raise ``Unencodable`` for a topic that is no string of the protocol, or a frame too long to be said.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqtt5 import PublishPacket

from tocsin.errors import Unencodable
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, Version
from tocsin.wire.mqtt.fields import read_varint, write_string, write_varint

_MEMO_MAX = 4_096  # topics whose bytes are remembered: they repeat, message after message
_MEMO_TOPIC_MAX = 256  # characters of one of them; so the memo takes 8 MB at most

_first_bytes = tuple(bytes((first,)) for first in (0x30, 0x31))
_short_lengths = tuple(bytes((length,)) for length in range(0x80))
_heads: dict[tuple[str, Version], bytes] = {}


def publish_frame(topic: str, payload: bytes, version: Version, *, retain: bool = False) -> bytes:
    """A QoS 0 PUBLISH without properties."""
    head = _heads.get((topic, version)) or _learn(topic, version)
    size = len(head) + len(payload)
    if size < 0x80:
        return b"".join((_first_bytes[retain], _short_lengths[size], head, payload))
    try:
        return b"".join((_first_bytes[retain], write_varint(size), head, payload))
    except ValueError as error:
        raise Unencodable("PUBLISH", version, str(error)) from None


def forward_frame(
    packet: PublishPacket,
    version: Version,
    *,
    retain: bool = False,
    subscription_ids: Sequence[int] = (),
    waited_s: int = 0,
) -> bytes:
    """The packet as subscribers get it at QoS 0: payload and forwarding properties unaltered, no alias, no dup,
    message expiry less ``waited_s``. 3.1.1 receivers get no properties.

    A packet whose expiry has passed is the caller's to drop; its frame would say 0 s.
    """
    if version != V5 or not (subscription_ids or _has_properties(packet)):
        return publish_frame(packet.topic, packet.payload, version, retain=retain)
    expiry_s = packet.message_expiry_interval
    forwarded = PublishPacket(
        packet.topic,
        packet.payload,
        retain=retain,
        payload_format_indicator=packet.payload_format_indicator,
        message_expiry_interval=None if expiry_s is None else max(0, expiry_s - waited_s),
        content_type=packet.content_type,
        response_topic=packet.response_topic,
        correlation_data=packet.correlation_data,
        subscription_ids=list(subscription_ids),
        user_properties=packet.user_properties,
    )
    return encode(forwarded, V5)


def _has_properties(packet: PublishPacket) -> bool:
    """Whether there is anything to forward beside the payload."""
    return bool(
        packet.user_properties
        or packet.message_expiry_interval is not None
        or packet.content_type is not None
        or packet.response_topic is not None
        or packet.correlation_data is not None
        or packet.payload_format_indicator
    )


def _learn(topic: str, version: Version) -> bytes:
    """The topic's bytes with their length; for MQTT 5 an empty set of properties follows."""
    if not topic:
        raise Unencodable("PUBLISH", version, "the topic is empty")
    try:
        head = write_string(topic, "the topic") + (b"\0" if version == V5 else b"")
    except ValueError as error:
        raise Unencodable("PUBLISH", version, str(error)) from None
    if len(topic) <= _MEMO_TOPIC_MAX:
        if len(_heads) >= _MEMO_MAX:
            _heads.clear()
        _heads[topic, version] = head
    return head


def topic_of(frame: bytes) -> bytes:
    """The topic of an MQTT 5 PUBLISH frame, as it is on the wire, without its length."""
    at = _body(frame)
    return frame[at + 2 : at + 2 + int.from_bytes(frame[at : at + 2])]


def aliased_frame(frame: bytes, alias: int, *, known: bool) -> bytes:
    """An MQTT 5 PUBLISH frame that says its topic's number, and the topic itself only if it is not ``known`` yet."""
    at = _body(frame)
    end_of_topic = at + 2 + int.from_bytes(frame[at : at + 2])
    end_of_id = end_of_topic + (2 if frame[0] & 0x06 else 0)
    size, properties = read_varint(frame, end_of_id, len(frame), "the property length")
    body = b"".join(
        (
            b"\0\0" if known else frame[at:end_of_topic],
            frame[end_of_topic:end_of_id],
            write_varint(size + 3),
            b"\x23",
            alias.to_bytes(2),
            frame[properties:],
        )
    )
    return frame[:1] + write_varint(len(body)) + body


def _body(frame: bytes) -> int:
    """Where the body of a frame begins."""
    return read_varint(frame, 1, len(frame), "the remaining length")[1]
