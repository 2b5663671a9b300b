"""Chapter 3.3: retained messages."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import (
    DisconnectPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    RetainHandling,
    SubscribePacket,
    TopicFilter,
)

from tests.conformance.speech import BOTH
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import (
    ONE,
    TWO,
    ZERO,
    nothing_more,
    retained,
)
from tocsin.wire.mqtt.connect import V311, Version

EVERY_QOS = pytest.mark.parametrize("qos", [ZERO, ONE, TWO])


async def kept(door: Door, topic_filter: str = "a") -> list[bytes]:
    """What is retained, as one who comes now is told."""
    late = await door.peer("late")
    await late.subscribe(TopicFilter(topic_filter, max_qos=ZERO))
    late.send(SubscribePacket(2, [TopicFilter("nothing")]))  # answered behind what was retained
    heard: list[bytes] = []
    while isinstance(packet := await late.next(), PublishPacket):
        assert packet.retain
        heard.append(packet.payload)
    return heard


@pytest.mark.mqtt("3.3.1-5", "3.3.1-6", "3.3.1-7", "3.3.1-8", "3.3.1-9")
@pytest.mark.mqtt311("3.3.1-5", "3.3.1-6", "3.3.1-7", "3.3.1-8", "3.3.1-10", "3.3.1-11", "3.3.1-12")
@BOTH
@EVERY_QOS
async def test_a_retained_message_stays_until_an_empty_one_clears_it(
    door: Door, version: Version, qos: QoS
) -> None:
    live, publisher = await door.peer("live", version=version), await door.peer("p", version=version)
    await live.subscribe(TopicFilter("a"))
    number = 0

    async def say(payload: bytes, retain: bool) -> None:
        nonlocal number
        number += 1
        packet_id = number if qos != ZERO else None
        publisher.send(PublishPacket("a", payload, qos=qos, retain=retain, packet_id=packet_id))
        assert (await live.receive(PublishPacket)).payload == payload

    await say(b"1", True)
    await say(b"2", True)
    await say(b"3", False)
    assert await kept(door) == [b"2"]
    await say(b"", False)
    assert await kept(door) == [b"2"], "an empty message that is not retained removes nothing"
    await say(b"", True)
    assert await kept(door) == []
    await say(b"", True)
    assert await kept(door) == []


@pytest.mark.mqtt311("3.1.2-7")
@BOTH
async def test_a_retained_message_stays_when_its_publisher_and_the_session_are_gone(
    door: Door, version: Version
) -> None:
    publisher = await door.peer("p", version=version)
    publisher.send(retained("a", b"kept"))
    await publisher.receive(PubAckPacket)
    publisher.send(DisconnectPacket())
    assert await publisher.closed()
    await door.peer("p", version=version)
    assert await kept(door) == [b"kept"]


@pytest.mark.mqtt("3.3.1-9", "3.3.1-10", "3.3.1-11", "3.8.4-4")
@pytest.mark.parametrize(
    ("handling", "first_time", "next_time"),
    [
        (RetainHandling.SEND_ALWAYS, True, True),
        (RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS, True, False),
        (RetainHandling.SEND_NEVER, False, False),
    ],
)
async def test_retained_messages_come_as_the_subscription_asks(
    door: Door, handling: RetainHandling, first_time: bool, next_time: bool
) -> None:
    publisher, subscriber = await door.peer("p"), await door.peer("s")
    publisher.send(retained("a", b"kept"))
    await publisher.receive(PubAckPacket)
    for wanted in (first_time, next_time):
        await subscriber.subscribe(TopicFilter("a", retain_handling=handling))
        if wanted:
            assert (await subscriber.receive(PublishPacket)).payload == b"kept"
        await nothing_more(subscriber)


@pytest.mark.mqtt("3.3.1-12", "3.3.1-13")
@EVERY_QOS
async def test_retain_as_published_keeps_the_flag_of_a_live_message(door: Door, qos: QoS) -> None:
    publisher, plain, exact = await door.peer("p"), await door.peer("s"), await door.peer("r")
    await plain.subscribe(TopicFilter("a", retain_as_published=False))
    await exact.subscribe(TopicFilter("a", retain_as_published=True))
    for number, flag in enumerate((True, False), 1):
        packet_id = number if qos != ZERO else None
        publisher.send(PublishPacket("a", b"x", qos=qos, retain=flag, packet_id=packet_id))
        assert (await plain.receive(PublishPacket)).retain is False
        assert (await exact.receive(PublishPacket)).retain is flag


@pytest.mark.mqtt311("3.3.1-9")
async def test_in_version_3_a_live_message_is_never_marked_retained(door: Door) -> None:
    publisher, live = await door.peer("p", version=V311), await door.peer("s", version=V311)
    await live.subscribe(TopicFilter("a"))
    publisher.send(retained("a", b"x", ZERO))
    assert (await live.receive(PublishPacket)).retain is False


@pytest.mark.mqtt("3.3.2-5")
async def test_a_retained_message_expires_too(door: Door) -> None:
    publisher = await door.peer("p")
    publisher.send(PublishPacket("a", b"x", qos=ONE, packet_id=1, retain=True, message_expiry_interval=1))
    await publisher.receive(PubAckPacket)
    assert await kept(door) == [b"x"]
    await asyncio.sleep(1.1)
    assert await kept(door) == []
