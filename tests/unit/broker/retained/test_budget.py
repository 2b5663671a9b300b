"""Retained messages are bounded in bytes: whoever is over is refused, and nothing is acknowledged and dropped."""

from __future__ import annotations

import asyncio
import gc

import pytest
from mqtt5 import (
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
    Will,
)

from tests.unit.broker.harness import DEADLINE_S, Door
from tests.unit.broker.talk import ONE, TWO, ZERO, publish, retained
from tocsin.broker.connection import publish as publishing
from tocsin.config.schema import Limits
from tocsin.core.retained.topics import Room
from tocsin.wire.mqtt.connect import V311

QUOTA = 0x97
HALF = b"x" * 30_000  # of what one user may have, with what is counted beside it
SMALL = 2 * 2 * 32_000  # for two users, two such messages each


async def kept(door: Door) -> dict[str, bytes]:
    """What is retained, as one who comes now is told."""
    late = await door.peer("late")
    await late.subscribe(TopicFilter("#", max_qos=ZERO))
    late.send(SubscribePacket(2, [TopicFilter("nothing")]))  # answered behind what was retained
    heard: dict[str, bytes] = {}
    while isinstance(packet := await late.next(), PublishPacket):
        heard[packet.topic] = packet.payload
    late.close()
    return heard


async def until(door: Door, topics: set[str]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while set(await kept(door)) != topics:
            await asyncio.sleep(0)


@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_a_message_over_the_budget_is_refused_and_neither_kept_nor_delivered(qos: QoS) -> None:
    async with Door(Limits(), retained_bytes=SMALL) as door:
        watcher = await door.peer("watcher")
        await watcher.subscribe(TopicFilter("#", max_qos=ONE))
        peer = await door.peer("p")
        for number, topic in enumerate(("a", "b"), 1):
            peer.send(PublishPacket(topic, HALF, qos=ONE, retain=True, packet_id=number))
            assert int((await peer.first(PubAckPacket)).reason_code) == 0
        peer.send(PublishPacket("c", HALF, qos=qos, retain=True, packet_id=3))
        kind: type[PubAckPacket] | type[PubRecPacket] = PubAckPacket if qos == ONE else PubRecPacket
        answer: PubAckPacket | PubRecPacket = await peer.first(kind)
        assert int(answer.reason_code) == QUOTA
        await publish(peer, "d", b"not retained", ONE, 4)
        heard = [(await watcher.first(PublishPacket)).topic for _ in range(3)]
        assert heard == ["a", "b", "d"]
        assert set(await kept(door)) == {"a", "b"}
        assert door.parts.retained.refused == 1
        # There is room again once something is removed, and in the place of what is there.
        peer.send(PublishPacket("a", b"", qos=ONE, retain=True, packet_id=5))
        assert int((await peer.first(PubAckPacket)).reason_code) == 0
        for number, topic in enumerate(("c", "c", "b"), 6):
            peer.send(PublishPacket(topic, HALF, qos=ONE, retain=True, packet_id=number))
            assert int((await peer.first(PubAckPacket)).reason_code) == 0
        assert set(await kept(door)) == {"b", "c"}
        assert door.parts.retained.room.reserved == 0


def commits(others: list[object]) -> list[object]:
    """The messages on their way to the log that are in memory, but for these."""
    known = set(map(id, others))
    return [
        each for each in gc.get_objects() if isinstance(each, publishing._Commit) and id(each) not in known
    ]


@pytest.mark.parametrize("qos", [ONE, TWO])
async def test_what_was_retained_leaves_nothing_for_the_garbage_collector(qos: QoS) -> None:
    async with Door(Limits(), retained_bytes=SMALL) as door:
        peer = await door.peer("p")
        gc.collect()
        others = commits([])  # of earlier tests
        gc.disable()  # a broker collects rarely: what waits for it is memory that nobody counts
        try:
            for number in range(1, 6):
                await publish(peer, "a", HALF, qos, number, retain=True)
            async with asyncio.timeout(10):  # the last one may be on its way
                while commits(others):
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()


async def test_an_mqtt_311_client_over_the_budget_is_disconnected_unanswered() -> None:
    async with Door(Limits(), retained_bytes=SMALL) as door:
        peer = await door.peer("p", version=V311, connect=ConnectPacket("p", clean_start=True))
        for number, topic in enumerate(("a", "b"), 1):
            peer.send(PublishPacket(topic, HALF, qos=ONE, retain=True, packet_id=number))
            await peer.first(PubAckPacket)
        peer.send(PublishPacket("c", HALF, qos=ONE, retain=True, packet_id=3))
        assert await peer.closed()
        assert set(await kept(door)) == {"a", "b"}


async def test_a_qos_0_message_over_budget_is_delivered_and_clears_its_topic() -> None:
    async with Door(Limits(), retained_bytes=SMALL) as door:
        watcher = await door.peer("watcher")
        await watcher.subscribe(TopicFilter("#", max_qos=ZERO))
        peer = await door.peer("p")
        peer.send(retained("a", HALF, ZERO))
        await until(door, {"a"})
        peer.send(retained("b", b"old", ZERO))
        await until(door, {"a", "b"})
        peer.send(retained("b", 2 * HALF, ZERO), retained("c", 2 * HALF, ZERO))
        heard = [(await watcher.first(PublishPacket)).topic for _ in range(4)]
        assert heard == ["a", "b", "b", "c"]
        await until(door, {"a"})
        assert door.parts.retained.refused == 2
        assert door.parts.retained.room.reserved == 0


async def test_a_will_over_the_budget_is_published_and_not_retained() -> None:
    async with Door(Limits(), retained_bytes=SMALL) as door:
        watcher = await door.peer("watcher")
        await watcher.subscribe(TopicFilter("#", max_qos=ONE))
        peer = await door.peer("p")
        for number, topic in enumerate(("a", "b"), 1):
            peer.send(PublishPacket(topic, HALF, qos=ONE, retain=True, packet_id=number))
            await peer.first(PubAckPacket)
        will = Will("gone", payload=HALF, qos=ONE, retain=True)
        dying = await door.peer(connect=ConnectPacket("dying", clean_start=True, will=will))
        dying.writer.transport.abort()
        heard = [(await watcher.first(PublishPacket)).topic for _ in range(3)]
        assert heard == ["a", "b", "gone"]
        assert set(await kept(door)) == {"a", "b"}


async def test_a_flood_at_qos_0_of_one_topic_waits_once() -> None:
    """One is being written, and one waits: more are never kept for that, though 6 MB come."""
    async with Door(Limits(), retained_bytes=2 * SMALL) as door:
        peer = await door.peer("p")
        for number in range(200):
            peer.send(retained("a", number.to_bytes(2, "big") + HALF, ZERO))
        await publish(peer, "x", b"", ONE)
        async with asyncio.timeout(DEADLINE_S):
            while (await kept(door)).get("a", b"")[:2] != (199).to_bytes(2, "big"):
                await asyncio.sleep(0)
        assert door.parts.retained.refused == 0
        assert door.parts.retained.room.reserved == 0


async def test_a_broker_whose_copy_is_late_admits_clients_and_replays_later() -> None:
    async with Door(Limits()) as door:
        retained_copy = door.parts.retained
        peer = await door.peer("p")
        peer.send(PublishPacket("a", b"here", qos=ONE, retain=True, packet_id=1))
        await peer.first(PubAckPacket)
        retained_copy.known.clear()
        assert "not all here yet" in (retained_copy.problem() or "")
        reader = await door.peer("reader")
        await reader.subscribe(TopicFilter("#", max_qos=ZERO))
        await publish(peer, "b", b"live", ZERO)
        assert (await reader.first(PublishPacket)).topic == "b", "who is subscribed is served"
        retained_copy.all_here()
        packet = await reader.first(PublishPacket)
        assert (packet.topic, packet.retain) == ("a", True)
        assert retained_copy.problem() is None


def test_the_room_of_a_network_and_of_its_users() -> None:
    room = Room(100, 60)
    assert room.refusal("a", 60) is None
    room.reserve("a", 60)
    assert "this user" in (room.refusal("a", 1) or "")
    assert room.refusal("b", 40) is None
    assert "the network" in (room.refusal("b", 41) or "")
    room.keep("a", 60)  # the copy has it before its write is answered
    room.reserve("a", -60)
    assert (room.kept, room.reserved, room.used("a")) == (60, 0, 60)
    assert room.refusal("a", 60, over=60, own=60) is None, "in the place of its own"
    assert "this user" in (room.refusal("a", 60, over=60) or ""), "in the place of another's"
    assert room.fits(65) and not room.fits(66), "a quarter more, of what others took"
    room.keep("a", -60)
    assert room.used("a") == 0
