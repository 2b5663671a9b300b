"""Streams and queries as clients see them: two brokers on real sockets, one coordinator, a store in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from mqtt5 import (
    ConnectPacket,
    DisconnectPacket,
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)
from structlog.testing import capture_logs

from tests.unit.broker.coordination import coordinator
from tests.unit.broker.harness import Door, Peer, until
from tests.unit.broker.talk import LASTING, ONE, TWO, ZERO, lasting, nothing_more, publish, receive, retained
from tocsin.config import Limits
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.participant.signals import ParticipantTimer
from tocsin.core.machine import TimerFired
from tocsin.ports import Entry, LogSpec
from tocsin.store.memory.store import MemoryLog, MemoryServer, MemoryStore
from tocsin.wire.mqtt.connect import V5, V311, Version

LAMPS = "$query/kind = 'lamp'"
LISTED = "$streams/kind = 'lamp'"


class Network(NamedTuple):
    here: Door
    there: Door
    coordinator: Coordinator


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    server = MemoryServer()
    async with AsyncExitStack() as stack:
        machine = await stack.enter_async_context(coordinator(MemoryStore(server)))
        doors = [
            await stack.enter_async_context(
                Door(Limits(streams_per_client=20), store=MemoryStore(server), broker=name, takes_part=True)
            )
            for name in ("north-1", "north-2")
        ]
        yield Network(doors[0], doors[1], machine)


def described(topic: str, diff: object, packet_id: int = 1) -> PublishPacket:
    payload = diff if isinstance(diff, bytes) else json.dumps(diff).encode()
    return PublishPacket(f"$meta/{topic}", payload, qos=ONE, packet_id=packet_id)


async def describe(peer: Peer, topic: str, diff: object) -> int:
    peer.send(described(topic, diff))
    return int((await peer.first(PubAckPacket)).reason_code)


def with_metadata(topic: str, payload: bytes, **metadata: str) -> PublishPacket:
    properties = [(f"meta.{key}", value) for key, value in metadata.items()]
    return PublishPacket(topic, payload, user_properties=properties)


async def told(peer: Peer) -> Any:
    """The next word about a set of streams."""
    packet = await peer.first(PublishPacket)
    assert packet.topic.startswith("$streams/"), packet
    return json.loads(packet.payload)


# ── messages of streams that satisfy a query ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("qos", [ZERO, ONE, TWO])
@pytest.mark.parametrize("far", [False, True])
async def test_a_query_gets_messages_from_the_first_that_satisfies_it(
    network: Network, version: Version, qos: Any, far: bool
) -> None:
    subscriber = await (network.there if far else network.here).peer("s", version=version)
    await subscriber.subscribe(TopicFilter(LAMPS, max_qos=qos))
    publisher = await network.here.peer("p")
    await publish(publisher, "a/1", b"before", qos)
    assert await describe(publisher, "a/1", {"kind": "lamp"}) == 0
    await publish(publisher, "a/1", b"first", qos)
    await publish(publisher, "a/1", b"second", qos)
    assert await describe(publisher, "a/1", {"kind": "door"}) == 0
    await publish(publisher, "a/1", b"after", qos)
    assert await describe(publisher, "a/1", {"kind": "lamp"}) == 0
    await publish(publisher, "a/1", b"again", qos)
    heard = [await receive(subscriber) for _ in range(3)]
    assert [packet.payload for packet in heard] == [b"first", b"second", b"again"]
    assert {(packet.topic, int(packet.qos)) for packet in heard} == {("a/1", int(qos))}
    await nothing_more(subscriber)


@pytest.mark.parametrize("far", [False, True])
async def test_metadata_on_a_message_and_the_message_are_one(network: Network, far: bool) -> None:
    subscriber = await (network.there if far else network.here).peer("s")
    await subscriber.subscribe(TopicFilter(LAMPS))
    publisher = await network.here.peer("p")
    publisher.send(
        with_metadata("a", b"1", kind="lamp", room="410"),
        PublishPacket("a", b"2"),
        with_metadata("a", b"3", kind=""),
        PublishPacket("a", b"4"),
        with_metadata("a", b"5", kind="lamp"),
    )
    assert [(await receive(subscriber)).payload for _ in range(3)] == [b"1", b"2", b"5"]


async def test_a_burst_of_first_messages_on_many_streams_arrives_in_order(network: Network) -> None:
    subscriber = await network.there.peer("s")
    await subscriber.subscribe(TopicFilter("$query/topic LIKE 'a/%'"))
    publisher = await network.here.peer("p")
    publisher.send(*(PublishPacket(f"a/{number}", b"%d" % number) for number in range(20)))
    publisher.send(*(PublishPacket(f"a/{number}", b"again") for number in range(20)))
    first = [await receive(subscriber) for _ in range(20)]
    assert [packet.topic for packet in first] == [f"a/{number}" for number in range(20)]
    assert {(await receive(subscriber)).payload for _ in range(20)} == {b"again"}


async def test_overlapping_subscriptions_give_one_copy_with_all_identifiers(network: Network) -> None:
    publisher = await network.here.peer("p")
    await describe(publisher, "a", {"kind": "lamp"})
    subscriber = await network.there.peer("s")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE), subscription_id=1)
    await subscriber.subscribe(TopicFilter(LAMPS, max_qos=TWO), subscription_id=2)
    await subscriber.subscribe(TopicFilter("$query/(kind = 'lamp')", max_qos=ZERO), subscription_id=3)
    assert len(network.there.participant.queries) == 1, "the same query, written in two ways"
    await publish(publisher, "a", b"x", TWO)
    packet = await receive(subscriber)
    assert (int(packet.qos), sorted(packet.subscription_ids)) == (2, [1, 2, 3])
    await nothing_more(subscriber)


async def test_a_client_does_not_get_its_own_messages_if_it_says_so(network: Network) -> None:
    client = await network.here.peer("c")
    await client.subscribe(TopicFilter("$query/topic = 'a'", no_local=True))
    client.send(PublishPacket("a", b"own"))
    await publish(client, "a", b"own", ONE)
    other = await network.there.peer("o")
    other.send(PublishPacket("a", b"other"))
    assert (await receive(client)).payload == b"other"


async def test_retained_messages_of_the_streams_come_with_the_subscription(network: Network) -> None:
    publisher = await network.here.peer("p")
    await describe(publisher, "a", {"kind": "lamp"})
    for topic in ("a", "b"):
        publisher.send(retained(topic, b"kept"))
        await publisher.first(PubAckPacket)
    subscriber = await network.there.peer("s")
    await until(lambda: len(network.there.parts.retained) == 2)
    await subscriber.subscribe(TopicFilter(LAMPS))
    packet = await receive(subscriber)
    assert (packet.topic, packet.retain) == ("a", True)
    await nothing_more(subscriber)


async def test_an_unsubscribed_query_gets_nothing_and_is_forgotten_when_nobody_asks_it(
    network: Network,
) -> None:
    publisher = await network.here.peer("p")
    publisher.send(with_metadata("a", b"", kind="lamp"))
    one, two = await network.there.peer("1"), await network.there.peer("2")
    await one.subscribe(TopicFilter(LAMPS))
    await two.subscribe(TopicFilter(LAMPS))
    one.send(UnsubscribePacket(2, [LAMPS]))
    assert int((await one.first(UnsubAckPacket)).reason_codes[0]) == 0
    publisher.send(PublishPacket("a", b"x"))
    assert (await receive(two)).payload == b"x"
    await nothing_more(one)
    two.close()
    await until(lambda: not network.coordinator.replica.askers)
    assert network.there.exchange.statistics()["queries"] == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("$query/kind =", "query, character 7: expected a value, a key or NOT, found the end: kind =^"),
        ("$query/a/+/b", "+ at position 9 must be written %2B in a query"),
        ("$streams/#", "# at position 9 must be written %23 in a query"),
        ("$share/g/$query/a = 1", "a query cannot be shared; subscribe to it without $share"),
    ],
)
async def test_a_bad_query_is_refused_in_one_line_that_shows_where(door: Door, name: str, words: str) -> None:
    peer = await door.peer("s")
    peer.send(SubscribePacket(1, [TopicFilter("ok"), TopicFilter(name)]))
    answer = await peer.receive(SubAckPacket)
    assert [int(code) for code in answer.reason_codes] == [2, 0x8F]
    assert answer.reason_str is not None and answer.reason_str.endswith(words), answer.reason_str


async def test_without_a_coordinator_messages_flow_and_queries_get_durable_ones(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.broker.streams.queries.ANSWER_S", 0.1)
    subscriber, publisher = await door.peer("s"), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a/#"), TopicFilter("$query/topic = 'b'", max_qos=ONE))
    publisher.send(PublishPacket("a/1", b"quick"))
    assert (await receive(subscriber)).payload == b"quick"
    await publish(publisher, "b", b"durable", ONE)
    packet = await receive(subscriber)
    assert (packet.payload, int(packet.qos)) == (b"durable", 1)


# ── what is said of streams ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b'{"kind": "lamp", "old": null, "level": 2.5, "on": true}', 0),
        (b"", 0),
        (b"null", 0),
        (b"[1]", 0x99),
        (b'{"a": {"b": 1}}', 0x99),
        (b'{"client": "me"}', 0x99),
        (b'{"$permanent": "yes"}', 0x99),
        (b"{", 0x99),
        (b"\xff", 0x99),
    ],
)
async def test_a_description_is_acknowledged_when_it_is_durable_or_refused(
    network: Network, payload: bytes, code: int
) -> None:
    peer = await network.here.peer("p")
    assert await describe(peer, "a", payload) == code
    streams = network.coordinator.replica.presence.streams
    assert ("a" in streams) == (code == 0 and payload.startswith(b"{"))
    peer.send(PublishPacket("$meta/a", payload, qos=TWO, packet_id=2))
    assert int((await peer.first(PubRecPacket)).reason_code) == code
    peer.send(PublishPacket("$meta/a", payload))
    await nothing_more(peer)
    assert network.here.exchange.statistics()["descriptions_refused"] == (3 if code else 0)


async def test_a_client_that_is_always_refused_does_not_fill_the_log(network: Network) -> None:
    peer = await network.here.peer("p")
    with capture_logs() as lines:
        for _ in range(4):
            assert await describe(peer, "a", b"[1]") == 0x99
    said = [each["log_level"] for each in lines if each["event"] == "words for the broker were refused"]
    assert said == ["info", "debug", "debug", "debug"]


async def test_a_client_of_the_old_protocol_is_acknowledged_and_keeps_its_connection(
    network: Network,
) -> None:
    peer = await network.here.peer("p", version=V311)
    assert await describe(peer, "a", b"[1]") == 0
    assert await describe(peer, "a", {"kind": "lamp"}) == 0
    assert network.coordinator.replica.presence.streams["a"].keys == {"kind": "lamp"}


@pytest.mark.parametrize("topic", ["$meta/", "$meta/$SYS/x", "$meta"])
async def test_the_servers_own_topics_cannot_be_described(network: Network, topic: str) -> None:
    peer = await network.here.peer("p")
    peer.send(PublishPacket(topic, b"{}", qos=ONE, packet_id=1))
    assert int((await peer.first(PubAckPacket)).reason_code) == 0x87


async def test_bad_metadata_on_a_message_refuses_the_message(network: Network) -> None:
    subscriber, peer = await network.here.peer("s"), await network.here.peer("p")
    await subscriber.subscribe(TopicFilter("a"))
    bad = [("meta.broker", "mine")]
    peer.send(PublishPacket("a", b"bad", qos=ONE, packet_id=1, user_properties=bad))
    assert int((await peer.first(PubAckPacket)).reason_code) == 0x99
    peer.send(PublishPacket("a", b"bad", user_properties=bad), PublishPacket("a", b"good"))
    assert (await receive(subscriber)).payload == b"good"


async def test_beyond_the_bound_messages_flow_and_are_no_streams(network: Network) -> None:
    subscriber, peer = await network.there.peer("s"), await network.here.peer("p")
    await subscriber.subscribe(TopicFilter("a/#"))
    for number in range(25):
        peer.send(PublishPacket(f"a/{number}", b"%d" % number))
    assert [(await receive(subscriber)).payload for _ in range(25)] == [b"%d" % n for n in range(25)]
    statistics = network.here.exchange.statistics()
    assert (statistics["streams"], statistics["unregistered"]) == (20, 5)
    peer.send(PublishPacket("a/24", b"", qos=ONE, packet_id=1, user_properties=[("meta.kind", "lamp")]))
    assert int((await peer.first(PubAckPacket)).reason_code) == 0x97


# ── the set itself ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_set_comes_first_and_then_each_change_of_it(network: Network) -> None:
    publisher = await network.here.peer("p")
    publisher.send(with_metadata("a", b"", kind="lamp"))
    await until(lambda: "a" in network.coordinator.replica.presence.streams)
    reader = await network.there.peer("r")
    reader.send(SubscribePacket(1, [TopicFilter(LISTED, max_qos=TWO)], subscription_id=9))
    assert [int(code) for code in (await reader.receive(SubAckPacket)).reason_codes] == [0]
    first = await reader.receive(PublishPacket)
    assert (first.topic, first.subscription_ids, int(first.qos)) == (LISTED, [9], 0)
    metadata = {"kind": "lamp", "topic": "a", "client": "p", "broker": "north-1", "cluster": "north"}
    assert json.loads(first.payload) == {"streams": [{"topic": "a", "metadata": metadata}], "v": 1}
    await describe(publisher, "a", {"room": 4})
    assert await told(reader) == {
        "changed": {"topic": "a", "metadata": {**metadata, "room": 4}},
        "v": 1,
    }
    publisher.send(with_metadata("b", b"", kind="lamp"))
    assert (await told(reader))["joined"]["topic"] == "b"
    await describe(publisher, "a", {"kind": None})
    assert (await told(reader))["left"]["topic"] == "a"
    publisher.close()
    assert (await told(reader))["left"]["topic"] == "b"
    assert network.there.exchange.statistics()["links"] == network.here.exchange.statistics()["links"] == 0


@pytest.mark.parametrize("qos", [ZERO, ONE])
async def test_joined_comes_before_the_first_message_and_left_after_the_last(
    network: Network, qos: Any
) -> None:
    subscriber = await network.there.peer("s")
    await subscriber.subscribe(TopicFilter(LISTED), TopicFilter(LAMPS, max_qos=qos))
    assert await told(subscriber) == {"streams": [], "v": 1}
    publisher = await network.here.peer("p")
    heard: list[str] = []
    for turn in range(5):
        assert await describe(publisher, "a", {"kind": "lamp"}) == 0
        await publish(publisher, "a", b"%d" % turn, qos)
        if qos == ZERO:  # best effort: it must not be overtaken by what follows
            await until(lambda: network.there.exchange.counts.relayed > len(heard) // 4)
        assert await describe(publisher, "a", {"kind": "door"}) == 0
        for _ in range(3):
            packet = await receive(subscriber)
            heard.append("message" if packet.topic == "a" else next(iter(json.loads(packet.payload))))
    assert heard == ["joined", "message", "left"] * 5


async def test_a_permanent_stream_stays_when_its_publisher_goes(network: Network) -> None:
    publisher = await network.here.peer("p")
    await describe(publisher, "a", {"kind": "lamp", "$permanent": True})
    publisher.send(PublishPacket("a", b"x"))
    publisher.send(DisconnectPacket())
    assert await publisher.closed()
    stream = network.coordinator.replica.presence.streams["a"]
    await until(lambda: stream.origin != {} and not stream.publishers)
    reader = await network.there.peer("r")
    await reader.subscribe(TopicFilter(LISTED))
    assert [each["topic"] for each in (await told(reader))["streams"]] == ["a"]
    other = await network.there.peer("o")
    await describe(other, "a", b"")
    assert (await told(reader))["left"]["topic"] == "a"


async def test_the_last_message_of_a_departing_client_arrives_within_its_stream(
    network: Network,
) -> None:
    subscriber = await network.there.peer("s")
    await subscriber.subscribe(
        TopicFilter("$streams/topic = 'a'"), TopicFilter("$query/topic = 'a'", max_qos=ONE)
    )
    assert await told(subscriber) == {"streams": [], "v": 1}
    publisher = await network.here.peer("p")
    publisher.send(
        PublishPacket("a", b"x"), PublishPacket("a", b"y", qos=ONE, packet_id=1), DisconnectPacket()
    )
    assert "joined" in await told(subscriber)
    assert {(await receive(subscriber)).payload for _ in range(2)} == {b"x", b"y"}
    assert "left" in await told(subscriber)


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_stream_outlives_its_connection_and_moves_with_the_session(
    network: Network,
) -> None:
    publisher = await network.here.peer(connect=lasting("p", clean=True))
    publisher.send(with_metadata("a", b"", kind="lamp"))
    reader = await network.there.peer("r")
    await until(lambda: "a" in network.coordinator.replica.presence.streams)
    await reader.subscribe(TopicFilter(LISTED))
    assert len((await told(reader))["streams"]) == 1
    publisher.close()
    await until(lambda: network.coordinator.replica.presence.clients["p"].until_us is not None)
    again = await network.there.peer(connect=lasting("p"))
    assert (await told(reader))["changed"]["metadata"]["broker"] == "north-2"
    again.send(DisconnectPacket(session_expiry_interval=0))
    assert (await told(reader))["left"]["topic"] == "a"


async def test_a_clean_start_ends_the_streams_of_the_session_before(network: Network) -> None:
    publisher = await network.here.peer(connect=lasting("p", clean=True))
    publisher.send(with_metadata("a", b"", kind="lamp"))
    await until(lambda: "a" in network.coordinator.replica.presence.streams)
    publisher.close()
    await until(lambda: network.coordinator.replica.presence.clients["p"].until_us is not None)
    await network.there.peer("p")
    await until(lambda: "p" not in network.coordinator.replica.presence.clients)


async def test_a_durable_query_matches_missed_messages_by_their_metadata_then(network: Network) -> None:
    subscriber = await network.there.peer(connect=lasting("s", clean=True))
    await subscriber.subscribe(TopicFilter(LAMPS, max_qos=ONE))
    subscriber.close()
    await until(lambda: not network.coordinator.replica.askers)
    publisher = await network.here.peer("p")
    for number, kind in enumerate(("lamp", "door", "lamp", "heater")):
        await describe(publisher, "a", {"kind": kind})
        await publish(publisher, "a", b"%d" % number)
        await publish(publisher, "b", b"other")
    again = await network.there.peer(connect=lasting("s"))
    assert [(await receive(again)).payload for _ in range(2)] == [b"0", b"2"]
    await nothing_more(again)
    await describe(publisher, "a", {"kind": "lamp"})
    await publish(publisher, "a", b"live")
    assert (await receive(again)).payload == b"live"


class Lagging(MemoryStore):
    """A store that brings messages of the log only while ``on`` is set."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.on = asyncio.Event()
        self.on.set()

    async def log(self, spec: LogSpec) -> MemoryLog:
        log = await super().log(spec)
        if spec.name == "net-messages":
            follow = log.follow

            async def slow(subject: str, start: int) -> AsyncIterator[Entry]:
                async for entry in follow(subject, start):
                    await self.on.wait()
                    yield entry

            log.follow = slow  # type: ignore[method-assign]
        return log


@pytest.mark.parametrize("anew", [False, True])
async def test_messages_of_a_gone_stream_reach_queries_at_a_lagging_broker(anew: bool) -> None:
    """It is told that the stream left before it has read the messages: by a notice that waits no longer, or anew."""
    server = MemoryServer()
    store = Lagging(server)
    async with (
        coordinator(MemoryStore(server)),
        Door(Limits(), store=MemoryStore(server), broker="north-1", takes_part=True) as here,
        Door(Limits(), store=store, broker="north-2", takes_part=True) as there,
    ):
        subscriber = await there.peer("s")
        await subscriber.subscribe(TopicFilter(LAMPS, max_qos=ONE))
        publisher = await here.peer("p")
        await describe(publisher, "a", {"kind": "lamp"})
        await publish(publisher, "a", b"first", ONE)
        assert (await receive(subscriber)).payload == b"first"
        store.on.clear()
        member = there.participant
        (query,) = member.queries
        await publish(publisher, "a", b"second", ONE)
        await describe(publisher, "a", {"kind": "door"})
        if anew:
            member._inbox.miss()  # so that it asks for everything
            there.driver.post(TimerFired(name=ParticipantTimer.BEAT))
        await publish(publisher, "a", b"third", ONE)
        await until(lambda: "a" not in (member.streams(query) or ()))
        store.on.set()
        assert (await receive(subscriber)).payload == b"second"
        await nothing_more(subscriber)
        await until(lambda: "a" not in (member.streams(query) or ()))


async def test_a_listing_in_a_session_begins_with_the_set_again(network: Network) -> None:
    reader = await network.here.peer(connect=lasting("r", clean=True))
    await reader.subscribe(TopicFilter(LISTED))
    assert await told(reader) == {"streams": [], "v": 1}
    reader.close()
    publisher = await network.there.peer("p")
    publisher.send(with_metadata("a", b"", kind="lamp"))
    await until(lambda: "a" in network.coordinator.replica.presence.streams)
    again = await network.here.peer(connect=ConnectPacket("r", session_expiry_interval=LASTING))
    assert len((await told(again))["streams"]) == 1
