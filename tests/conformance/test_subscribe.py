"""Chapters 3.8 to 3.11: SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK."""

from __future__ import annotations

import pytest
from mqtt5 import (
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

from tests.conformance.speech import BOTH, MALFORMED, PROTOCOL_ERROR, fate, properties, said
from tests.unit.broker.harness import Door, Peer
from tests.unit.broker.talk import (
    ONE,
    TWO,
    ZERO,
    frame,
    lasting,
    nothing_more,
    publish,
    receive,
    retained,
    text,
)
from tests.unit.core.session.sessions import any_filter
from tocsin.config import Limits
from tocsin.wire.mqtt.connect import V5, V311, Version

ID = b"\0\7"


# ── what can be asked ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.8.3-2", "3.10.3-2")
@pytest.mark.mqtt311("3.8.3-3", "3.10.3-2")
@BOTH
async def test_a_list_of_nothing_is_a_protocol_error(door: Door, version: Version) -> None:
    for first in (0x82, 0xA2):
        packet = frame(first, ID, properties(version))
        assert await fate(door, packet, version) == said(PROTOCOL_ERROR, version)


@pytest.mark.mqtt("3.8.3-5")
@pytest.mark.mqtt311("3.8.3-4")
@BOTH
async def test_reserved_bits_and_options_that_do_not_exist_end_the_connection(
    door: Door, version: Version
) -> None:
    always = {0x03: (MALFORMED, PROTOCOL_ERROR), 0x40: (MALFORMED,), 0x80: (MALFORMED,)}  # QoS 3, reserved
    of_five = {0x30: (MALFORMED, PROTOCOL_ERROR)}  # retain handling 3
    of_three = {0x04: (MALFORMED,), 0x08: (MALFORMED,), 0x10: (MALFORMED,)}  # reserved then
    for options, codes in (always | (of_five if version == V5 else of_three)).items():
        packet = frame(0x82, ID, properties(version), text("a"), bytes((options,)))
        assert await fate(door, packet, version) in [said(code, version) for code in codes]


@pytest.mark.mqtt("3.8.3-4")
async def test_a_group_cannot_leave_out_its_own_messages(door: Door) -> None:
    packet = frame(0x82, ID, properties(V5), text("$share/g/a"), b"\x04")
    assert await fate(door, packet) == PROTOCOL_ERROR


@pytest.mark.mqtt("3.8.3-2")
@pytest.mark.parametrize("raw", [b"\x0b\x00", b"\x0b\x01\x0b\x02"], ids=["0", "two of them"])
async def test_a_subscription_identifier_is_one_and_not_0(door: Door, raw: bytes) -> None:
    packet = frame(0x82, ID, properties(V5, raw), text("a"), b"\0")
    assert await fate(door, packet) == PROTOCOL_ERROR


@pytest.mark.mqtt("3.8.3-3")
@pytest.mark.parametrize("qos", [ZERO, ONE, TWO])
async def test_no_local_leaves_out_what_the_client_itself_published(door: Door, qos: QoS) -> None:
    own, other = await door.peer(connect=lasting("own")), await door.peer("other")
    await own.subscribe(TopicFilter("a", no_local=True, max_qos=TWO))
    await publish(own, "a", b"mine", qos)
    await nothing_more(own)
    await publish(other, "a", b"theirs", qos)
    assert (await receive(own)).payload == b"theirs"
    if qos != ZERO:
        own.close()
        await publish(other, "a", b"away", qos, packet_id=2)
        again = await door.peer(connect=lasting("own"))
        assert (await receive(again)).payload == b"away"
        await nothing_more(again)


# ── what is answered ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.8.4-5", "3.8.4-6", "3.8.4-7", "3.9.3-1", "3.9.3-2", "4.7.1-1", "4.7.1-2", "4.7.3-1")
@pytest.mark.mqtt311("3.8.4-4", "3.8.4-5", "3.9.3-1", "3.9.3-2", "4.7.1-2", "4.7.1-3", "4.7.3-1")
@BOTH
async def test_every_filter_has_its_own_answer_in_its_place(door: Door, version: Version) -> None:
    peer, publisher = await door.peer("c", version=version), await door.peer("p")
    wanted = ["a", "a/#/b", "b", "c+", "#", "d#", "e/+/#"]
    options = (0, 0, 1, 1, 2, 2, 0)
    payload = b"".join(text(each) + bytes((qos,)) for each, qos in zip(wanted, options, strict=True))
    peer.writer.write(frame(0x82, ID, properties(version), payload))
    answer = await peer.receive(SubAckPacket)
    bad = 0x8F if version == V5 else 0x80
    assert [int(code) for code in answer.reason_codes] == [0, bad, 1, bad, 2, bad, 0]
    await publish(publisher, "x/y", b"x", TWO)
    assert (await receive(peer)).qos == TWO


@pytest.mark.mqtt("4.7.3-1")
@pytest.mark.mqtt311("4.7.3-1")
@BOTH
@pytest.mark.parametrize("wanted", [("",), ("", "a"), ("a", "")])
async def test_an_empty_filter_ends_the_connection(
    door: Door, version: Version, wanted: tuple[str, ...]
) -> None:
    filters = b"".join(text(each) + b"\0" for each in wanted)
    asked = frame(0x82, ID, properties(version), filters)
    assert await fate(door, asked, version) == said(MALFORMED, version)
    unasked = frame(0xA2, ID, properties(version), b"".join(text(each) for each in wanted))
    assert await fate(door, unasked, version) == said(MALFORMED, version)


@pytest.mark.mqtt("3.8.4-7", "3.9.3-2")
async def test_a_filter_too_many_is_refused_and_the_others_are_granted() -> None:
    async with Door(Limits(subscriptions_per_client=2)) as door:
        peer = await door.peer("c")
        peer.send(SubscribePacket(7, [TopicFilter(each) for each in ("a", "b", "c", "a")]))
        codes = [int(code) for code in (await peer.receive(SubAckPacket)).reason_codes]
        assert codes[:2] + codes[3:] == [int(TopicFilter("a").max_qos)] * 3 and codes[2] == 0x97


@pytest.mark.mqtt("3.8.4-8")
@pytest.mark.mqtt311("3.8.4-6")
@BOTH
async def test_a_message_comes_at_the_lower_qos_of_both_sides(door: Door, version: Version) -> None:
    publisher = await door.peer("p", version=version)
    for granted in (ZERO, ONE, TWO):
        subscriber = await door.peer("s", version=version)
        await subscriber.subscribe(TopicFilter("a", max_qos=granted))
        for published in (ZERO, ONE, TWO):
            await publish(publisher, "a", b"x", published)
            assert int((await receive(subscriber)).qos) == min(int(granted), int(published))


# ── asking again ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mqtt("3.8.4-3", "3.8.4-4")
@pytest.mark.mqtt311("3.8.4-3")
@BOTH
async def test_the_same_filter_again_replaces_the_subscription_and_brings_what_is_retained(
    door: Door, version: Version
) -> None:
    publisher, subscriber = await door.peer("p"), await door.peer("s", version=version)
    publisher.send(retained("a", b"kept"))
    await publisher.receive(PubAckPacket)
    for qos in (ONE, ZERO):
        await subscriber.subscribe(TopicFilter("a", max_qos=qos))
        packet = await receive(subscriber)
        assert (packet.payload, packet.retain, packet.qos) == (b"kept", True, qos)
    await publish(publisher, "a", b"live", ONE)
    packet = await receive(subscriber)
    assert (packet.payload, packet.qos) == (b"live", ZERO)
    await nothing_more(subscriber)


@pytest.mark.mqtt("3.8.4-4")
async def test_nothing_is_lost_while_a_subscription_is_replaced(door: Door) -> None:
    publisher, subscriber = await door.peer("p"), await door.peer("s")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    for number in range(50):
        publisher.send(PublishPacket("a", b"%d" % number, qos=ONE, packet_id=number + 1))
        subscriber.send(SubscribePacket(1, [TopicFilter("a", max_qos=ONE)]))
    heard = [(await receive(subscriber)).payload for _ in range(50)]
    assert heard == [b"%d" % number for number in range(50)]


# ── unsubscribing ───────────────────────────────────────────────────────────────────────────────────────────


async def unsubscribe(peer: Peer, *filters: str) -> list[int]:
    peer.send(UnsubscribePacket(9, list(filters)))
    answer = await peer.first(UnsubAckPacket)
    assert answer.packet_id == 9
    return [int(code) for code in answer.reason_codes]


@pytest.mark.mqtt("3.10.4-1", "3.10.4-2", "3.10.4-4", "3.10.4-5", "3.10.4-6", "3.11.3-1", "3.11.3-2")
@pytest.mark.mqtt311("3.10.4-1", "3.10.4-2", "3.10.4-4", "3.10.4-5", "3.10.4-6")
@BOTH
async def test_unsubscribe_removes_a_filter_only_if_it_matches_character_by_character(
    door: Door, version: Version
) -> None:
    peer, publisher = await door.peer("c", version=version), await door.peer("p")
    await peer.subscribe(TopicFilter("a/+", max_qos=ONE), TopicFilter("a/b", max_qos=ONE))
    codes = await unsubscribe(peer, "a/#", "a/b", "A/+", "a/+/")
    assert codes == ([0x11, 0, 0x11, 0x11] if version == V5 else [])
    await publish(publisher, "a/b", b"once more")
    assert (await receive(peer)).payload == b"once more", "the other subscription is there"
    assert await unsubscribe(peer, "a/+") == ([0] if version == V5 else [])
    await publish(publisher, "a/b", b"no more")
    publisher.send(PublishPacket("a/b", b"no more"))
    await nothing_more(publisher)
    await nothing_more(peer)


@pytest.mark.mqtt("3.11.3-2", "3.10.3-1")
async def test_what_is_no_filter_cannot_be_given_up(door: Door) -> None:
    peer = await door.peer("c")
    peer.writer.write(frame(0xA2, ID, properties(V5), text("a/#/b"), text("a")))
    codes = [int(code) for code in (await peer.receive(UnsubAckPacket)).reason_codes]
    assert codes == [0x8F, 0x11]


@pytest.mark.mqtt("3.10.4-3")
@pytest.mark.mqtt311("3.10.4-3")
@BOTH
async def test_a_delivery_that_was_begun_is_completed_after_the_subscription_is_gone(
    door: Door, version: Version
) -> None:
    peer, publisher = await door.peer("c", version=version), await door.peer("p")
    await peer.subscribe(TopicFilter("a", max_qos=TWO))
    await publish(publisher, "a", b"1", ONE)
    await publish(publisher, "a", b"2", TWO)
    first, second = await peer.receive(PublishPacket), await peer.receive(PublishPacket)
    await unsubscribe(peer, "a")
    assert first.packet_id is not None and second.packet_id is not None
    peer.send(PubAckPacket(first.packet_id), PubRecPacket(second.packet_id))
    assert await peer.receive(PubRelPacket) == PubRelPacket(second.packet_id)
    peer.send(PubCompPacket(second.packet_id))
    await nothing_more(peer)


@pytest.mark.mqtt("3.9.2-1")
async def test_a_refused_filter_is_explained(door: Door) -> None:
    peer = await door.peer("c")
    peer.send(SubscribePacket(1, [any_filter("a/#/b")]))
    assert "a/#/b" in ((await peer.receive(SubAckPacket)).reason_str or "")


@pytest.mark.mqtt311("3.8.4-5", "3.9.3-2")
async def test_in_version_3_a_refusal_is_0x80(door: Door) -> None:
    peer = await door.peer("c", version=V311)
    peer.writer.write(frame(0x82, ID, text("#/a"), b"\0"))
    assert await peer.reader.readexactly(5) == b"\x90\x03" + ID + b"\x80"


@pytest.mark.mqtt("4.8.2-1", "4.8.2-2")
@pytest.mark.parametrize(
    "bad", ["$share/", "$share/g", "$share//a", "$share/g/", "$share/g+/a", "$share/#/a", "$share/g/a#"]
)
async def test_a_group_without_a_proper_name_or_filter_is_refused(door: Door, bad: str) -> None:
    peer = await door.peer("c")
    peer.send(SubscribePacket(1, [any_filter(bad), TopicFilter("a")]))
    codes = [int(code) for code in (await peer.receive(SubAckPacket)).reason_codes]
    assert codes[0] == 0x8F and codes[1] < 0x80
