"""Nothing acknowledged is lost when the broker or the store's server is killed: real processes, at named points."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    PubAckPacket,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tests.integration.taker import Taker
from tests.unit.broker.harness import Peer
from tocsin.runtime.faults import kill_points as points
from tocsin.wire.mqtt.connect import V5

DEADLINE_S = 90.0
MESSAGES = 60
KILLED_AT = 15  # the how-manieth time at a point
BROKER = '[{"id": "solo", "cluster": "solo", "role": "edge", "port": 0}]'


class Network:
    """A network of one broker, started by ``tocsin up``."""

    def __init__(self, process: subprocess.Popen[str], ready: dict[str, object]) -> None:
        self.process = process
        brokers = ready["brokers"]
        assert isinstance(brokers, list)
        self.host, self.port = brokers[0]["host"], brokers[0]["port"]
        pids = ready["pids"]
        assert isinstance(pids, dict)
        self.pids: dict[str, int] = pids

    async def connect(self, client_id: str) -> Peer:
        """A connection with a session that lasts; tried until the broker is there."""
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                peer = Peer(reader, writer, V5)
                peer.send(ConnectPacket(client_id, session_expiry_interval=3_600))
                accepted = False
                try:
                    accepted = int((await peer.receive(ConnAckPacket)).reason_code) == 0
                    if accepted:
                        return peer
                finally:
                    if not accepted:
                        writer.close()
            await asyncio.sleep(0.1)


def _start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tocsin", *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )


@contextlib.asynccontextmanager
async def network(point: str, marker: Path) -> AsyncIterator[Network]:
    environment = dict(os.environ)
    if point:
        environment[points.KILL] = f"{point}:{KILLED_AT}:{marker}"
    command = ["up", "--ephemeral", "--auto-ports", "--set", f"brokers={BROKER}", "--set", "log.level=error"]
    command += ["--set", "pipeline.enabled=never"]
    process = await asyncio.to_thread(_start, command, environment)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            line = await asyncio.to_thread(process.stdout.readline)
        yield Network(process, json.loads(line))
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()


BROKEN = (OSError, EOFError)


class Publisher:
    """Publishes numbers one after the other, each until it is acknowledged, as a careful client does."""

    def __init__(self, network: Network, qos: int) -> None:
        self._network = network
        self._qos = qos
        self.acknowledged: list[int] = []

    async def run(self) -> None:
        peer = await self._network.connect("publisher")
        for number in range(MESSAGES):
            repeat = False
            while True:
                try:
                    await self._publish(peer, number, repeat)
                    break
                except BROKEN:
                    peer.close()
                    peer = await self._network.connect("publisher")
                    repeat = True
            self.acknowledged.append(number)
        peer.close()

    async def _publish(self, peer: Peer, number: int, repeat: bool) -> None:
        identifier = number % 7 + 1
        qos = QoS.EXACTLY_ONCE if self._qos == 2 else QoS.AT_LEAST_ONCE
        peer.send(PublishPacket("t", b"%d" % number, qos=qos, packet_id=identifier, duplicate=repeat))
        if self._qos == 1:
            await peer.first(PubAckPacket)
            return
        await peer.first(PubRecPacket)
        while True:
            try:
                peer.send(PubRelPacket(identifier))
                await peer.first(PubCompPacket)
                return
            except BROKEN:  # it was received: from here on only PUBREL is repeated
                peer.close()
                fresh = await self._network.connect("publisher")
                peer.reader, peer.writer = fresh.reader, fresh.writer
                peer.reset()


class Subscriber(Taker):
    """Takes messages with a session that lasts, and a memory of QoS 2 ids that survives connections."""

    def __init__(self, network: Network, qos: int) -> None:
        super().__init__()
        self._network = network
        self._qos = qos

    async def open(self) -> Peer:
        peer = await self._network.connect("subscriber")
        qos = QoS.EXACTLY_ONCE if self._qos == 2 else QoS.AT_LEAST_ONCE
        peer.send(SubscribePacket(1, [TopicFilter("t", max_qos=qos)]))
        await peer.first(SubAckPacket)
        return peer

    async def run(self, peer: Peer, last: int) -> None:
        while last not in self.taken or self.held:
            try:
                await self.take(peer)
            except BROKEN:
                peer.close()
                peer = await self._network.connect("subscriber")
        peer.close()


async def exchange(running: Network, qos: int, disturb: str = "") -> tuple[list[int], list[int]]:
    """Publish and take everything; what was acknowledged and what was taken."""
    publisher, subscriber = Publisher(running, qos), Subscriber(running, qos)
    peer = await subscriber.open()
    async with asyncio.timeout(DEADLINE_S):
        publishing = asyncio.create_task(publisher.run())
        taking = asyncio.create_task(subscriber.run(peer, MESSAGES - 1))
        if disturb:
            while len(publisher.acknowledged) < MESSAGES // 3:
                await asyncio.sleep(0.01)
            os.kill(running.pids[disturb], signal.SIGKILL)
        await asyncio.gather(publishing, taking)
    return publisher.acknowledged, subscriber.taken


def check(qos: int, acknowledged: list[int], taken: list[int]) -> None:
    everything = list(range(MESSAGES))
    assert acknowledged == everything
    assert list(dict.fromkeys(taken)) == everything, "all, and first seen in order"
    if qos == 2:
        assert taken == everything, "each exactly once"


@pytest.mark.parametrize(
    ("point", "qos"),
    [
        (points.BEFORE_APPEND, 1),
        (points.AFTER_APPEND, 2),
        (points.BEFORE_SEND, 1),
        (points.AFTER_SEND, 2),
        pytest.param(points.BEFORE_APPEND, 2, marks=pytest.mark.slow),
        pytest.param(points.AFTER_APPEND, 1, marks=pytest.mark.slow),
        pytest.param(points.BEFORE_SEND, 2, marks=pytest.mark.slow),
        pytest.param(points.AFTER_SEND, 1, marks=pytest.mark.slow),
    ],
)
async def test_the_broker_is_killed_at_a_point(tmp_path: Path, point: str, qos: int) -> None:
    marker = tmp_path / "killed"
    async with network(point, marker) as running:
        check(qos, *await exchange(running, qos))
    assert marker.exists(), "it was killed"


async def test_the_broker_is_killed_while_it_sends_what_a_client_missed(tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    async with network(points.IN_REPLAY, marker) as running:
        publisher, subscriber = Publisher(running, 2), Subscriber(running, 2)
        (await subscriber.open()).close()
        async with asyncio.timeout(DEADLINE_S):
            await publisher.run()
            await subscriber.run(await running.connect("subscriber"), MESSAGES - 1)
    check(2, publisher.acknowledged, subscriber.taken)
    assert marker.exists(), "it was killed"


@pytest.mark.parametrize("qos", [1, 2])
async def test_the_stores_server_is_killed(tmp_path: Path, qos: int) -> None:
    async with network("", tmp_path) as running:
        check(qos, *await exchange(running, qos, disturb="store-1"))
