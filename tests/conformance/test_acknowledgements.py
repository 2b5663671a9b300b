"""Chapters 3.4 to 3.7 and 4.3: PUBACK, PUBREC, PUBREL and PUBCOMP, and what they promise."""

from __future__ import annotations

import pytest
from mqtt5 import (
    ConnectPacket,
    PubAckPacket,
    PubAckReasonCode,
    PubCompPacket,
    PubCompReasonCode,
    PublishPacket,
    PubRecPacket,
    PubRecReasonCode,
    PubRelPacket,
    QoS,
    TopicFilter,
)

from tests.conformance.speech import BOTH, MALFORMED, PROTOCOL_ERROR, fate, properties, said
from tests.unit.broker.harness import Door, Peer
from tests.unit.broker.talk import ONE, TWO, ending, frame, lasting, nothing_more, publish, receive, text
from tocsin.wire.mqtt.connect import V5, V311, Version


def session_of(version: Version, client_id: str = "s") -> ConnectPacket:
    return lasting(client_id) if version == V5 else ConnectPacket(client_id)


async def subscribed(door: Door, version: Version, qos: QoS) -> Peer:
    """A subscriber whose session lasts."""
    subscriber = await door.peer(connect=session_of(version), version=version)
    await subscriber.subscribe(TopicFilter("a", max_qos=qos))
    return subscriber


# ── from a client ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("4.3.2-5", "4.3.2-4")
@pytest.mark.mqtt311("4.3.2-2")
@BOTH
async def test_an_id_at_qos_1_is_free_when_it_was_acknowledged(door: Door, version: Version) -> None:
    subscriber, publisher = await subscribed(door, V5, ONE), await door.peer("p", version=version)
    for payload, duplicate in ((b"1", False), (b"2", True), (b"3", False)):
        publisher.send(PublishPacket("a", payload, qos=ONE, packet_id=7, duplicate=duplicate))
        await publisher.receive(PubAckPacket)
        assert (await receive(subscriber)).payload == payload


@pytest.mark.mqtt("4.3.3-10", "4.3.3-11", "4.3.3-12", "4.3.3-8")
@pytest.mark.mqtt311("4.3.3-2")
@BOTH
async def test_a_qos_2_message_repeated_before_its_release_is_delivered_once(
    door: Door, version: Version
) -> None:
    subscriber, publisher = await subscribed(door, V5, TWO), await door.peer("p", version=version)
    for payload in (b"first", b"second"):
        for duplicate in (False, True, False):
            publisher.send(PublishPacket("a", payload, qos=TWO, packet_id=7, duplicate=duplicate))
            assert await publisher.receive(PubRecPacket) == PubRecPacket(7)
        publisher.send(PubRelPacket(7))
        assert await publisher.receive(PubCompPacket) == PubCompPacket(7)
        assert (await receive(subscriber)).payload == payload
    await nothing_more(subscriber)


@pytest.mark.mqtt("4.3.3-10", "4.3.3-11", "4.4.0-1")
@pytest.mark.mqtt311("4.3.3-2", "4.4.0-1")
@BOTH
async def test_a_message_at_qos_2_is_delivered_once_over_connections(door: Door, version: Version) -> None:
    subscriber = await subscribed(door, V5, TWO)
    publisher = await door.peer(connect=session_of(version, "p"), version=version)
    publisher.send(PublishPacket("a", b"once", qos=TWO, packet_id=7))
    await publisher.receive(PubRecPacket)
    publisher.close()
    again = await door.peer(connect=session_of(version, "p"), version=version)
    again.send(PublishPacket("a", b"once", qos=TWO, packet_id=7, duplicate=True))
    await again.receive(PubRecPacket)
    again.close()
    last = await door.peer(connect=session_of(version, "p"), version=version)
    last.send(PubRelPacket(7))
    assert await last.receive(PubCompPacket) == PubCompPacket(7)
    assert (await receive(subscriber)).payload == b"once"
    await nothing_more(subscriber)


@pytest.mark.mqtt("3.7.2-1", "4.3.3-11")
@BOTH
@pytest.mark.parametrize("lasts", [True, False])
async def test_a_release_of_an_unknown_id_is_completed_with_a_reason(
    door: Door, version: Version, lasts: bool
) -> None:
    connect = session_of(version) if lasts else ConnectPacket("s", clean_start=True)
    peer = await door.peer(connect=connect, version=version)
    peer.send(PubRelPacket(9))
    answer = await peer.receive(PubCompPacket)
    unknown = PubCompReasonCode.PACKET_ID_NOT_FOUND if version == V5 else PubCompReasonCode.SUCCESS
    assert (answer.packet_id, answer.reason_code, answer.reason_str) == (9, unknown, None)
    await publish(peer, "b", b"x", TWO, packet_id=9)


@pytest.mark.mqtt("4.3.3-12")
@BOTH
async def test_a_qos_2_packet_id_is_taken_until_its_release_completes(door: Door, version: Version) -> None:
    peer = await door.peer(connect=session_of(version, "p"), version=version)
    peer.send(PublishPacket("a", b"x", qos=TWO, packet_id=7))
    await peer.receive(PubRecPacket)
    peer.send(PubRelPacket(7), PublishPacket("a", b"y", qos=TWO, packet_id=7))
    last = None
    with pytest.raises(ConnectionError):
        while True:
            last = await peer.next()
    code = getattr(last, "reason_code", None)
    assert code is None if version == V311 else int(code) == PROTOCOL_ERROR  # type: ignore[arg-type]


# ── to a client ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("4.3.3-4", "4.3.3-5", "4.3.3-6", "3.6.2-1", "4.4.0-1")
@pytest.mark.mqtt311("4.3.3-1", "4.4.0-1")
@BOTH
async def test_a_message_that_was_received_is_released_and_not_sent_again(
    door: Door, version: Version
) -> None:
    subscriber, publisher = await subscribed(door, version, TWO), await door.peer("p")
    await publish(publisher, "a", b"x", TWO)
    packet_id = (await subscriber.receive(PublishPacket)).packet_id
    assert packet_id is not None
    subscriber.send(PubRecPacket(packet_id))
    assert await subscriber.receive(PubRelPacket) == PubRelPacket(packet_id)
    subscriber.send(PubRecPacket(packet_id))
    assert await subscriber.receive(PubRelPacket) == PubRelPacket(packet_id), "the same again"
    for _ in range(2):
        subscriber.close()
        subscriber = await door.peer(connect=session_of(version), version=version)
        assert await subscriber.receive(PubRelPacket) == PubRelPacket(packet_id)
        await nothing_more(subscriber)
    subscriber.send(PubCompPacket(packet_id))
    await nothing_more(subscriber)
    subscriber.close()
    await nothing_more(await door.peer(connect=session_of(version), version=version))


@pytest.mark.mqtt("4.3.3-7")
async def test_a_message_that_was_sent_does_not_expire(door: Door) -> None:
    subscriber, publisher = await subscribed(door, V5, TWO), await door.peer("p")
    publisher.send(PublishPacket("a", b"x", qos=TWO, packet_id=1, message_expiry_interval=1))
    packet_id = (await subscriber.receive(PublishPacket)).packet_id
    assert packet_id is not None
    subscriber.send(PubRecPacket(packet_id))
    assert (await subscriber.receive(PubRelPacket)).packet_id == packet_id


@pytest.mark.mqtt("4.4.0-2", "4.3.3-4")
@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_a_message_that_the_client_refuses_is_not_sent_again(door: Door, qos: QoS) -> None:
    subscriber, publisher = await subscribed(door, V5, qos), await door.peer("p")
    await publish(publisher, "a", b"no", qos)
    packet_id = (await subscriber.receive(PublishPacket)).packet_id
    assert packet_id is not None
    if qos == ONE:
        subscriber.send(PubAckPacket(packet_id, reason_code=PubAckReasonCode.NOT_AUTHORIZED))
    else:
        subscriber.send(PubRecPacket(packet_id, reason_code=PubRecReasonCode.NOT_AUTHORIZED))
    await nothing_more(subscriber)
    subscriber.close()
    again = await door.peer(connect=session_of(V5))
    await nothing_more(again)
    await publish(publisher, "a", b"yes", qos)
    assert (await receive(again)).payload == b"yes"


@pytest.mark.mqtt("3.6.2-1")
@BOTH
async def test_a_receipt_of_nothing_is_answered_so_and_harms_nobody(door: Door, version: Version) -> None:
    peer = await door.peer("c", version=version)
    peer.send(PubRecPacket(9))
    answer = await peer.receive(PubRelPacket)
    assert (answer.packet_id, int(answer.reason_code)) == (9, 0x92 if version == V5 else 0)
    peer.send(PubAckPacket(9), PubCompPacket(9))
    await nothing_more(peer)


@pytest.mark.mqtt("3.4.2-1", "3.5.2-1", "3.6.2-1", "3.7.2-1")
@pytest.mark.parametrize("first", [0x40, 0x50, 0x62, 0x70])
async def test_a_reason_that_does_not_exist_is_a_protocol_error(door: Door, first: int) -> None:
    assert await fate(door, frame(first, b"\0\1", b"\x77")) == PROTOCOL_ERROR


@pytest.mark.mqtt("2.2.1-5")
@BOTH
@pytest.mark.parametrize("first", [0x40, 0x50, 0x62, 0x70])
async def test_an_acknowledgement_of_id_0_or_of_none_ends_the_connection(
    door: Door, version: Version, first: int
) -> None:
    assert await fate(door, frame(first, b"\0\0"), version) == said(PROTOCOL_ERROR, version)
    assert await fate(door, frame(first, b"\0"), version) == said(MALFORMED, version)


@pytest.mark.mqtt("2.2.1-3")
@BOTH
async def test_an_id_at_qos_1_is_not_free_before_it_was_acknowledged(door: Door, version: Version) -> None:
    """A repeat is one, if it says so; anything else on that id is a mistake."""
    one = frame(0x32, text("a"), b"\0\1", properties(version), b"x")
    assert await fate(door, one + one, version) == said(PROTOCOL_ERROR, version)


@BOTH
@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_an_answer_of_the_other_qos_is_a_protocol_error(door: Door, version: Version, qos: QoS) -> None:
    subscriber, publisher = await subscribed(door, version, qos), await door.peer("p")
    await publish(publisher, "a", b"x", qos)
    sent = await subscriber.first(PublishPacket)
    assert sent.packet_id is not None
    subscriber.send(PubRecPacket(sent.packet_id) if qos == ONE else PubAckPacket(sent.packet_id))
    assert await ending(subscriber) == said(PROTOCOL_ERROR, version)
    again = await door.peer(connect=session_of(version), version=version, accepted=False)
    repeated = await again.first(PublishPacket)
    assert (repeated.payload, repeated.duplicate) == (b"x", True), "it was not acknowledged"
