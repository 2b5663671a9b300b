"""Watch connections at a broker: they are told of losses, and are nobody's clients."""

from __future__ import annotations

import asyncio
import json

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
)

from tests.unit.broker.harness import Door, Peer, until
from tocsin.config import Limits
from tocsin.core.links.watch import greeting
from tocsin.core.survival.watchers import BACK_TOPIC, LOST_TOPIC
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.wire.mqtt.connect import V5

STAND_IN = BrokerInfo("south", "s", Role.EDGE, "127.0.0.1", 2, entrances=(Entrance(Scheme.MQTT, "s:1"),))
HELLO = greeting("c", "north-9", None, None)


async def test_a_watcher_is_told_of_a_loss_and_a_return() -> None:
    async with Door(Limits()) as door:
        watcher = await door.peer(connect=HELLO)
        door.parts.losses.told({"north-9": STAND_IN, "north-8": None})
        assert (await watcher.receive(PublishPacket)).topic == LOST_TOPIC
        door.parts.losses.told({})
        back = await watcher.receive(PublishPacket)
        assert (back.topic, back.payload) == (BACK_TOPIC, b"north-9")


async def test_a_watcher_that_comes_late_hears_of_the_loss_in_its_connack() -> None:
    async with Door(Limits()) as door:
        assert await answered(door) == "there"
        door.parts.losses.told({"north-9": None})
        assert await answered(door) == "lost"


async def answered(door: Door) -> str:
    watcher = await door.peer(connect=HELLO, accepted=False)
    return dict((await watcher.receive(ConnAckPacket)).user_properties)["watch"]


async def test_a_watcher_is_no_client_of_the_broker() -> None:
    async with Door(Limits(connections_max=1)) as door:
        client = await door.peer(connect=ConnectPacket(HELLO.client_id, clean_start=True))
        watchers = [await door.peer(connect=HELLO) for _ in range(3)]
        assert (door.listener.clients, door.parts.statistics()["watchers"]) == (1, 3)
        client.send(PingReqPacket())
        await client.receive(PingRespPacket)  # nobody has taken its id
        watchers[0].close()
        await until(lambda: door.parts.statistics()["watchers"] == 2)


async def test_a_broker_takes_no_more_watchers_than_its_limit() -> None:
    async with Door(Limits(watchers_max=1)) as door:
        await door.peer(connect=HELLO)
        more = await door.peer(connect=HELLO, accepted=False)
        assert int((await more.receive(ConnAckPacket)).reason_code) == 0x89


async def test_an_address_that_has_all_places_loses_one_to_another() -> None:
    async with Door(Limits(watchers_max=3)) as door:
        greedy = [await door.peer(connect=HELLO) for _ in range(3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port, local_addr=("127.0.0.2", 0))
        other = Peer(reader, writer, V5)
        door.look_after(other)
        other.send(HELLO)
        assert int((await other.receive(ConnAckPacket)).reason_code) == 0
        assert int((await greedy[0].receive(DisconnectPacket)).reason_code) == 0x89
        assert await greedy[0].closed()
        await until(lambda: door.parts.statistics()["watchers"] == 3)


@pytest.mark.parametrize(
    "packet",
    [
        SubscribePacket(1, [TopicFilter("#")]),
        PublishPacket("a", b"x"),
        PublishPacket("a", b"x", qos=QoS.AT_LEAST_ONCE, packet_id=1),
    ],
)
async def test_a_watcher_neither_publishes_nor_subscribes(packet: Packet) -> None:
    async with Door(Limits()) as door:
        watcher = await door.peer(connect=HELLO)
        watcher.send(PingReqPacket())
        await watcher.receive(PingRespPacket)
        watcher.send(packet)
        assert int((await watcher.receive(DisconnectPacket)).reason_code) == 0x82
        assert await watcher.closed()


async def test_a_loss_is_retained_under_sys_until_it_is_over() -> None:
    async with Door(Limits()) as door:
        topic = "$SYS/broker/network/lost/north-9"
        first = await door.peer("a")
        await first.subscribe(TopicFilter("$SYS/broker/network/lost/+"))
        door.parts.losses.told({"north-9": None})
        assert json.loads((await first.receive(PublishPacket)).payload) == {
            "v": 1,
            "broker": "north-9",
            "stand_in": None,
            "servers": [],
        }
        door.parts.losses.told({"north-9": STAND_IN})
        said = json.loads((await first.receive(PublishPacket)).payload)
        assert (said["stand_in"], said["servers"]) == ("south", ["mqtt://s:1"])
        second = await door.peer("b")
        await second.subscribe(TopicFilter(topic))
        assert json.loads((await second.receive(PublishPacket)).payload) == said
        door.parts.losses.told({})
        assert (await first.receive(PublishPacket)).payload == b""
        third = await door.peer("c")
        await third.subscribe(TopicFilter(topic))
        third.send(PingReqPacket())
        await third.receive(PingRespPacket)  # and nothing before it
