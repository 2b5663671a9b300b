"""Chapter 3.2: CONNACK."""

from __future__ import annotations

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, PublishPacket, QoS, TopicFilter

from tests.conformance.speech import BOTH, connect_frame, fate, said, stranger
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import ONE, ZERO, lasting, nothing_more, publish, text
from tocsin.config import Limits
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version


@pytest.mark.mqtt("3.2.0-1", "3.2.0-2")
@pytest.mark.mqtt311("3.2.0-1")
@BOTH
async def test_connack_comes_first_and_once(door: Door, version: Version) -> None:
    connect = lasting("s") if version == V5 else ConnectPacket("s")
    subscriber, publisher = await door.peer(connect=connect, version=version), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    subscriber.close()
    await publish(publisher, "a", b"waiting")
    again = await stranger(door, version)
    again.send(connect)
    assert isinstance(await again.next(), ConnAckPacket)
    assert isinstance(await again.next(), PublishPacket)
    await nothing_more(again)


@pytest.mark.mqtt("3.2.2-1", "3.2.2-2", "3.2.2-8")
@pytest.mark.mqtt311("3.2.2-1", "3.2.2-6")
@BOTH
async def test_only_the_lowest_of_its_flags_is_ever_set(door: Door, version: Version) -> None:
    for flags, client_id, code in ((0x02, "c", 0), (0x02, "c" * 257, 0x85 if version == V5 else 2)):
        peer = await stranger(door, version)
        peer.writer.write(connect_frame(version, text(client_id), flags=flags))
        answer = await peer.reader.readexactly(4)
        assert answer[0] == 0x20 and (answer[2], answer[3]) == (0, code)


@pytest.mark.mqtt("3.2.2-9", "3.2.2-12", "3.2.2-13")
async def test_everything_that_can_be_left_out_is_there(door: Door) -> None:
    peer = await door.peer("c", accepted=False)
    answer = await peer.receive(ConnAckPacket)
    assert answer.max_qos == QoS.EXACTLY_ONCE and answer.retain_available
    assert answer.wildcard_subscription_available and answer.subscription_id_available


@pytest.mark.mqtt("3.2.2-15")
@pytest.mark.parametrize("qos", [ZERO, ONE])
@pytest.mark.parametrize("version", [V5, V311])
async def test_a_packet_over_the_size_that_was_told_ends_the_connection(version: Version, qos: QoS) -> None:
    async with Door(Limits(packet_max_bytes=1_024)) as door:
        peer = await door.peer("c", accepted=False)
        assert (await peer.receive(ConnAckPacket)).max_packet_size == 1_024
        header = len(encode(PublishPacket("a", bytes(900), qos=qos, packet_id=int(qos) or None), version))
        largest = PublishPacket("a", bytes(900 + 1_024 - header), qos=qos, packet_id=int(qos) or None)
        fits = await door.peer("d", version=version)
        fits.send(largest)
        if qos == ONE:
            await fits.next()
        await nothing_more(fits)
        too_large = PublishPacket("a", bytes(1_025), qos=qos, packet_id=int(qos) or None)
        assert await fate(door, encode(too_large, version), version) == said(0x95, version)
