"""Chapter 4.8.2: shared subscriptions, as far as the standard numbers what they promise."""

from __future__ import annotations

import pytest
from mqtt5 import (
    DisconnectPacket,
    PubAckPacket,
    PubAckReasonCode,
    PublishPacket,
    PubRecPacket,
    PubRecReasonCode,
    QoS,
    TopicFilter,
)

from tests.unit.broker.harness import Door, Peer
from tests.unit.broker.talk import ONE, TWO, ZERO, lasting, nothing_more, publish, receive


async def member(door: Door, client_id: str, qos: QoS) -> Peer:
    peer = await door.peer(connect=lasting(client_id))
    await peer.subscribe(TopicFilter("$share/g/a", max_qos=qos))
    return peer


@pytest.mark.mqtt("4.8.2-3")
async def test_each_member_gets_messages_at_its_own_qos(door: Door) -> None:
    low, high, publisher = (
        await member(door, "low", ZERO),
        await member(door, "high", TWO),
        await door.peer("p"),
    )
    for number in range(10):
        await publish(publisher, "a", b"%d" % number, TWO)
    heard: list[bytes] = []
    for peer, qos in ((low, ZERO), (high, TWO)):
        for _ in range(5):
            packet = await receive(peer)
            assert packet.qos == qos
            heard.append(packet.payload)
    assert sorted(heard) == [b"%d" % number for number in range(10)]


@pytest.mark.mqtt("4.8.2-4", "4.8.2-5")
@pytest.mark.parametrize("comes_back", [True, False])
async def test_only_the_member_that_has_a_qos_2_message_completes_it(door: Door, comes_back: bool) -> None:
    first, publisher = await member(door, "first", TWO), await door.peer("p")
    await publish(publisher, "a", b"begun", TWO)
    begun = await first.receive(PublishPacket)
    other = await member(door, "other", TWO)
    if comes_back:
        first.close()
    else:
        first.send(DisconnectPacket(session_expiry_interval=0))
        assert await first.closed()
    await publish(publisher, "a", b"for the other", TWO)
    assert (await receive(other)).payload == b"for the other"
    if comes_back:
        again = await door.peer(connect=lasting("first"))
        packet = await receive(again)
        assert (packet.payload, packet.packet_id, packet.duplicate) == (b"begun", begun.packet_id, True)
        await nothing_more(again)
    await nothing_more(other)


@pytest.mark.mqtt("4.8.2-6")
@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_what_a_member_refuses_nobody_else_gets(door: Door, qos: QoS) -> None:
    first, publisher = await member(door, "first", qos), await door.peer("p")
    await publish(publisher, "a", b"refused", qos)
    packet_id = (await first.receive(PublishPacket)).packet_id
    assert packet_id is not None
    other = await member(door, "other", qos)
    if qos == ONE:
        first.send(PubAckPacket(packet_id, reason_code=PubAckReasonCode.NOT_AUTHORIZED))
    else:
        first.send(PubRecPacket(packet_id, reason_code=PubRecReasonCode.NOT_AUTHORIZED))
    await nothing_more(first)
    first.close()
    await publish(publisher, "a", b"next", qos)
    assert (await receive(other)).payload == b"next"
    await nothing_more(other)
