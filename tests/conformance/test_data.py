"""Chapters 1 and 2: strings, numbers, flags, packet ids, properties."""

from __future__ import annotations

import pytest
from mqtt5 import (
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.conformance.speech import (
    BOTH,
    ILL_FORMED,
    LONE_SURROGATE,
    MALFORMED,
    NO_PROPERTIES,
    NUL,
    PROTOCOL_ERROR,
    connect_frame,
    fate,
    fate_of_connect,
    properties,
    said,
)
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import ONE, TWO, frame, publish, receive, text
from tocsin.wire.mqtt.connect import V5, V311, Version

ID = b"\0\7"


@pytest.mark.mqtt("1.5.4-1", "3.3.2-1", "3.8.3-1", "3.10.3-1")
@pytest.mark.mqtt311("1.5.3-1", "3.3.2-1", "3.8.3-1", "3.10.3-1")
@BOTH
@pytest.mark.parametrize("bad", ILL_FORMED)
async def test_text_that_is_not_utf_8_ends_the_connection(door: Door, version: Version, bad: bytes) -> None:
    for packet in (
        frame(0x30, text(bad), properties(version), b"x"),
        frame(0x32, text(bad), ID, properties(version), b"x"),
        frame(0x82, ID, properties(version), text(bad), b"\0"),
        frame(0xA2, ID, properties(version), text(bad)),
    ):
        assert await fate(door, packet, version) == said(MALFORMED, version)


@pytest.mark.mqtt("1.5.4-1", "1.5.4-2", "3.1.3-4", "3.1.3-11", "3.1.3-12")
@pytest.mark.mqtt311("1.5.3-1", "1.5.3-2", "3.1.3-4", "3.1.3-10", "3.1.3-11")
@BOTH
@pytest.mark.parametrize("bad", [*ILL_FORMED, NUL])
async def test_invalid_utf_8_or_a_nul_in_a_connect_ends_the_connection(
    door: Door, version: Version, bad: bytes
) -> None:
    will = properties(version)
    for connect in (
        connect_frame(version, text(bad)),
        connect_frame(version, text("c"), will, text(bad), text("bye"), flags=0x06),
        connect_frame(version, text("c"), text(bad), flags=0x82),
    ):
        code = await fate_of_connect(door, connect, version)
        assert code == said(MALFORMED, version) or (bad == NUL and code == 0x90)


@pytest.mark.mqtt("1.5.4-2", "4.7.3-2")
@pytest.mark.mqtt311("1.5.3-2", "4.7.3-2")
@BOTH
async def test_text_with_a_nul_ends_the_connection(door: Door, version: Version) -> None:
    for packet in (
        frame(0x30, text(NUL), properties(version), b"x"),
        frame(0x82, ID, properties(version), text(NUL), b"\0"),
        frame(0xA2, ID, properties(version), text(NUL)),
    ):
        code = await fate(door, packet, version)
        assert code == said(MALFORMED, version) or code in (0x8F, 0x90)


@pytest.mark.mqtt("1.5.4-3", "4.7.3-4")
@pytest.mark.mqtt311("1.5.3-3")
@BOTH
async def test_a_byte_order_mark_is_a_character_like_any_other(door: Door, version: Version) -> None:
    subscriber, publisher = await door.peer("s", version=version), await door.peer("p", version=version)
    await subscriber.subscribe(TopicFilter("\ufeffa"))
    publisher.send(PublishPacket("a", b"without"), PublishPacket("\ufeffa", b"with"))
    packet = await subscriber.receive(PublishPacket)
    assert (packet.topic, packet.payload) == ("\ufeffa", b"with")


@pytest.mark.mqtt("1.5.5-1")
async def test_a_number_in_more_bytes_than_it_needs_is_malformed(door: Door) -> None:
    assert await fate(door, b"\xc0\x80\x00") == MALFORMED
    assert await fate(door, b"\x30\x85\x00" + text("a") + NO_PROPERTIES) == MALFORMED
    assert await fate(door, b"\x30\xff\xff\xff\xff\x7f") == MALFORMED
    long_identifier = b"\x8b\x00\x01"  # property 11 in two bytes
    assert await fate(door, frame(0x82, ID, bytes((3,)), long_identifier, text("a"), b"\0")) == MALFORMED


@pytest.mark.mqtt("1.5.5-1", "2.2.1-2", "2.2.2-1")
async def test_the_broker_encodes_lengths_in_as_few_bytes_as_possible(door: Door) -> None:
    subscriber, publisher = await door.peer("s"), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a"))
    for size in (1, 123, 124, 16_379, 16_380):
        publisher.send(PublishPacket("a", bytes(size)))
        expected = frame(0x30, text("a"), NO_PROPERTIES, bytes(size))  # no packet id, no properties
        assert await subscriber.reader.readexactly(len(expected)) == expected


@pytest.mark.mqtt("1.5.7-1", "3.3.2-13", "3.3.2-19")
@pytest.mark.parametrize("bad", [*ILL_FORMED, NUL])
async def test_invalid_utf_8_or_a_nul_in_a_property_ends_the_connection(door: Door, bad: bytes) -> None:
    pair_name = b"\x26" + text(bad) + text("v")
    pair_value = b"\x26" + text("k") + text(bad)
    response_topic, content_type = b"\x08" + text(bad), b"\x03" + text(bad)
    for raw in (pair_name, pair_value, content_type, response_topic):
        code = await fate(door, frame(0x30, text("a"), properties(V5, raw), b"x"))
        assert code == MALFORMED
    assert await fate_of_connect(door, connect_frame(V5, text("c"), raw=pair_name)) == MALFORMED


@pytest.mark.mqtt("2.1.3-1", "3.6.1-1", "3.8.1-1", "3.10.1-1", "3.14.1-1", "3.15.1-1")
@pytest.mark.mqtt311("2.2.2-1", "2.2.2-2", "3.6.1-1", "3.8.1-1", "3.10.1-1", "3.14.1-1")
@BOTH
async def test_flags_that_are_reserved_have_the_value_that_the_standard_gives_them(
    door: Door, version: Version
) -> None:
    bodies = {
        0x40: ID, 0x50: ID, 0x60: ID, 0x70: ID, 0xC0: b"", 0xE0: b"",
        0x80: ID + properties(version) + text("a") + b"\0", 0xA0: ID + properties(version) + text("a"),
    }  # fmt: skip
    if version == V5:
        bodies[0xF0] = b""
    for kind, body in bodies.items():
        right = 0x02 if kind in (0x60, 0x80, 0xA0) else 0
        for flags in {0x0, 0x1, 0x2, 0x4, 0x8, 0xF} - {right}:
            assert await fate(door, frame(kind | flags, body), version) == said(MALFORMED, version)


@pytest.mark.mqtt("2.2.1-3")
@pytest.mark.mqtt311("2.3.1-1")
@BOTH
async def test_packet_id_0_is_a_protocol_error(door: Door, version: Version) -> None:
    none = b"\0\0"
    for packet in (
        frame(0x32, text("a"), none, properties(version), b"x"),
        frame(0x34, text("a"), none, properties(version), b"x"),
        frame(0x82, none, properties(version), text("a"), b"\0"),
        frame(0xA2, none, properties(version), text("a")),
    ):
        assert await fate(door, packet, version) == said(PROTOCOL_ERROR, version)


@pytest.mark.mqtt("2.2.1-4", "4.3.2-1", "4.3.3-1")
@pytest.mark.mqtt311("2.3.1-4")
@BOTH
async def test_messages_under_way_to_a_client_have_different_ids(door: Door, version: Version) -> None:
    subscriber, publisher = await door.peer("s", version=version), await door.peer("p", version=version)
    await subscriber.subscribe(TopicFilter("a", max_qos=TWO))
    for number in range(20):
        await publish(publisher, "a", b"x", (ONE, TWO)[number % 2])
    heard = [await subscriber.receive(PublishPacket) for _ in range(20)]
    ids = {packet.packet_id for packet in heard}
    assert len(ids) == 20 and None not in ids and 0 not in ids


@pytest.mark.mqtt("2.2.1-5", "2.2.1-6", "3.8.4-1", "3.8.4-2", "3.10.4-4", "3.10.4-5")
@pytest.mark.mqtt311("2.3.1-6", "2.3.1-7", "3.8.4-1", "3.8.4-2", "3.10.4-4", "3.10.4-5")
@BOTH
async def test_every_answer_has_the_id_of_what_it_answers(door: Door, version: Version) -> None:
    peer = await door.peer("c", version=version)
    peer.send(SubscribePacket(65_535, [TopicFilter("a", max_qos=TWO)]))
    assert (await peer.receive(SubAckPacket)).packet_id == 65_535
    await publish(peer, "b", b"x", ONE, packet_id=258)
    await publish(peer, "b", b"x", TWO, packet_id=259)
    await publish(peer, "a", b"x", TWO, packet_id=260)
    await receive(peer)
    peer.send(UnsubscribePacket(257, ["nothing"]))
    assert (await peer.receive(UnsubAckPacket)).packet_id == 257


@pytest.mark.mqtt("2.2.2-1")
async def test_a_packet_needs_a_property_length(door: Door) -> None:
    assert await fate(door, frame(0x82, ID)) in (MALFORMED, PROTOCOL_ERROR)
    assert await fate(door, frame(0x30, text("a"))) == MALFORMED


@pytest.mark.mqtt("1.5.4-1")
async def test_text_with_a_surrogate_in_a_reason_is_refused_too(door: Door) -> None:
    reason = properties(V5, b"\x1f" + text(LONE_SURROGATE))
    assert await fate(door, frame(0xE0, b"\0", reason)) == MALFORMED


@pytest.mark.mqtt311("2.3.1-5")
async def test_a_message_at_qos_0_has_no_packet_id(door: Door) -> None:
    subscriber, publisher = await door.peer("s", version=V311), await door.peer("p", version=V311)
    await subscriber.subscribe(TopicFilter("a"))
    publisher.send(PublishPacket("a", b"x"))
    expected = frame(0x30, text("a"), b"x")
    assert await subscriber.reader.readexactly(len(expected)) == expected
    for kind in (PubAckPacket, PubRecPacket, PubRelPacket):
        subscriber.send(kind(9))  # of nothing: answered or not, it does no harm
    await subscriber.first(PubRelPacket)
