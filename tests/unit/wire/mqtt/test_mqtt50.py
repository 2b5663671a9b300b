"""What the codec beneath leaves out: each check, and none of them a panic."""

from __future__ import annotations

import pytest
from mqtt5 import PublishPacket, SubscribePacket

from tocsin.errors import Malformed, ProtocolViolation, WireError
from tocsin.wire.mqtt.fields import write_varint
from tocsin.wire.mqtt.mqtt50 import PROPERTIES_MAX, decode, encode


def framed(first: int, body: bytes) -> tuple[bytes, int]:
    head = bytes((first,)) + write_varint(len(body))
    return head + body, len(head)


def connect(properties: bytes = b"", flags: int = 0x02, rest: bytes = b"") -> bytes:
    return b"\x00\x04MQTT\x05" + bytes((flags, 0, 0, len(properties))) + properties + b"\x00\x01c" + rest


BROKEN: list[tuple[int, bytes, type[WireError], int, str]] = [
    (0x10, connect(flags=0x03), Malformed, 0x81, "reserved bit"),
    (0x10, connect(flags=0x1E), Malformed, 0x81, "will's QoS is 3"),
    (0x10, connect(flags=0x22), Malformed, 0x81, "but no will"),
    (0x10, connect(b"\x16\x00\x01x"), ProtocolViolation, 0x82, "no authentication method"),
    (0x10, connect(b"\x21\x00\x00"), ProtocolViolation, 0x82, "receive maximum"),
    (0x10, connect(b"\x27\x00\x00\x00\x00"), ProtocolViolation, 0x82, "maximum packet size"),
    (0x10, connect(b"\x21\x00\x01\x21\x00\x01"), ProtocolViolation, 0x82, "duplicate"),
    (0x10, connect(b"\x17\x02"), ProtocolViolation, 0x82, "invalid boolean"),
    (0x10, connect(b"\x26\x00\x01\xff\x00\x00"), Malformed, 0x81, "not UTF-8"),
    (0x10, connect(flags=0x06, rest=b"\x00\x00\x01#\x00\x00"), ProtocolViolation, 0x90, "the will's topic"),
    (0x10, connect(flags=0x82, rest=b"\x00\x01\xff"), Malformed, 0x81, "the user name is not UTF-8"),
    (0x10, connect(flags=0x82), Malformed, 0x81, "the user name"),
    (0x10, connect()[:-1], Malformed, 0x81, "the client id"),
    (0x30, b"\x00\x02\xc3\xa9\x02\x23\x00", Malformed, 0x81, "runs past"),
    (0x30, b"\x00\x01a\x06\x26\x00\x01\xff\x00\x00", Malformed, 0x81, "not UTF-8"),
    (0x30, b"\x00\x01a\x07\x26\x00\x00\x00\x02b\x00", Malformed, 0x81, "U+0000"),
    (0x30, b"\x00\x02\xc3\xa9\x07\x26\x00\x00\x00\x02b\x00", Malformed, 0x81, "U+0000"),
    (0x30, b"\x00\x01a\x05\x03\x00\x14ab" + b"\xaf" * 20, Malformed, 0x81, "only 2 left"),
    (0x30, b"\x00\x01a\x05\x03\x00\x14ab" + b"x" * 20, Malformed, 0x81, "only 2 left"),
    (0x30, b"\x00\x01a\x06\x26\x00\x00\x00\x02b" + b"\xaf" * 20, Malformed, 0x81, "only 1 left"),
    (0x30, b"\x00\x01a\x04\x26\x00\x00\x00" + b"\xaf" * 20, Malformed, 0x81, "the length of the value"),
    (0x30, b"\x00\x01a\x02\x03\x00" + b"\xaf" * 20, Malformed, 0x81, "the length of property"),
    (0x30, b"\x00\x01a\x02\x24\x00", ProtocolViolation, 0x82, "property"),
    (0x30, b"\x00\x01a\x81\x00", Malformed, 0x81, "more bytes than it needs"),
    (0x30, b"\x00\x01a", Malformed, 0x81, "the property length"),
    (0x30, b"", Malformed, 0x81, "the length of the topic"),
    (0x82, b"\x00\x01\x02\x0b\x00\x00\x01a\x00", ProtocolViolation, 0x82, "subscription ID"),
    (0x82, b"\x00\x01\x00\x00\x01a\x30", ProtocolViolation, 0x82, "RetainHandling"),
    (0x82, b"\x00\x01\x00\x00\x01a\x03", ProtocolViolation, 0x82, "QoS"),
    (0x82, b"\x00\x01\x00\x00\x01\xff\x00", Malformed, 0x81, "a topic filter is not UTF-8"),
    (0xA2, b"\x00\x01\x00\x00\x01\xff", Malformed, 0x81, "a topic filter is not UTF-8"),
    (0x40, b"\x00\x00", ProtocolViolation, 0x82, "packet id of a PUBACK is 0"),
    (0x40, b"\x00\x01\x03", ProtocolViolation, 0x82, "PubAckReasonCode"),
    (0x90, b"\x00\x01\x00", ProtocolViolation, 0x82, "the list of a SUBACK is empty"),
    (0xE0, b"\x00\x04\x1f\x00\x01\xff", Malformed, 0x81, "not UTF-8"),
    (0xF0, b"\x18\x04\x15\x00\x01\xff", Malformed, 0x81, "not UTF-8"),
    (0x20, b"\x00\x00\x04\x1f\x00\x01\xff", Malformed, 0x81, "not UTF-8"),
]


@pytest.mark.parametrize(("first", "body", "kind", "code", "words"), BROKEN)
def test_a_broken_packet_is_named(
    first: int, body: bytes, kind: type[WireError], code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind) as caught:
        decode(*framed(first, body))
    assert caught.value.reason_code == code
    assert words in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("topic", [b"a", "é".encode()])
def test_the_number_of_properties_is_bounded(topic: bytes) -> None:
    def publish(count: int) -> tuple[bytes, int]:
        properties = b"\x26\x00\x00\x00\x00" * count
        name = len(topic).to_bytes(2, "big") + topic
        return framed(0x30, name + write_varint(len(properties)) + properties)

    packet = decode(*publish(PROPERTIES_MAX))
    assert isinstance(packet, PublishPacket)
    assert len(packet.user_properties) == PROPERTIES_MAX
    with pytest.raises(ProtocolViolation, match="more than 1000 properties") as caught:
        decode(*publish(PROPERTIES_MAX + 1))
    assert caught.value.reason_code == 0x97


def test_a_filter_that_is_not_valid_can_still_be_read() -> None:
    packet = decode(*framed(0x82, b"\x00\x01\x00\x00\x02a#\x00"))
    assert isinstance(packet, SubscribePacket)
    assert packet.topic_filters[0].pattern == "a#"


def test_a_payload_too_large_to_be_said_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="more than a packet can carry"):
        encode(PublishPacket("a", bytes((1 << 27) + 1)))
