"""Chapter 4.9: how much may be under way."""

from __future__ import annotations

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.unit.broker.harness import Door
from tests.unit.broker.talk import ONE, TWO, ZERO, nothing_more, publish, receive
from tocsin.config import Limits
from tocsin.wire.mqtt.connect import V311


@pytest.mark.mqtt("3.3.4-9", "4.9.0-1", "4.9.0-2")
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_no_more_is_unacknowledged_than_the_client_takes(door: Door, qos: QoS, most: int) -> None:
    subscriber = await door.peer(connect=ConnectPacket("s", clean_start=True, receive_max=most))
    publisher = await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=TWO))
    for number in range(10):
        await publish(publisher, "a", b"%d" % number, qos)
    heard = [await subscriber.receive(PublishPacket) for _ in range(most)]
    await nothing_more(subscriber)
    if qos == TWO:  # a receipt is not the end of it
        assert heard[0].packet_id is not None
        subscriber.send(PubRecPacket(heard[0].packet_id))
        assert (await subscriber.receive(PubRelPacket)).packet_id == heard[0].packet_id
        await nothing_more(subscriber)
        subscriber.send(PubCompPacket(heard[0].packet_id))
    else:
        assert heard[0].packet_id is not None
        subscriber.send(PubAckPacket(heard[0].packet_id))
    assert (await subscriber.receive(PublishPacket)).payload == b"%d" % most
    await nothing_more(subscriber)


@pytest.mark.mqtt("3.3.4-10", "4.9.0-3")
async def test_everything_else_goes_on_while_a_client_takes_no_more(door: Door) -> None:
    subscriber = await door.peer(connect=ConnectPacket("s", clean_start=True, receive_max=1))
    publisher = await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    for _ in range(2):
        await publish(publisher, "a", b"x", ONE)
    await subscriber.receive(PublishPacket)
    publisher.send(PublishPacket("a", b"at QoS 0"))
    assert (await subscriber.receive(PublishPacket)).payload == b"at QoS 0"
    subscriber.send(SubscribePacket(2, [TopicFilter("b")]))
    await subscriber.receive(SubAckPacket)
    subscriber.send(UnsubscribePacket(3, ["b"]))
    await subscriber.receive(UnsubAckPacket)
    await publish(subscriber, "c", b"x", ONE)
    await publish(subscriber, "c", b"x", TWO)
    await nothing_more(subscriber)


@pytest.mark.mqtt("3.3.4-7")
async def test_a_client_that_sends_more_than_the_broker_takes_is_disconnected() -> None:
    async with Door(Limits(receive_max=3)) as door:
        peer = await door.peer("p", accepted=False)
        assert (await peer.receive(ConnAckPacket)).receive_max == 3
        for packet_id in range(1, 4):  # received, and not released: they count until they are
            peer.send(PublishPacket("a", b"x", qos=TWO, packet_id=packet_id))
            await peer.receive(PubRecPacket)
        peer.send(PublishPacket("a", b"x"))
        await nothing_more(peer)
        peer.send(PublishPacket("a", b"x", qos=ONE, packet_id=4))
        assert int((await peer.receive(DisconnectPacket)).reason_code) == 0x93
        assert await peer.closed()


@pytest.mark.mqtt("3.3.4-7")
async def test_what_is_done_with_makes_room() -> None:
    async with Door(Limits(receive_max=1)) as door:
        peer = await door.peer("p")
        for qos in (ONE, TWO, ONE, TWO, ZERO):
            await publish(peer, "a", b"x", qos)


async def test_in_version_3_a_client_may_send_as_much_as_it_likes() -> None:
    async with Door(Limits(receive_max=1)) as door:
        peer, subscriber = await door.peer("p", version=V311), await door.peer("s", version=V311)
        await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
        for packet_id in range(1, 51):
            peer.send(PublishPacket("a", b"%d" % packet_id, qos=ONE, packet_id=packet_id))
        for packet_id in range(1, 51):
            assert (await peer.receive(PubAckPacket)).packet_id == packet_id
            assert (await receive(subscriber)).payload == b"%d" % packet_id
