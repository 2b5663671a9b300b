"""Critical messages overtake in a real network: for who was away, for who answers nothing, and when a broker fails."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.integration.running import up
from tests.unit.broker.harness import Peer
from tocsin.client import AsyncClient
from tocsin.wire.mqtt.connect import V5

DEADLINE_S = 60.0
ORDINARY = 2_000
AT_A_TIME = 50
ONE = QoS.AT_LEAST_ONCE
BROKERS = ",".join(
    f'{{"id": "{each}", "cluster": "c", "role": "edge", "port": 0}}' for each in ("one", "two")
)


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, Any]]:
    with up("--set", f"brokers=[{BROKERS}]") as ready:
        yield ready


async def connect(
    network: dict[str, Any], broker: int, client_id: str, *, receive_max: int = 100, clean: bool = False
) -> Peer:
    """A connection with a session that lasts; tried until the broker is there."""
    where = network["brokers"][broker]
    while True:
        try:
            reader, writer = await asyncio.open_connection(where["host"], where["port"])
            peer = Peer(reader, writer, V5)
            hello = ConnectPacket(
                client_id, clean_start=clean, session_expiry_interval=3_600, receive_max=receive_max
            )
            peer.send(hello)
            if int((await peer.receive(ConnAckPacket)).reason_code) == 0:
                return peer
            writer.close()
        except (OSError, EOFError):
            pass
        await asyncio.sleep(0.1)


async def subscribe(peer: Peer, topic_filter: str) -> None:
    peer.send(SubscribePacket(1, [TopicFilter(topic_filter, max_qos=ONE)]))
    await peer.first(SubAckPacket)


async def flood(peer: Peer, topic: str, count: int, start: int = 0) -> None:
    """Publish many numbers, some at a time, and see all acknowledged."""
    for first in range(start, start + count, AT_A_TIME):
        numbers = range(first, min(first + AT_A_TIME, start + count))
        for number in numbers:
            peer.send(PublishPacket(topic, b"%d" % number, qos=ONE, packet_id=number - first + 1))
        for _ in numbers:
            await peer.first(PubAckPacket)


async def take(peer: Peer, count: int) -> list[bytes]:
    """Receive messages, and acknowledge them."""
    found = []
    for _ in range(count):
        packet = await peer.first(PublishPacket)
        assert packet.packet_id is not None
        peer.send(PubAckPacket(packet.packet_id))
        found.append(packet.payload)
    return found


async def alarm(network: dict[str, Any], topic: str, *texts: str) -> None:
    where = network["brokers"][0]
    async with AsyncClient(f"mqtt://{where['host']}:{where['port']}") as client:
        for text in texts:
            await client.publish(topic, text, qos=1, priority="critical")


@pytest.mark.parametrize("broker", [0, 1])
async def test_a_returning_client_gets_critical_messages_before_two_thousand_others(
    network: dict[str, Any], broker: int
) -> None:
    """At the broker where it was, and at another one."""
    topic = f"away/{broker}"
    async with asyncio.timeout(DEADLINE_S):
        subscriber = await connect(network, 0, f"away-{broker}", clean=True)
        await subscribe(subscriber, f"{topic}/#")
        subscriber.close()
        publisher = await connect(network, 0, "publisher", clean=True)
        await flood(publisher, f"{topic}/x", ORDINARY)
        await alarm(network, f"{topic}/y", "first", "second", "third")
        again = await connect(network, broker, f"away-{broker}")
        assert await take(again, 3) == [b"first", b"second", b"third"]
        assert await take(again, ORDINARY) == [b"%d" % number for number in range(ORDINARY)]
        again.close()
        publisher.close()


async def test_a_client_that_answers_nothing_still_gets_what_is_critical(network: dict[str, Any]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        slow = await connect(network, 1, "slow", receive_max=20, clean=True)
        await subscribe(slow, "slow")
        publisher = await connect(network, 0, "publisher", clean=True)
        await flood(publisher, "slow", 100)
        before = [await slow.first(PublishPacket) for _ in range(15)]
        await alarm(network, "slow", "now")
        critical = await slow.first(PublishPacket)
        assert critical.payload == b"now"
        for packet in (*before, critical):
            assert packet.packet_id is not None
            slow.send(PubAckPacket(packet.packet_id))
        rest = await take(slow, 85)
        assert [*(each.payload for each in before), *rest] == [b"%d" % number for number in range(100)]
        slow.close()
        publisher.close()


async def test_a_broker_that_is_killed_forgets_neither_position(network: dict[str, Any]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        subscriber = await connect(network, 1, "killed", clean=True)
        await subscribe(subscriber, "killed")
        publisher = await connect(network, 0, "publisher", clean=True)
        await flood(publisher, "killed", 10)
        await alarm(network, "killed", "settled")
        assert len(await take(subscriber, 11)) == 11
        os.kill(network["pids"]["broker/two"], signal.SIGKILL)
        subscriber.close()
        await flood(publisher, "killed", 3, start=10)
        await alarm(network, "killed", "missed")
        again = await connect(network, 1, "killed")
        got: list[bytes] = []
        while b"12" not in got:
            got += await take(again, 1)
        # How far it was is stored within a second: so some may come again, in their order.
        numbers = [int(each) for each in got if each not in (b"settled", b"missed")]
        assert numbers == list(range(numbers[0], 13)), "nothing is lost, and in order"
        critical = got.index(b"missed") + 1
        assert got[:critical] in ([b"missed"], [b"settled", b"missed"]), "critical ones are first"
        assert got.count(b"missed") == 1
        again.close()
        publisher.close()
