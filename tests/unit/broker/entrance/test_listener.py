"""Clients and links at a broker's entrance, over real sockets."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PingReqPacket,
    PublishPacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
    Will,
)

from tests.unit.broker.harness import Door, until
from tests.unit.broker.talk import nothing_more
from tocsin.broker.entrance.listener import listening_socket
from tocsin.config import Limits
from tocsin.core.tiers.slots import SLOTS, Slots
from tocsin.errors import PortTaken
from tocsin.model.network import BrokerInfo, Role, Route, Scheme, Scope
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version


@pytest.mark.parametrize("subscriber_version", [V5, V311])
@pytest.mark.parametrize("publisher_version", [V5, V311])
async def test_a_message_reaches_subscribers_of_either_version(
    door: Door, subscriber_version: Version, publisher_version: Version
) -> None:
    subscriber = await door.peer("s", version=subscriber_version)
    publisher = await door.peer("p", version=publisher_version)
    await subscriber.subscribe(TopicFilter("a/+"))
    publisher.send(PublishPacket("a/b", b"one"), PublishPacket("b", b"no"), PublishPacket("a/c", b"two"))
    heard = [await subscriber.receive(PublishPacket) for _ in range(2)]
    assert [(packet.topic, packet.payload) for packet in heard] == [("a/b", b"one"), ("a/c", b"two")]


async def test_properties_are_forwarded_to_those_who_can_read_them(door: Door) -> None:
    modern, old = await door.peer("s5"), await door.peer("s4", version=V311)
    for subscriber in (modern, old):
        await subscriber.subscribe(TopicFilter("a"))
    publisher = await door.peer("p")
    publisher.send(PublishPacket("a", b"x", content_type="text", user_properties=[("k", "v")]))
    heard = await modern.receive(PublishPacket)
    assert (heard.content_type, heard.user_properties) == ("text", [("k", "v")])
    assert (await old.receive(PublishPacket)).payload == b"x"


async def test_no_local_excludes_the_publisher_and_nobody_else(door: Door) -> None:
    own, other = await door.peer("own"), await door.peer("other")
    await own.subscribe(TopicFilter("a", no_local=True))
    await other.subscribe(TopicFilter("a", no_local=True))
    own.send(PublishPacket("a", b"mine"))
    assert (await other.receive(PublishPacket)).payload == b"mine"
    await nothing_more(own)


async def test_subscription_identifiers_come_with_the_message(door: Door) -> None:
    subscriber, publisher = await door.peer("s"), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a"), subscription_id=7)
    await subscriber.subscribe(TopicFilter("#"), subscription_id=9)
    publisher.send(PublishPacket("a", b"x"))
    assert sorted((await subscriber.receive(PublishPacket)).subscription_ids) == [7, 9]


async def test_interests_are_told_once_for_all_subscribers_of_a_filter(door: Door) -> None:
    one, two = await door.peer("1"), await door.peer("2")
    await one.subscribe(TopicFilter("a/#"))
    await two.subscribe(TopicFilter("a/#"))
    assert door.interests == [(("a/#",), ())]
    one.send(UnsubscribePacket(2, ["a/#"]))
    await one.receive(UnsubAckPacket)
    assert len(door.interests) == 1
    two.close()
    await until(lambda: len(door.interests) == 2)
    assert door.interests[1] == ((), ("a/#",))


async def test_a_second_connection_with_the_same_client_id_takes_over(door: Door) -> None:
    first = await door.peer("same")
    await first.subscribe(TopicFilter("a"))
    second = await door.peer("same")
    goodbye = await first.receive(DisconnectPacket)
    assert int(goodbye.reason_code) == 0x8E
    assert await first.closed()
    assert door.listener.clients == 1
    await nothing_more(second)


async def test_a_will_is_published_for_a_vanished_client_only(door: Door) -> None:
    watcher = await door.peer("watcher")
    await watcher.subscribe(TopicFilter("gone/+"))
    polite = await door.peer(connect=ConnectPacket("polite", will=Will("gone/polite", payload=b"x")))
    polite.send(DisconnectPacket())
    assert await polite.closed()
    lost = await door.peer(connect=ConnectPacket("lost", will=Will("gone/lost", payload=b"x")))
    lost.close()
    assert (await watcher.receive(PublishPacket)).topic == "gone/lost"


async def test_a_full_broker_says_that_it_is_busy() -> None:
    async with Door(Limits(connections_max=1)) as door:
        await door.peer("first")
        second = await door.peer("second", accepted=False)
        assert int((await second.receive(ConnAckPacket)).reason_code) == 0x89
        assert await second.closed()


async def test_a_client_gets_no_packet_over_its_maximum_and_the_others_do(door: Door) -> None:
    small = await door.peer(connect=ConnectPacket("small", max_packet_size=200))
    large, publisher = await door.peer("large"), await door.peer("p")
    for subscriber in (small, large):
        await subscriber.subscribe(TopicFilter("a"))
    publisher.send(PublishPacket("a", b"x" * 500), PublishPacket("a", b"short"))
    assert (await small.receive(PublishPacket)).payload == b"short"
    assert [len((await large.receive(PublishPacket)).payload) for _ in range(2)] == [500, 5]
    assert door.exchange.counts.dropped == 1


async def test_a_subscriber_that_does_not_read_loses_messages_and_nobody_else_does() -> None:
    async with Door(Limits(outbound_max_bytes=1 << 16)) as door:
        stuck, reading, publisher = await door.peer("stuck"), await door.peer("reading"), await door.peer("p")
        for subscriber in (stuck, reading):
            await subscriber.subscribe(TopicFilter("a"))
        stuck.stop_reading()
        payload = b"x" * 50_000
        count = 400  # 20 MB: more than the kernel's buffers and ours together
        for _ in range(count):
            publisher.send(PublishPacket("a", payload))
            assert (await reading.receive(PublishPacket)).payload == payload
        assert door.exchange.counts.dropped > 0
        stuck.writer.transport.abort()


async def test_a_client_over_its_rate_is_paused_and_others_are_read() -> None:
    async with Door(Limits(publish_rate=1, publish_burst=5)) as door:
        fast, other = await door.peer("fast"), await door.peer("other")
        fast.writer.write(
            encode(PublishPacket("a", b"x"), V5) * 15
        )  # in one piece, so that it is read as one
        await until(lambda: door.exchange.counts.published == 15)
        fast.send(PingReqPacket())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await fast.next()
        await nothing_more(other)


async def test_a_client_that_calls_itself_a_link_is_a_client(door: Door) -> None:
    said = [("broker", "x"), ("cluster", "south")]
    stranger = await door.peer(connect=ConnectPacket("$link/x", username="$link", user_properties=said))
    subscriber = await door.peer("s")
    await subscriber.subscribe(TopicFilter("#"), TopicFilter("$SYS/x"))
    stranger.send(PublishPacket("$SYS/x", b"forged"), PublishPacket("$near/words", b"forged"))
    await nothing_more(subscriber)
    assert door.exchange.counts.relayed == 0


async def test_stopping_tells_the_clients(door: Door) -> None:
    client = await door.peer("c")
    await door.listener.close()
    assert int((await client.receive(DisconnectPacket)).reason_code) == 0x8B
    assert await client.closed()


async def test_a_stopping_broker_redirects_its_clients_if_it_knows_another(door: Door) -> None:
    modern, old = await door.peer("c5"), await door.peer("c4", version=V311)
    door.refuges[Scheme.MQTT] = "other:1884"
    await door.listener.close()
    goodbye = await modern.receive(DisconnectPacket)
    assert (int(goodbye.reason_code), goodbye.server_reference) == (0x9C, "other:1884")
    assert await modern.closed()
    assert await old.closed()


async def test_a_full_broker_names_another_one_that_speaks_as_the_client_does() -> None:
    async with Door(Limits(connections_max=1)) as door:
        await door.peer("first")
        door.refuges[Scheme.MQTTS] = "other:8883"
        assert await answer_of(door, V5) == (0x89, None)
        door.refuges[Scheme.MQTT] = "other:1884"
        assert await answer_of(door, V5) == (0x9C, "other:1884")
        assert await answer_of(door, V311) == (0x88, None), "its version has only: unavailable"


async def answer_of(door: Door, version: Version) -> tuple[int, str | None]:
    """What one client more is told."""
    peer = await door.peer("more", version=version, accepted=False)
    answer = await peer.receive(ConnAckPacket)
    assert await peer.closed()
    return int(answer.reason_code), answer.server_reference


def test_a_taken_port_is_named() -> None:
    with listening_socket("127.0.0.1", 0, "one") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"broker two cannot listen on 127.0.0.1:{port}"):
            listening_socket("127.0.0.1", port, "two")


# ── links ───────────────────────────────────────────────────────────────────────────────────────────────────


def info_of(door: Door, broker: str, cluster: str, role: Role = Role.EDGE) -> BrokerInfo:
    return door.info(broker, cluster, role)


async def test_messages_of_clients_cross_a_link_and_are_not_sent_back(door: Door) -> None:
    """Two brokers that each have a route to the other: one copy arrives, none returns."""
    async with Door(Limits()) as south:
        door.exchange.change_routes(
            [Route(Scope.ORIGIN, "south-1", "a/#")], (), [info_of(south, "south-1", "south")]
        )
        south.exchange.change_routes(
            [Route(Scope.ORIGIN, "north-1", "a/#")], (), [info_of(door, "north-1", "north")]
        )
        here, there, publisher = await door.peer("here"), await south.peer("there"), await door.peer("p")
        for subscriber in (here, there):
            await subscriber.subscribe(TopicFilter("a/#"))
        publisher.send(PublishPacket("a/1", b"x"), PublishPacket("a/2", b"y"))
        for subscriber in (here, there):
            assert [(await subscriber.receive(PublishPacket)).topic for _ in range(2)] == ["a/1", "a/2"]
        await until(lambda: south.exchange.counts.relayed == 2)
        assert door.exchange.counts.relayed == 0


async def test_a_hub_forwards_foreign_messages_but_not_back_to_their_cluster(
    door: Door,
) -> None:
    async with Door(Limits()) as hub, Door(Limits()) as far:
        hub.exchange.change_routes(
            [Route(Scope.TRANSIT, "far-1", "a"), Route(Scope.TRANSIT, "north-2", "a")],
            (),
            [info_of(far, "far-1", "far"), info_of(door, "north-2", "north")],
        )
        door.exchange.change_routes(
            [Route(Scope.ORIGIN, "@far", "a")],
            (),
            [info_of(hub, "hub", "far", Role.ROUTING)],
            (),
            {"@far": Slots(("hub",) * SLOTS)},
        )
        listener, publisher = await far.peer("l"), await door.peer("p")
        await listener.subscribe(TopicFilter("a"))
        publisher.send(PublishPacket("a", b"x"))
        assert (await listener.receive(PublishPacket)).payload == b"x"
        assert door.exchange.counts.relayed == 0, "it came from the north"


async def test_what_is_sent_straight_to_a_hub_is_for_its_own_clients(door: Door) -> None:
    async with Door(Limits()) as hub, Door(Limits()) as far:
        hub.exchange.change_routes([Route(Scope.TRANSIT, "far-1", "a")], (), [info_of(far, "far-1", "far")])
        door.exchange.change_routes(
            [Route(Scope.ORIGIN, "hub", "a")], (), [info_of(hub, "hub", "north", Role.ROUTING)]
        )
        client, listener = await hub.peer("client"), await far.peer("l")
        publisher = await door.peer("p")
        for each in (client, listener):
            await each.subscribe(TopicFilter("a"))
        publisher.send(*(PublishPacket("a", payload) for payload in (b"x", b"y")))
        got = [await client.receive(PublishPacket) for _ in range(2)]
        assert [(each.topic, each.payload) for each in got] == [("a", b"x"), ("a", b"y")]
        assert hub.exchange.counts.relayed == 2 and far.exchange.counts.relayed == 0
        await nothing_more(listener)


async def test_messages_wait_for_a_link_that_comes_up_a_little_later(door: Door) -> None:
    async with Door(Limits()) as south:
        peer = info_of(south, "south-1", "south")
    door.exchange.change_routes([Route(Scope.ORIGIN, "south-1", "a")], (), [peer])
    publisher = await door.peer("p")
    publisher.send(PublishPacket("a", b"held"))
    await nothing_more(publisher)
    async with Door(Limits(), link_port=peer.port) as again:
        await until(lambda: again.exchange.counts.relayed == 1)
    assert door.exchange.counts.dropped == 0
