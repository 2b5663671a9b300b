"""Streams and queries when somebody is slow, behind, or away: subscribers, the coordinator, the broker itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from mqtt5 import ConnectPacket, PubAckPacket, PublishPacket, TopicFilter

from tests.unit.broker.coordination import coordinator
from tests.unit.broker.harness import DEADLINE_S, Door, until
from tests.unit.broker.talk import ONE, ZERO, lasting, nothing_more, publish, receive
from tocsin.broker.streams import queries, registry
from tocsin.config import Limits
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.delivery.stored_session import decode_session, session_key
from tocsin.core.filters import read_query
from tocsin.core.streams import listing, machine
from tocsin.core.streams import publish_gate as gate
from tocsin.model.publication import decode_publication
from tocsin.model.stream import Value
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.commands import Limits as Bounds
from tocsin.wire.internal.commands import Lost

LAMPS = "$query/kind = 'lamp'"
LISTED = "$streams/kind = 'lamp'"


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
async def leader(server: MemoryServer) -> AsyncIterator[Coordinator]:
    async with coordinator(MemoryStore(server)) as machine:
        yield machine


@pytest.fixture
async def door(server: MemoryServer, leader: Coordinator) -> AsyncIterator[Door]:
    limits = Limits(outbound_max_bytes=1 << 16)
    async with Door(limits, store=MemoryStore(server), takes_part=True) as opened:
        yield opened


async def test_left_comes_after_the_last_message_to_a_subscriber_that_is_behind(door: Door) -> None:
    subscriber = await door.peer(connect=ConnectPacket("s", receive_max=1))
    await subscriber.subscribe(TopicFilter(LISTED), TopicFilter(LAMPS, max_qos=ONE))
    assert json.loads((await subscriber.receive(PublishPacket)).payload) == {"streams": [], "v": 1}
    publisher = await door.peer("p")
    await publish(publisher, "$meta/a", b'{"kind": "lamp"}')
    for number in range(3):
        await publish(publisher, "a", b"%d" % number)
    await publish(publisher, "$meta/a", b'{"kind": "door"}')
    await publish(publisher, "b", b"the log has gone on")
    await publish(publisher, "$meta/b", b'{"kind": "lamp"}')
    heard = []
    for _ in range(6):
        packet = await receive(subscriber)
        heard.append(packet.payload if packet.topic == "a" else next(iter(json.loads(packet.payload))))
    assert sorted(map(str, heard[:3])) == sorted(map(str, ["joined", b"0", "joined"]))
    assert heard[3:] == [b"1", b"2", "left"]
    await nothing_more(subscriber)


async def test_a_subscriber_that_lost_messages_is_told_the_set_anew(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PART_BYTES", 1 << 20)
    reader, publisher = await door.peer("r"), await door.peer("p")
    await reader.subscribe(TopicFilter(LISTED), TopicFilter("noise", max_qos=ZERO))
    assert json.loads((await reader.receive(PublishPacket)).payload) == {"streams": [], "v": 1}
    reader.stop_reading()
    noise = PublishPacket("noise", bytes(1 << 16))
    while not door.exchange.counts.dropped:
        publisher.send(noise)
        await nothing_more(publisher)
    await publish(publisher, "$meta/a", b'{"kind": "lamp"}')
    publisher.send(PublishPacket("a", b"x"))
    await until(lambda: "a" in (door.participant.streams(read_query(LISTED).id) or {}))
    reader.resume_reading()
    while (packet := await reader.first(PublishPacket)).topic == "noise":
        pass
    said = json.loads(packet.payload)
    assert [each["topic"] for each in said["streams"]] == ["a"], said


async def test_messages_wait_within_bounds_for_a_silent_coordinator_and_then_go(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "HELD_MAX", 3)
    async with AsyncExitStack() as stack:
        leading = await stack.enter_async_context(AsyncExitStack())
        await leading.enter_async_context(coordinator(MemoryStore(server)))
        door = await stack.enter_async_context(Door(Limits(), store=MemoryStore(server), takes_part=True))
        subscriber, publisher = await door.peer("s"), await door.peer("p")
        await subscriber.subscribe(TopicFilter("#"))
        await publish(publisher, "$meta/a", b"{}")
        await leading.aclose()
        for number in range(3):
            publisher.send(PublishPacket(f"t/{number}", b"%d" % number))
        await until(lambda: door.exchange.statistics()["held"] == 3)
        publisher.send(*(PublishPacket("t/0", b"%d" % number) for number in range(3, 20)))
        await asyncio.sleep(0.05)
        assert door.exchange.statistics()["held"] == 3, "it is read no more"
        assert [(await receive(subscriber)).payload for _ in range(20)] == [b"%d" % n for n in range(20)]


async def test_without_a_coordinator_nothing_waits_and_nothing_is_lost_later(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "ANSWER_S", 0.1)
    store = MemoryStore(server)
    async with Door(Limits(), store=MemoryStore(server), takes_part=False) as door:
        publisher, reader = await door.peer("p"), await door.peer("r")
        publisher.send(PublishPacket("a", b"x", user_properties=[("meta.kind", "lamp")]))
        publisher.send(PublishPacket("$meta/a", b'{"room": 4}', qos=ONE, packet_id=1))
        await nothing_more(publisher)
        await reader.subscribe(TopicFilter(LISTED), TopicFilter(LAMPS))
        taking_part = asyncio.create_task(door.driver.run())
        async with coordinator(store) as machine:
            assert int((await publisher.first(PubAckPacket)).reason_code) == 0
            said = json.loads((await receive(reader)).payload)
            assert [each["metadata"]["room"] for each in said["streams"]] == [4]
            await until(lambda: machine.replica.presence.streams["a"].publishers == {"p": None})
            publisher.send(PublishPacket("a", b"found"))
            assert (await receive(reader)).payload == b"found"
        taking_part.cancel()
        await asyncio.gather(taking_part, return_exceptions=True)


async def test_no_more_than_so_many_changes_wait_for_a_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "UNSETTLED_MAX", 3)
    async with Door(Limits()) as door:
        subscriber, publisher = await door.peer("s"), await door.peer("p")
        await subscriber.subscribe(TopicFilter("#", max_qos=ZERO))
        publisher.send(*(PublishPacket(f"a/{number}", b"%d" % number) for number in range(5)))
        assert [(await receive(subscriber)).payload for _ in range(5)] == [b"%d" % n for n in range(5)]
        statistics = door.exchange.statistics()
        assert (statistics["streams"], statistics["unregistered"]) == (3, 2)
        publisher.send(PublishPacket("$meta/a/1", b"{}", qos=ONE, packet_id=1))
        assert int((await publisher.first(PubAckPacket)).reason_code) == 0x97


async def test_no_more_than_so_many_bytes_of_changes_wait_for_a_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "UNSETTLED_MAX_BYTES", 3_000)
    async with Door(Limits()) as door:
        publisher = await door.peer("p")
        said = b'{"words": "%b"}' % (b"w" * 900)
        for number in range(3):
            publisher.send(PublishPacket(f"$meta/a/{number}", said, qos=ONE, packet_id=number + 1))
        refused = await publisher.first(PubAckPacket)
        assert (refused.packet_id, int(refused.reason_code)) == (3, 0x97)


async def test_a_broker_counted_as_lost_redeclares_without_disturbing_its_subscribers(
    door: Door, leader: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, publisher = await door.peer("r"), await door.peer("p")
    await reader.subscribe(TopicFilter(LISTED), TopicFilter(LAMPS))
    publisher.send(PublishPacket("a", b"1", user_properties=[("meta.kind", "lamp")]))
    said = [json.loads((await receive(reader)).payload) for _ in range(2)]
    assert [next(iter(each)) for each in said] == ["streams", "joined"]
    assert (await receive(reader)).payload == b"1"
    old = door.participant.incarnation
    assert leader.leader is not None
    monkeypatch.setattr(leader.leader.attention, "believes", lambda lost: True)  # though the broker is heard
    leader.leader._waiting.append(Lost("north-1", old))
    await reader.subscribe(TopicFilter("something/else"))  # so that the leader has something to append
    await until(lambda: door.participant.incarnation != old)
    await until(lambda: leader.replica.is_member("north-1", door.participant.incarnation))
    await until(lambda: "a" in leader.replica.presence.streams and bool(leader.replica.askers))
    publisher.send(PublishPacket("a", b"2"))
    heard = [await receive(reader)]
    while heard[-1].topic != "a":
        heard.append(await receive(reader))
    words = [next(iter(json.loads(packet.payload))) for packet in heard[:-1]]
    assert words in ([], ["left", "joined"]), "in turns, if at all"
    assert heard[-1].payload == b"2"


async def test_what_the_coordinator_has_no_room_for_is_refused(server: MemoryServer) -> None:
    bounds = Bounds(streams_max=1, queries_max=1)
    async with (
        coordinator(MemoryStore(server), limits=bounds),
        Door(Limits(), store=MemoryStore(server), takes_part=True) as door,
    ):
        peer = await door.peer("p")
        for topic, code in (("a", 0), ("b", 0x97)):
            peer.send(PublishPacket(f"$meta/{topic}", b'{"$permanent": true}', qos=ONE, packet_id=1))
            assert int((await peer.first(PubAckPacket)).reason_code) == code
        await peer.subscribe(TopicFilter(LAMPS))
        with pytest.raises(AssertionError):
            await peer.subscribe(TopicFilter("$query/other"))
        assert door.exchange.statistics()["queries"] == 1


async def test_messages_carry_metadata_though_the_client_moved_and_nobody_leads(
    server: MemoryServer,
) -> None:
    """A query that nobody has answered yet judges messages by what they carry: without it they would be lost to it."""
    async with AsyncExitStack() as leading, AsyncExitStack() as doors:
        await leading.enter_async_context(coordinator(MemoryStore(server)))
        door, other = [
            await doors.enter_async_context(
                Door(Limits(), store=MemoryStore(server), broker=name, takes_part=True)
            )
            for name in ("north-1", "north-2")
        ]
        first = await door.peer(connect=lasting("p", clean=True))
        first.send(
            PublishPacket("a", b"1", qos=ONE, packet_id=1, user_properties=[("meta.kind", "lamp")]),
            PublishPacket("b", b"1", qos=ONE, packet_id=2),
        )
        for _ in range(2):
            await first.receive(PubAckPacket)

        async def streams() -> dict[str, dict[str, Value]]:
            cell = await door.parts.sessions.table.get(session_key("p"))
            return {} if cell is None else decode_session(cell.value).streams

        async with asyncio.timeout(DEADLINE_S):
            while await streams() != {"a": {"kind": "lamp"}}:
                await asyncio.sleep(0.01)
        await leading.aclose()
        again = await other.peer(connect=lasting("p"))
        again.send(
            PublishPacket("a", b"2", qos=ONE, packet_id=1), PublishPacket("b", b"2", qos=ONE, packet_id=2)
        )
        for _ in range(2):
            await again.receive(PubAckPacket)
        page = await other.parts.message_log._log.read(">", 0, limit=10)
        said = {}
        for entry in page.entries:
            publication = decode_publication(entry.payload)
            said[publication.topic, publication.payload] = publication.keys
        assert said == {
            ("a", b"1"): {"kind": "lamp"},
            ("b", b"1"): None,
            ("a", b"2"): {"kind": "lamp"},
            ("b", b"2"): None,
        }


async def test_a_sessions_metadata_yields_to_the_coordinators(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "TOLD_S", 0.05)
    store = MemoryStore(server)
    async with coordinator(store), Door(Limits(), store=store, takes_part=True) as door:
        first, other = await door.peer(connect=lasting("p", clean=True)), await door.peer("o")
        for topic in ("a", "b"):
            await publish(first, f"$meta/{topic}", b'{"kind": "lamp"}')
            await publish(first, topic, b"1")
        first.close()
        await until(lambda: "p" not in door.listener._clients)
        await publish(other, "$meta/a", b"")
        await publish(other, "$meta/b", b'{"kind": "door"}')
        again = await door.peer(connect=lasting("p"))
        await publish(again, "a", b"2")
        await publish(again, "b", b"2")
        known = door.exchange.registry
        await until(lambda: known.metadata.of("a") is None and known.metadata.of("b") == {"kind": "door"})
