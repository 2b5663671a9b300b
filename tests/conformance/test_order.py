"""Chapters 4.4 to 4.6: repeats, and the order in which messages come."""

from __future__ import annotations

import pytest
from mqtt5 import (
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    QoS,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.conformance.speech import BOTH
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import ONE, TWO, ZERO, lasting, nothing_more, publish, receive
from tocsin.wire.mqtt.connect import V5, Version


@pytest.mark.mqtt("4.6.0-5", "4.6.0-6", "4.5.0-1")
@pytest.mark.mqtt311("4.5.0-1", "4.6.0-5", "4.6.0-6")
@BOTH
@pytest.mark.parametrize("qos", [ZERO, ONE, TWO])
async def test_messages_of_one_client_come_to_everybody_in_their_order(
    door: Door, version: Version, qos: QoS
) -> None:
    publisher = await door.peer("p", version=version)
    subscribers = [await door.peer(f"s{number}", version=version) for number in range(3)]
    for subscriber, topic_filter in zip(subscribers, ("a", "#", "+"), strict=True):
        await subscriber.subscribe(TopicFilter(topic_filter, max_qos=qos))
    payloads = [b"%d" % number for number in range(60)]
    for number, payload in enumerate(payloads):
        packet_id = None if qos == ZERO else number + 1
        publisher.send(PublishPacket("a", payload, qos=qos, packet_id=packet_id))
    for subscriber in subscribers:
        assert [(await receive(subscriber)).payload for _ in payloads] == payloads


@pytest.mark.mqtt("4.6.0-5", "4.4.0-1", "4.3.2-3", "4.3.3-3")
@pytest.mark.mqtt311("4.4.0-1", "4.6.0-1", "4.6.0-6")
@BOTH
@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_resent_messages_keep_their_order_and_packet_ids(
    door: Door, version: Version, qos: QoS
) -> None:
    connect = lasting("s") if version == V5 else ConnectPacket("s")
    subscriber, publisher = await door.peer(connect=connect, version=version), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=qos))
    for number in range(10):
        await publish(publisher, "a", b"%d" % number, qos)
    before = [await subscriber.receive(PublishPacket) for _ in range(10)]
    await nothing_more(subscriber)  # and nothing is sent again on the same connection
    subscriber.close()
    again = await door.peer(connect=connect, version=version)
    after = [await again.receive(PublishPacket) for _ in range(10)]
    assert [(each.packet_id, each.payload) for each in after] == [
        (each.packet_id, each.payload) for each in before
    ]
    assert all(each.duplicate for each in after)


async def test_what_was_given_up_is_not_sent_again(door: Door) -> None:
    """Done otherwise than 4.4.0-1 has it: see the deviations."""
    subscriber, publisher = await door.peer(connect=lasting("s")), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=TWO), TopicFilter("b", max_qos=TWO))
    for topic in ("a", "b"):
        await publish(publisher, topic, b"x", TWO)
        await subscriber.receive(PublishPacket)
    subscriber.send(UnsubscribePacket(1, ["a"]))
    await subscriber.receive(UnsubAckPacket)
    subscriber.close()
    again = await door.peer(connect=lasting("s"))
    assert (await receive(again)).topic == "b"
    await nothing_more(again)


@pytest.mark.mqtt311("4.6.0-2", "4.6.0-3")
@BOTH
async def test_acknowledgements_come_in_the_order_of_the_messages(door: Door, version: Version) -> None:
    publisher = await door.peer("p", version=version)
    for number in range(1, 21):
        publisher.send(PublishPacket("a", b"x", qos=ONE, packet_id=number))
    assert [await publisher.next() for _ in range(20)] == [PubAckPacket(number) for number in range(1, 21)]
    for number in range(1, 21):
        publisher.send(PublishPacket("a", b"x", qos=TWO, packet_id=number))
    assert [await publisher.next() for _ in range(20)] == [PubRecPacket(number) for number in range(1, 21)]


@pytest.mark.mqtt("4.5.0-1", "4.4.0-1")
@pytest.mark.mqtt311("4.5.0-1")
@BOTH
async def test_a_message_is_kept_for_every_client_that_is_away(door: Door, version: Version) -> None:
    connects = [
        lasting(f"s{number}") if version == V5 else ConnectPacket(f"s{number}") for number in range(3)
    ]
    for connect in connects:
        away = await door.peer(connect=connect, version=version)
        await away.subscribe(TopicFilter("a/#", max_qos=ONE))
        away.close()
    publisher = await door.peer("p")
    for number in range(5):
        await publish(publisher, f"a/{number}", b"x", TWO)
    for connect in connects:
        back = await door.peer(connect=connect, version=version)
        heard = [await receive(back) for _ in range(5)]
        assert [packet.topic for packet in heard] == [f"a/{number}" for number in range(5)]
        assert not any(packet.duplicate for packet in heard), "they were never sent"
        await nothing_more(back)
