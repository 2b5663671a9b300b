"""Chapter 3.3: PUBLISH."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    QoS,
    TopicFilter,
)

from tests.conformance.speech import BOTH, MALFORMED, PROTOCOL_ERROR, fate, properties, said
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import (
    ONE,
    TWO,
    ZERO,
    frame,
    lasting,
    nothing_more,
    publish,
    receive,
    text,
)
from tocsin.config import Limits
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version

EVERY_QOS = pytest.mark.parametrize("qos", [ZERO, ONE, TWO])


# ── flags ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.3.1-1", "3.3.1-3", "4.3.2-2", "4.3.3-2", "4.4.0-1", "4.3.2-3", "4.3.3-3")
@pytest.mark.mqtt311("3.3.1-1", "3.3.1-3", "4.3.2-1", "4.3.3-1", "4.4.0-1")
@BOTH
@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_the_dup_flag_is_set_on_repeats_only(door: Door, version: Version, qos: QoS) -> None:
    connect = lasting("s") if version == V5 else ConnectPacket("s")
    subscriber, publisher = await door.peer(connect=connect, version=version), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=qos))
    publisher.send(PublishPacket("a", b"x", qos=qos, packet_id=1, duplicate=True))
    first = await subscriber.receive(PublishPacket)
    assert not first.duplicate, "whether the publisher repeated it is another matter"
    await nothing_more(subscriber)
    subscriber.close()
    again = await door.peer(connect=connect, version=version)
    repeat = await receive(again)
    assert (repeat.duplicate, repeat.packet_id, repeat.payload) == (True, first.packet_id, b"x")
    await nothing_more(again)


@pytest.mark.mqtt("3.3.1-2", "4.3.1-1")
@pytest.mark.mqtt311("3.3.1-2", "4.3.1-1")
@BOTH
async def test_a_message_at_qos_0_is_never_a_repeat(door: Door, version: Version) -> None:
    assert await fate(door, frame(0x38, text("a"), properties(version)), version) == said(MALFORMED, version)
    subscriber, publisher = await door.peer("s", version=version), await door.peer("p", version=version)
    await subscriber.subscribe(TopicFilter("a", max_qos=ZERO))
    publisher.send(PublishPacket("a", b"0"))
    await publish(publisher, "a", b"1")
    heard = [await subscriber.receive(PublishPacket) for _ in range(2)]
    assert [(packet.qos, packet.duplicate) for packet in heard] == [(ZERO, False)] * 2


@pytest.mark.mqtt("3.3.1-4")
@pytest.mark.mqtt311("3.3.1-4")
@BOTH
async def test_qos_3_is_malformed(door: Door, version: Version) -> None:
    for first in (0x36, 0x3E):
        packet = frame(first, text("a"), b"\0\1", properties(version))
        assert await fate(door, packet, version) == said(MALFORMED, version)


# ── topics ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.3.2-2", "4.7.0-1", "4.7.3-1")
@pytest.mark.mqtt311("3.3.2-2", "4.7.1-1", "4.7.3-1")
@BOTH
@EVERY_QOS
@pytest.mark.parametrize("topic", ["a/+", "#", "a/#/b", ""])
async def test_a_topic_with_wildcards_or_of_nothing_ends_the_connection(
    door: Door, version: Version, qos: QoS, topic: str
) -> None:
    packet_id = b"\0\1" if qos != ZERO else b""
    packet = frame(0x30 | int(qos) << 1, text(topic), packet_id, properties(version))
    expected = said(0x90 if topic else PROTOCOL_ERROR, version)
    assert await fate(door, packet, version) == expected


@pytest.mark.mqtt("3.3.2-3")
@pytest.mark.mqtt311("3.3.2-3")
@BOTH
async def test_a_message_has_the_topic_that_it_was_published_to(door: Door, version: Version) -> None:
    subscriber, publisher = await door.peer("s", version=version), await door.peer("p", version=version)
    await subscriber.subscribe(TopicFilter("a/+/#", max_qos=ONE))
    topics = ["a/b", "a//c", "a/B/ d", "a/b/c/d/"]
    for number, topic in enumerate(topics, 1):
        await publish(publisher, topic, b"x", packet_id=number)
    assert [(await receive(subscriber)).topic for _ in topics] == topics


# ── properties ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-18", "3.3.2-20")
@EVERY_QOS
async def test_the_properties_of_a_message_arrive_as_they_were_sent(door: Door, qos: QoS) -> None:
    subscriber, publisher = await door.peer("s"), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=TWO))
    pairs = [("b", "2"), ("a", "1"), ("b", "2"), ("", "")]
    publisher.send(
        PublishPacket(
            "a",
            b"x",
            qos=qos,
            packet_id=1 if qos != ZERO else None,
            payload_format_indicator=1,
            content_type="text/plain",
            response_topic="answers/1",
            correlation_data=b"\0\xff",
            user_properties=pairs,
        )
    )
    packet = await receive(subscriber)
    assert packet.payload_format_indicator == 1
    assert (packet.content_type, packet.response_topic) == ("text/plain", "answers/1")
    assert (packet.correlation_data, packet.user_properties) == (b"\0\xff", pairs)


@pytest.mark.mqtt("3.3.2-5", "3.3.2-6", "4.3.3-13")
@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_an_expired_message_is_dropped_and_others_carry_their_remaining_lifetime(
    door: Door, qos: QoS
) -> None:
    subscriber, publisher = await door.peer(connect=lasting("s")), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=qos))
    subscriber.close()
    for number, (payload, expiry_s) in enumerate(((b"short", 1), (b"long", 1_000), (b"ever", None)), 1):
        publisher.send(
            PublishPacket("a", payload, qos=qos, packet_id=number, message_expiry_interval=expiry_s)
        )
        await publisher.next()
    await asyncio.sleep(1.1)  # what expires is counted in seconds
    again = await door.peer(connect=lasting("s"))
    heard = [await receive(again) for _ in range(2)]
    await nothing_more(again)
    assert [packet.payload for packet in heard] == [b"long", b"ever"]
    assert heard[0].message_expiry_interval is not None and heard[0].message_expiry_interval < 1_000
    assert heard[1].message_expiry_interval is None


@pytest.mark.mqtt("3.3.2-7", "3.3.2-12")
async def test_a_topic_told_by_number_is_known_on_that_connection_only() -> None:
    async with Door(Limits(topic_alias_max=3)) as door:
        subscriber, publisher = await door.peer("s"), await door.peer(connect=lasting("p"))
        await subscriber.subscribe(TopicFilter("a/#"))
        for number in (1, 2, 3):
            publisher.send(PublishPacket(f"a/{number}", b"by name", topic_alias=number))
        for number in (3, 1, 2):
            publisher.send(PublishPacket("", b"by number", topic_alias=number))
        publisher.send(
            PublishPacket("a/9", b"by name", topic_alias=1), PublishPacket("", b"x", topic_alias=1)
        )
        heard = [(await subscriber.receive(PublishPacket)).topic for _ in range(8)]
        assert heard == ["a/1", "a/2", "a/3", "a/3", "a/1", "a/2", "a/9", "a/9"]
        publisher.close()
        again = await door.peer(connect=lasting("p"))
        again.send(PublishPacket("", b"x", topic_alias=1))
        assert int((await again.next()).reason_code) == PROTOCOL_ERROR  # type: ignore[union-attr]


@pytest.mark.mqtt("3.3.2-8", "3.3.2-9", "3.2.2-17", "3.2.2-18")
async def test_a_number_that_is_0_or_over_the_maximum_ends_the_connection() -> None:
    for most in (0, 2):
        async with Door(Limits(topic_alias_max=most)) as door:
            peer = await door.peer("c", accepted=False)
            assert (await peer.receive(ConnAckPacket)).topic_alias_max == most
            for number in (0, most + 1, 65_535):
                raw = b"\x23" + number.to_bytes(2)
                assert await fate(door, frame(0x30, text("a"), properties(V5, raw))) == 0x94


@pytest.mark.mqtt("3.3.2-14")
@pytest.mark.parametrize("topic", ["a/+", "#"])
async def test_an_answer_cannot_be_wanted_on_a_topic_with_wildcards(door: Door, topic: str) -> None:
    raw = b"\x08" + text(topic)
    assert await fate(door, frame(0x30, text("a"), properties(V5, raw))) == PROTOCOL_ERROR


@pytest.mark.mqtt("4.13.1-1")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\x01\x02", PROTOCOL_ERROR),  # payload format indicator 2
        (b"\x01\x00\x01\x00", PROTOCOL_ERROR),  # twice
        (b"\x02\0\0\0\1\x02\0\0\0\1", PROTOCOL_ERROR),  # message expiry interval twice
        (b"\x11\0\0\0\1", PROTOCOL_ERROR),  # a session expiry interval, which belongs to CONNECT
    ],
)
async def test_a_message_with_properties_that_cannot_be_ends_the_connection(
    door: Door, raw: bytes, code: int
) -> None:
    assert await fate(door, frame(0x30, text("a"), properties(V5, raw))) == code


# ── what is done with it ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.3.4-1", "4.3.2-4", "4.3.3-8", "3.4.2-1", "3.5.2-1")
@pytest.mark.mqtt311("3.3.4-1", "4.3.2-2", "4.3.3-2")
@BOTH
async def test_a_message_is_answered_as_its_qos_asks(door: Door, version: Version) -> None:
    peer = await door.peer("p", version=version)
    peer.send(PublishPacket("a", b"x"))
    await nothing_more(peer)
    peer.send(PublishPacket("a", b"x", qos=ONE, packet_id=5))
    assert await peer.next() == PubAckPacket(5)
    peer.send(PublishPacket("a", b"x", qos=TWO, packet_id=6))
    assert await peer.next() == PubRecPacket(6)
    await nothing_more(peer)


@pytest.mark.mqtt("3.3.4-2", "3.3.4-3", "3.3.4-4", "3.3.4-5")
@pytest.mark.mqtt311("3.3.5-1")
@BOTH
async def test_overlapping_subscriptions_yield_one_copy_at_the_highest_qos_with_all_ids(
    door: Door, version: Version
) -> None:
    subscriber, publisher = await door.peer("s", version=version), await door.peer("p")
    named = {"a/+": (ZERO, 3), "a/#": (TWO, 5), "a/b": (ONE, None), "c": (TWO, 7)}
    for topic_filter, (qos, number) in named.items():
        number = number if version == V5 else None
        await subscriber.subscribe(TopicFilter(topic_filter, max_qos=qos), subscription_id=number)
    await publish(publisher, "a/b", b"x", TWO)
    packet = await receive(subscriber)
    assert packet.qos == TWO
    assert sorted(packet.subscription_ids) == ([3, 5] if version == V5 else [])
    await nothing_more(subscriber)
    publisher.send(PublishPacket("a/b", b"x"))
    packet = await receive(subscriber)
    assert packet.qos == ZERO and sorted(packet.subscription_ids) == ([3, 5] if version == V5 else [])
    await nothing_more(subscriber)


@pytest.mark.mqtt("3.3.4-6")
@EVERY_QOS
async def test_a_client_cannot_name_a_subscription(door: Door, qos: QoS) -> None:
    packet_id = b"\0\1" if qos != ZERO else b""
    packet = frame(0x30 | int(qos) << 1, text("a"), packet_id, properties(V5, b"\x0b\x01"))
    assert await fate(door, packet) == PROTOCOL_ERROR


@pytest.mark.mqtt311("3.3.5-2")
@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_in_version_3_a_forbidden_publish_is_acknowledged_and_dropped(door: Door, qos: QoS) -> None:
    watcher, peer = await door.peer("w"), await door.peer("p", version=V311)
    await watcher.subscribe(TopicFilter("$mine/#"))
    await publish(peer, "$mine/x", b"x", qos)
    await nothing_more(watcher)


@pytest.mark.mqtt("3.4.2-1", "3.5.2-1", "4.3.3-9")
async def test_in_version_5_a_forbidden_publish_is_refused_and_frees_its_id(
    door: Door,
) -> None:
    peer = await door.peer("p")
    for qos in (ONE, TWO):
        peer.send(PublishPacket("$mine/x", b"x", qos=qos, packet_id=5))
        answer = await peer.next()
        assert isinstance(answer, PubAckPacket if qos == ONE else PubRecPacket)
        assert (answer.packet_id, int(answer.reason_code), answer.reason_str) == (5, 0x87, None)
        await publish(peer, "a", b"x", qos, packet_id=5)


def test_a_publish_is_as_the_tests_write_it() -> None:
    """What is built by hand here is what the codec would write."""
    assert frame(0x30, text("a"), properties(V5), b"x") == encode(PublishPacket("a", b"x"), V5)
    assert frame(0x30, text("a"), properties(V311), b"x") == encode(PublishPacket("a", b"x"), V311)
