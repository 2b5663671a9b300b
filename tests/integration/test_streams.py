"""Streams and queries across a network of six brokers in two clusters and three coordinators, which are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from mqtt5 import (
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.integration.peers import Connect
from tests.integration.running import DEADLINE_S, Heard, until, up
from tests.integration.test_coordinators import Network
from tests.integration.test_first_message import PahoClient
from tests.unit.broker.harness import Peer

ONE = QoS.AT_LEAST_ONCE
SENSORS = '$query/Location/Room = "410" AND Point/Type = "Sensor"'


@pytest.fixture(scope="module")
def ready() -> Iterator[dict[str, Any]]:
    with up("--set", "coordinators=3") as told:
        yield told


@pytest.fixture
def network(ready: dict[str, Any]) -> Network:
    return Network(ready)


async def publish(peer: Peer, topic: str, payload: bytes) -> None:
    peer.send(PublishPacket(topic, payload, qos=ONE, packet_id=1))
    assert int((await peer.first(PubAckPacket)).reason_code) == 0


async def subscribe(peer: Peer, *filters: TopicFilter) -> None:
    peer.send(SubscribePacket(1, list(filters)))
    assert all(int(code) < 0x80 for code in (await peer.first(SubAckPacket)).reason_codes)


async def receive(peer: Peer) -> PublishPacket:
    packet = await peer.first(PublishPacket)
    if packet.packet_id is not None:
        peer.send(PubAckPacket(packet.packet_id))
    return packet


def test_mosquitto_sub_gets_a_sensors_values_the_moment_its_metadata_says_so(
    network: Network, debian_program: Callable[[str, str], str]
) -> None:
    program = debian_program("mosquitto_sub", "mosquitto-clients")
    host, port = network.brokers["south-2"]
    sub = Heard([program, "-h", host, "-p", str(port), "-v", "-q", "1", "-t", SENSORS])
    sensor = PahoClient(network.brokers["north-1"], paho.MQTTv5)
    other = PahoClient(network.brokers["north-2"], paho.MQTTv5)

    def value(payload: str, qos: int = 1) -> None:
        sensor.client.publish("device/7", payload, qos=qos).wait_for_publish(DEADLINE_S)

    def describe(**metadata: object) -> None:
        told = other.client.publish("$meta/device/7", json.dumps(metadata), qos=1)
        told.wait_for_publish(DEADLINE_S)

    try:
        time.sleep(0.5)  # mosquitto_sub does not say when it is subscribed
        value("0")
        describe(**{"Location/Room": "410"})
        value("1")
        describe(**{"Point/Type": "Sensor"})
        value("2")
        value("3")
        describe(**{"Location/Room": "411"})
        value("4")
        describe(**{"Location/Room": "410"})
        value("5")
        until(lambda: len(sub.lines) >= 3, lambda: None, "the values of room 410")
    finally:
        sub.stop()
        sensor.stop()
        other.stop()
    assert sub.lines == ["device/7 2", "device/7 3", "device/7 5"]


def test_properties_describe_a_stream_with_its_first_message(network: Network) -> None:
    subscriber = PahoClient(network.brokers["south-1"], paho.MQTTv5, "$query/kind = 'bell'")
    publisher = PahoClient(network.brokers["north-1"], paho.MQTTv5)
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = [("meta.kind", "bell")]
    try:
        publisher.client.publish("bell/1", b"ding", properties=properties)
        publisher.client.publish("bell/1", b"dong")
        until(lambda: len(subscriber.heard) >= 2, lambda: None, "both of the first messages")
        assert subscriber.heard == [("bell/1", b"ding"), ("bell/1", b"dong")]
    finally:
        subscriber.stop()
        publisher.stop()


async def test_a_client_gets_messages_its_query_missed_at_another_broker(connect: Connect) -> None:
    away = await connect("south-1", "away", expiry_s=3_600)
    await subscribe(away, TopicFilter("$query/kind = 'gauge'", max_qos=ONE))
    away.close()
    gauge = await connect("north-1", "gauge")
    for number, kind in enumerate(("gauge", "other", "gauge")):
        await publish(gauge, "$meta/gauge/1", json.dumps({"kind": kind}).encode())
        await publish(gauge, "gauge/1", b"%d" % number)
    back = await connect("north-2", "away", expiry_s=3_600)
    assert [(await receive(back)).payload for _ in range(2)] == [b"0", b"2"]
    await publish(gauge, "gauge/1", b"live")
    assert (await receive(back)).payload == b"live"


async def test_no_client_notices_that_the_leader_is_killed(network: Network, connect: Connect) -> None:
    reader = await connect("south-2", "reader")
    await subscribe(
        reader, TopicFilter("$streams/kind = 'clock'"), TopicFilter("$query/kind = 'clock'", max_qos=ONE)
    )
    assert json.loads((await receive(reader)).payload) == {"streams": [], "v": 1}
    clocks = [await connect(broker, f"clock-{broker}") for broker in ("north-1", "north-2", "south-1")]
    heard: list[str] = []  # in order: "joined T", "T n", "left T"

    async def listen() -> None:
        while True:
            packet = await receive(reader)
            if packet.topic.startswith("$streams/"):
                (word, said), _ = json.loads(packet.payload).items()
                heard.append(f"{word} {said['topic']}")
            else:
                heard.append(f"{packet.topic} {packet.payload.decode()}")

    async def tick(clock: Peer, number: int) -> None:
        topic = f"clock/{number}"
        for turn in range(30):
            kind = b'{"kind": "clock"}' if turn % 10 < 5 else b'{"kind": "stopped"}'
            if turn % 5 == 0:
                await publish(clock, f"$meta/{topic}", kind)
            await publish(clock, topic, b"%d" % turn)
            await asyncio.sleep(0.1)

    listening = asyncio.create_task(listen())
    ticking = [asyncio.create_task(tick(clock, number)) for number, clock in enumerate(clocks)]
    leader = await asyncio.to_thread(network.leader)
    os.kill(leader["pid"], signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*ticking)
        while sum(each.startswith("left") for each in heard) < 9:
            await asyncio.sleep(0.05)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    expected = [
        each
        for part in range(3)
        for each in ("joined", *(str(turn) for turn in range(part * 10, part * 10 + 5)), "left")
    ]
    for number in range(3):
        topic = f"clock/{number}"
        own = [each for each in heard if topic in each]
        words = [each.removesuffix(topic).removeprefix(topic).strip() for each in own]
        assert [word for word in words if word != "changed"] == expected, own
    new = await asyncio.to_thread(network.leader)
    assert new["epoch"] > leader["epoch"]


async def test_streams_of_a_killed_broker_leave_and_return_with_their_clients(
    ready: dict[str, Any], connect: Connect
) -> None:
    reader = await connect("south-1", "watcher")
    await subscribe(reader, TopicFilter("$streams/kind = 'horn'"))
    assert json.loads((await receive(reader)).payload) == {"streams": [], "v": 1}
    horn = await connect("north-2", "horn")
    await publish(horn, "$meta/horn/1", b'{"kind": "horn"}')
    await publish(horn, "horn/1", b"x")
    assert "joined" in json.loads((await receive(reader)).payload)
    os.kill(ready["pids"]["broker/north-2"], signal.SIGKILL)
    async with asyncio.timeout(2 * DEADLINE_S):
        while "left" not in json.loads((await receive(reader)).payload):
            pass
    horn = await connect("north-1", "horn")
    await publish(horn, "horn/1", b"x")
    joined = json.loads((await receive(reader)).payload)["joined"]
    assert (joined["metadata"]["broker"], joined["metadata"]["kind"]) == ("north-1", "horn")
