"""Whatever a peer or a caller gets wrong: refused, with the reason code and the words."""

from __future__ import annotations

import pytest
from mqtt5 import AuthPacket, ConnectPacket, Packet, PingReqPacket, PubAckPacket, PublishPacket

from tocsin.errors import Malformed, PacketTooLarge, ProtocolViolation, Unencodable, WireError
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5, V311, Version
from tocsin.wire.mqtt.fields import write_varint

LIMIT = 1 << 16


CONNECTED: list[tuple[Version, bytes, type[WireError], int, str]] = [
    (V5, b"\x00\x00", Malformed, 0x81, "packet type 0 is reserved"),
    (V311, b"\xf0\x00", Malformed, 0x81, "packet type 15 is reserved"),
    (V5, b"\x20\x00", ProtocolViolation, 0x82, "a server does not receive CONNACK"),
    (V311, b"\xd0\x00", ProtocolViolation, 0x82, "a server does not receive PINGRESP"),
    (V5, b"\x36\x00", Malformed, 0x81, "the flags of a PUBLISH"),  # QoS 3
    (V5, b"\x38\x00", Malformed, 0x81, "the flags of a PUBLISH"),  # DUP at QoS 0
    (V311, b"\x80\x00", Malformed, 0x81, "the flags of a SUBSCRIBE"),
    (V5, b"\x30\xff\xff\xff\xff", Malformed, 0x81, "longer than four bytes"),
    (V311, b"\x30\x80\x00", Malformed, 0x81, "more bytes than it needs"),
    (V5, b"\x30\x04\x00\x01+\x00", ProtocolViolation, 0x90, "wildcard + at position 0"),
    (V311, b"\x30\x05\x00\x03a/#", ProtocolViolation, 0x90, "wildcard # at position 2"),
    (V5, b"\x30\x05\x00\x02a\x00\x00", Malformed, 0x81, "U+0000 at position 1"),
    (V5, b"\x30\x05\x00\x02\xc3\x28\x00", Malformed, 0x81, "the topic is not UTF-8"),
    (V311, b"\x30\x05\x00\x03\xed\xa0\x80", Malformed, 0x81, "the topic is not UTF-8"),  # a surrogate
    (V5, b"\x30\x03\x00\x00\x00", ProtocolViolation, 0x82, "topic alias must be set"),
    (V5, b"\x30\x08\x00\x00\x00hello", ProtocolViolation, 0x82, "topic alias must be set"),
    (V311, b"\x30\x02\x00\x00", ProtocolViolation, 0x90, "empty"),
    (V5, b"\x30\x06\x00\x00\x03\x23\x00\x00", ProtocolViolation, 0x94, "topic alias is 0"),
    (V5, b"\x32\x06\x00\x01a\x00\x00\x00", ProtocolViolation, 0x82, "packet id of a PUBLISH is 0"),
    (V311, b"\x32\x05\x00\x01a\x00\x00", ProtocolViolation, 0x82, "packet id of a PUBLISH is 0"),
    (V5, b"\x30\x06\x00\x01a\x02\x01\x02", ProtocolViolation, 0x82, "payload format indicator is 2"),
    (V5, b"\x30\x06\x00\x01a\x02\x0b\x05", ProtocolViolation, 0x82, "subscription identifiers"),
    (V5, b"\x30\x08\x00\x01a\x04\x08\x00\x01+", ProtocolViolation, 0x82, "the response topic"),
    (V5, b"\xe0\x01\x05", ProtocolViolation, 0x82, "DisconnectReasonCode value: 5"),
    (V5, b"\x50\x03\x00\x01\xff", ProtocolViolation, 0x82, "PubRecReasonCode value: 255"),
    (V5, b"\x82\x06\x00\x01\x00\x00\x00\x00", Malformed, 0x81, "a topic filter is empty"),
    (V311, b"\x82\x05\x00\x01\x00\x00\x00", Malformed, 0x81, "a topic filter is empty"),
    (V5, b"\xa2\x08\x00\x01\x00\x00\x01a\x00\x00", Malformed, 0x81, "a topic filter is empty"),
    (V311, b"\xa2\x04\x00\x01\x00\x00", Malformed, 0x81, "a topic filter is empty"),
    (
        V5,
        b"\x30\x08\x00\x01a\x04\x03\x00\x01\x00",
        Malformed,
        0x81,
        "content type holds the character U+0000",
    ),
    (V5, b"\x30\x05\x00\x01a\x01\x7f", Malformed, 0x81, "property"),
    (V5, b"\x30\x04\x00\x05a\x00", Malformed, 0x81, "the topic should have 5 bytes"),
    (V5, b"\x82\x03\x00\x01\x00", ProtocolViolation, 0x82, "SUBSCRIBE"),
    (V311, b"\x82\x02\x00\x01", ProtocolViolation, 0x82, "at least one topic filter"),
    (V311, b"\x82\x06\x00\x01\x00\x01a\x03", Malformed, 0x81, "requested QoS byte is 0x03"),
    (V5, b"\x82\x07\x00\x01\x00\x00\x01a\x40", Malformed, 0x81, "reserved bits of the subscription options"),
    (V5, b"\x82\x07\x00\x00\x00\x00\x01a\x00", ProtocolViolation, 0x82, "packet id of a SUBSCRIBE is 0"),
    (V311, b"\xa2\x02\x00\x01", ProtocolViolation, 0x82, "at least one topic filter"),
    (V5, b"\xa2\x06\x00\x00\x00\x00\x01a", ProtocolViolation, 0x82, "packet id of a UNSUBSCRIBE is 0"),
    (V311, b"\x40\x02\x00\x00", ProtocolViolation, 0x82, "packet id of a PUBACK is 0"),
    (V311, b"\x40\x03\x00\x01\x00", Malformed, 0x81, "1 bytes follow the end of the PUBACK"),
    (V5, b"\xc0\x01\x00", Malformed, 0x81, "remaining length"),
    (V311, b"\xe0\x01\x00", Malformed, 0x81, "1 bytes follow the end of the DISCONNECT"),
]


@pytest.mark.parametrize(("version", "data", "kind", "code", "words"), CONNECTED)
def test_a_mistake_of_the_peer_is_named(
    version: Version, data: bytes, kind: type[WireError], code: int, words: str
) -> None:
    decoder = Decoder(LIMIT)
    decoder.feed(encode(ConnectPacket("c"), version))
    (error,) = decoder.feed(data)
    assert isinstance(error, kind)
    assert error.reason_code == code
    assert words in str(error)


def test_the_first_packet_must_be_connect() -> None:
    (error,) = Decoder(LIMIT).feed(b"\xc0\x00")
    assert isinstance(error, ProtocolViolation)
    assert "the first packet must be CONNECT, not PINGREQ" in str(error)


def test_a_web_browser_is_refused_at_its_first_letter() -> None:
    (error,) = Decoder(LIMIT).feed(b"G")
    assert isinstance(error, WireError)


def test_an_error_comes_after_the_packets_before_it() -> None:
    decoder = Decoder(LIMIT)
    connect, ping = ConnectPacket("c", clean_start=True), PingReqPacket()
    items = decoder.feed(encode(connect, V311) + encode(ping, V311) + b"\x00\x00")
    assert items[:2] == [connect, ping]
    assert isinstance(items[2], Malformed)


def test_a_client_must_say_which_version_it_speaks() -> None:
    with pytest.raises(ValueError, match="version"):
        Decoder(LIMIT, role="client")


UNSAYABLE: list[tuple[Packet, Version, str]] = [
    (PubAckPacket(0), V5, "packet id"),
    (PubAckPacket(0), V311, "packet id"),
    (AuthPacket(), V311, "no such packet"),
    (ConnectPacket("c", password=b"p"), V311, "a password needs a user name"),
    (PublishPacket("", b"", topic_alias=1), V311, "no topic aliases"),
    (PublishPacket("a\0", b""), V311, "U+0000"),
    (ConnectPacket("a\0"), V311, "U+0000"),
]


@pytest.mark.parametrize(("packet", "version", "words"), UNSAYABLE)
def test_what_cannot_be_said_is_unencodable(packet: Packet, version: Version, words: str) -> None:
    with pytest.raises(Unencodable, match="cannot be encoded") as caught:
        encode(packet, version)
    assert words in str(caught.value)
    assert caught.value.version == version


def body_of(version: Version, size: int, packet_id: bytes = b"") -> bytes:
    """The body of a PUBLISH to ``known``, of this size."""
    head = b"\x00\x05known" + packet_id + (b"\x00" if version == V5 else b"")
    return head + b"x" * (size - len(head))


def acquainted(version: Version, limit: int = LIMIT) -> Decoder:
    """A decoder that has met the topic ``known``, so that the next PUBLISH to it takes the shortest way."""
    decoder = Decoder(limit)
    decoder.feed(encode(ConnectPacket("c"), version))
    assert decoder.feed(b"\x30\x14" + body_of(version, 20)) == [
        PublishPacket("known", b"x" * (12 if version == V5 else 13))
    ]
    return decoder


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("flags", range(16))
def test_a_whole_publish_to_a_known_topic_has_its_flags_checked(version: Version, flags: int) -> None:
    qos = flags >> 1 & 3
    body = body_of(version, 20, b"\x00\x07" if qos else b"")
    (item,) = acquainted(version).feed(bytes((0x30 | flags, len(body))) + body)
    if qos == 3 or (flags & 0x08 and not qos):
        assert isinstance(item, Malformed)
        assert "the flags of a PUBLISH" in str(item)
    else:
        assert isinstance(item, PublishPacket)
        assert (int(item.qos), item.retain, item.duplicate) == (qos, bool(flags & 1), bool(flags & 8))
        assert item.packet_id == (7 if qos else None)


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("padding", [b"\x00", b"\x80\x00", b"\x80\x80\x00"])
def test_a_whole_publish_to_a_known_topic_has_its_length_checked(version: Version, padding: bytes) -> None:
    frame = b"\x30" + bytes((0x80 | 20,)) + padding + body_of(version, 20)
    (error,) = acquainted(version).feed(frame)
    assert isinstance(error, Malformed)
    assert "more bytes than it needs" in str(error)


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("size", [60, 126, 127, 128, 129, 1_000, 16_382, 16_383, 16_384, 20_000])
def test_a_whole_publish_to_a_known_topic_is_held_to_the_limit(version: Version, size: int) -> None:
    frame = b"\x30" + write_varint(size) + body_of(version, size)
    for spare in (-2, -1, 0, 1, 2):
        (item,) = acquainted(version, len(frame) + spare).feed(frame)
        if spare < 0:
            assert isinstance(item, PacketTooLarge)
            assert (item.size, item.limit) == (len(frame), len(frame) + spare)
        else:
            assert isinstance(item, PublishPacket)
            assert item.topic == "known"


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("first", [0x82, 0xA2])
def test_a_packet_of_too_many_filters_is_refused_before_they_are_read(version: Version, first: int) -> None:
    one = b"\x00\x01a" + (b"\x00" if first == 0x82 else b"")
    for count, refused in ((1_000, False), (1_001, True), (200_000, True)):
        body = b"\x00\x01" + (b"\x00" if version == V5 else b"") + one * count
        decoder = Decoder(1 << 21)
        decoder.feed(encode(ConnectPacket("c"), version))
        length, said = len(body), bytearray()
        while length:
            said.append(length & 0x7F | (0x80 if length > 0x7F else 0))
            length >>= 7
        (item,) = decoder.feed(bytes((first, *said)) + body)
        assert isinstance(item, WireError) == refused
        assert not isinstance(item, WireError) or item.reason_code == 0x97
