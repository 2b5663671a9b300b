"""Chapter 3.1: what a client asks for in its CONNECT, and gets."""

from __future__ import annotations

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PublishPacket,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.conformance.speech import (
    BOTH,
    MALFORMED,
    said,
)
from tests.unit.broker.harness import Door
from tests.unit.broker.talk import (
    ONE,
    TWO,
    ZERO,
    ending,
    nothing_more,
    publish,
    receive,
)
from tests.unit.core.session.sessions import any_filter
from tocsin.config import Limits
from tocsin.wire.mqtt.connect import Version


@pytest.mark.mqtt("3.1.2-22", "3.2.2-22")
@pytest.mark.mqtt311("3.1.2-24")
@BOTH
async def test_a_client_without_keep_alive_or_one_that_pings_stays(door: Door, version: Version) -> None:
    silent = await door.peer(connect=ConnectPacket("silent", keep_alive=0), version=version)
    pinging = await door.peer(connect=ConnectPacket("pinging", keep_alive=1), version=version)
    dying = await door.peer(connect=ConnectPacket("dying", keep_alive=1), version=version)
    await nothing_more(pinging)
    assert await ending(dying) == said(0x8D, version)  # that time is now over for the others too
    await nothing_more(silent)


@pytest.mark.mqtt("3.1.2-22", "3.2.2-22")
async def test_the_server_replaces_a_keep_alive_that_is_too_long() -> None:
    async with Door(Limits(keep_alive_max_s=1)) as door:
        for asked, told in ((1, None), (60, 1), (0, 1)):
            peer = await door.peer(connect=ConnectPacket("c", keep_alive=asked), accepted=False)
            assert (await peer.receive(ConnAckPacket)).server_keep_alive == told
        assert await ending(peer) == 0x8D, "what was told is what counts"


@pytest.mark.mqtt("3.1.2-24", "3.1.2-25", "3.2.2-19", "3.9.2-1", "3.14.2-3")
async def test_a_client_gets_no_packet_that_is_larger_than_it_takes(door: Door) -> None:
    small = await door.peer(connect=ConnectPacket("small", max_packet_size=40))
    publisher = await door.peer("p")
    small.send(SubscribePacket(1, [TopicFilter("a", max_qos=TWO), any_filter("#x")]))
    answer = await small.receive(SubAckPacket)
    assert answer.reason_str is None and int(answer.reason_codes[1]) == 0x8F
    for qos in (ZERO, ONE, TWO):
        most = 34 if qos == ZERO else 32  # bytes of payload in a packet of 40
        await publish(publisher, "a", bytes(most), qos)
        await publish(publisher, "a", bytes(most + 1), qos)
        assert len((await receive(small)).payload) == most
    await nothing_more(small)
    small.writer.write(b"\x36\0")  # QoS 3, for which there are more words than fit
    goodbye = await small.receive(DisconnectPacket)
    assert (int(goodbye.reason_code), goodbye.reason_str) == (MALFORMED, None)


@pytest.mark.mqtt("3.2.2-19", "3.2.2-6")
async def test_a_refusal_leaves_out_its_words_for_a_client_that_takes_little(door: Door) -> None:
    peer = await door.peer(connect=ConnectPacket("c" * 300, max_packet_size=10), accepted=False)
    answer = await peer.receive(ConnAckPacket)
    assert (int(answer.reason_code), answer.reason_str, answer.session_present) == (0x85, None, False)
    assert await peer.closed()


@pytest.mark.mqtt("3.1.2-26", "3.1.2-27", "3.3.2-8", "3.3.2-11")
@pytest.mark.parametrize("most", [0, 1, 2])
async def test_topics_are_told_by_number_no_further_than_the_client_wants(door: Door, most: int) -> None:
    subscriber = await door.peer(connect=ConnectPacket("s", clean_start=True, topic_alias_max=most))
    publisher = await door.peer("p")
    await subscriber.subscribe(TopicFilter("a/+"))
    for _ in range(2):
        publisher.send(*(PublishPacket(f"a/{number}", b"x") for number in range(4)))
    heard = [await subscriber.receive(PublishPacket) for _ in range(8)]
    numbers = {packet.topic_alias for packet in heard} - {None}
    assert numbers == set(range(1, most + 1))


@pytest.mark.mqtt("3.1.2-28")
@pytest.mark.parametrize("wanted", [True, False])
async def test_no_response_information_is_given(door: Door, wanted: bool) -> None:
    connect = ConnectPacket("c", request_response_info=wanted)
    peer = await door.peer(connect=connect, accepted=False)
    assert (await peer.receive(ConnAckPacket)).response_info is None


@pytest.mark.mqtt("3.1.2-29")
@pytest.mark.parametrize("wanted", [True, False])
async def test_reasons_in_words_are_for_who_wants_them(door: Door, wanted: bool) -> None:
    peer = await door.peer(connect=ConnectPacket("c", request_problem_info=wanted))
    peer.send(SubscribePacket(1, [any_filter("#x"), TopicFilter("a")]))
    answer = await peer.receive(SubAckPacket)
    assert bool(answer.reason_str) is wanted and not answer.user_properties
    publisher = await door.peer("p")
    publisher.send(PublishPacket("a", b"x", user_properties=[("k", "v")]))
    assert (await peer.receive(PublishPacket)).user_properties == [("k", "v")], "a message's own always come"
