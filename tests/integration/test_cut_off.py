"""A cluster that is cut off from store, coordinators and the others goes on by itself, and heals: real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tests.integration.running import up
from tests.integration.test_elsewhere import address, link_address
from tests.unit.broker.harness import Peer
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.core.survival.homes import PROPERTY_HOME
from tocsin.runtime.faults.partition_socket import ask, socket_path
from tocsin.wire.mqtt.connect import V5

NORTH, SOUTH = ("north-1", "north-2", "north-3"), ("south-1", "south-2")
BROKERS = json.dumps([{"id": each, "cluster": each.partition("-")[0]} for each in NORTH + SOUTH])
OPTIONS = ("--set", f"brokers={BROKERS}")
CUT_S = 120.0
GONE = NORTH[0]
AGAIN_S = 0.1


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up(*OPTIONS, level="error") as line:
        yield line


async def cut_north_off(network: dict[str, Any]) -> None:
    """From the store, and so from the coordinators, and from the south; in both directions."""
    state = Path(network["state"])
    store = [("127.0.0.1", int(each.rpartition(":")[2])) for each in network["nats"]]
    until_s = time.monotonic() + CUT_S
    for broker in NORTH:
        addresses = [*store, *(link_address(network, each) for each in SOUTH)]
        await ask(socket_path(state, f"broker/{broker}"), addresses, until_s)
    for broker in SOUTH:
        addresses = [link_address(network, each) for each in NORTH]
        await ask(socket_path(state, f"broker/{broker}"), addresses, until_s)


async def heal(network: dict[str, Any]) -> None:
    for broker in (*NORTH[1:], *SOUTH):
        await ask(socket_path(Path(network["state"]), f"broker/{broker}"), (), 0.0)


class Client:
    """A client that has a session and reads what comes; it goes where it is sent."""

    def __init__(self, network: dict[str, Any]) -> None:
        self._network = network
        self.came: list[tuple[str, bytes, bool]] = []  # topic, payload, whether it was sent again
        self.answers: list[Packet] = []
        self.peer: Peer | None = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(self, *brokers: str) -> ConnAckPacket:
        """To the first of these that takes it, again and again."""
        await self.leave()
        turn = 0
        at = [address(self._network, broker) for broker in brokers]
        while True:
            host, port = at[turn % len(at)]
            turn += 1
            try:
                peer = Peer(*await asyncio.open_connection(host, port), V5)
            except OSError:
                await asyncio.sleep(AGAIN_S)
                continue
            home = [(PROPERTY_HOME, GONE)]
            peer.send(
                ConnectPacket("s", clean_start=False, session_expiry_interval=600, user_properties=home)
            )
            answer = await peer.receive(ConnAckPacket)
            if int(answer.reason_code) == 0:
                self.peer, self._reading = peer, asyncio.create_task(self._read(peer))
                return answer
            peer.close()
            if answer.server_reference:
                host, _, said = answer.server_reference.partition(":")
                at.insert(turn % len(at), (host, int(said)))
            await asyncio.sleep(AGAIN_S)

    async def leave(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self.peer is not None:
            self.peer.close()

    async def _read(self, peer: Peer) -> None:
        while True:
            try:
                packet = await peer.next()
            except TimeoutError:
                continue  # nothing was said for a while
            if isinstance(packet, PublishPacket):
                self.came.append((packet.topic, bytes(packet.payload), packet.duplicate))
                if packet.packet_id is not None:
                    peer.send(PubAckPacket(packet.packet_id))
            else:
                self.answers.append(packet)

    def send(self, packet: Packet) -> None:
        assert self.peer is not None
        self.peer.send(packet)

    async def answer(self, kind: type[Any]) -> Any:
        while not (found := [each for each in self.answers if isinstance(each, kind)]):
            await asyncio.sleep(AGAIN_S)
        self.answers.remove(found[0])
        return found[0]

    async def got(self, topic: str, payload: bytes) -> None:
        while (topic, payload) not in [(each[0], each[1]) for each in self.came]:
            await asyncio.sleep(AGAIN_S)


async def test_a_cut_off_cluster_recovers_a_broker_and_heals_with_one_owner(
    network: dict[str, Any],
) -> None:
    subscriber = Client(network)
    at_last = Server(*address(network, NORTH[2]))
    async with (
        asyncio.timeout(60),
        AsyncClient([at_last], deadline_s=60) as publisher,
        AsyncClient([Server(*address(network, SOUTH[0]))]) as outside,
    ):
        await subscriber.connect(GONE)
        filters = [TopicFilter("fast/#"), TopicFilter("sure/#", max_qos=QoS.AT_LEAST_ONCE)]
        subscriber.send(SubscribePacket(1, filters))
        await subscriber.answer(SubAckPacket)
        await asyncio.sleep(3)  # for backups to be planned, and to have everything
        await publisher.publish("sure/0", b"0", qos=1)
        await subscriber.got("sure/0", b"0")

        await cut_north_off(network)
        up_pid = json.loads((Path(network["state"]) / "network.json").read_text())["pid"]
        try:
            # Subscribed while the cluster is cut off: acknowledged though the store does not answer.
            subscriber.send(SubscribePacket(2, [TopicFilter("later/#")]))
            assert int((await subscriber.answer(SubAckPacket)).reason_codes[0]) < 0x80
            await _until_heard(subscriber, publisher, "later/x")

            os.kill(up_pid, signal.SIGSTOP)  # so that nobody starts it again
            os.kill(network["pids"][f"broker/{GONE}"], signal.SIGKILL)
            back = await subscriber.connect(*NORTH[1:])
            assert back.session_present
            await _until_heard(subscriber, publisher, "fast/x")
            await _until_heard(subscriber, publisher, "later/y")
            waiting = asyncio.create_task(publisher.publish("sure/1", b"inside", qos=1))
            await outside.publish("sure/2", b"outside", qos=1)
            subscriber.send(UnsubscribePacket(3, ["fast/#"]))
            await subscriber.answer(UnsubAckPacket)
            subscriber.send(SubscribePacket(4, [TopicFilter("last/#")]))
            said = await subscriber.answer(SubAckPacket)
            assert said.reason_str is not None and "degraded" in said.reason_str
            assert not waiting.done() and not any(each[0].startswith("sure/2") for each in subscriber.came)
            await heal(network)
        finally:
            os.kill(up_pid, signal.SIGCONT)

        asked = await subscriber.answer(DisconnectPacket)
        assert asked.server_reference
        back = await subscriber.connect(*NORTH[1:])
        assert back.session_present
        await subscriber.got("sure/1", b"inside")
        await subscriber.got("sure/2", b"outside")
        await waiting
        for topic in ("last/x", "later/z"):
            await _until_heard(subscriber, publisher, topic)
        subscriber.came.clear()
        await publisher.publish("fast/z", b"not any more")
        await publisher.publish("last/z", b"last")
        await subscriber.got("last/z", b"last")
        assert [each[0] for each in subscriber.came if each[0].startswith("fast")] == []
        # One owner: whoever takes the session has it alone.
        first, second = subscriber, Client(network)
        assert (await second.connect(SOUTH[1])).session_present
        assert int((await first.answer(DisconnectPacket)).reason_code) == 0x8E
        await outside.publish("sure/3", b"for one", qos=1)
        await second.got("sure/3", b"for one")
        assert "sure/3" not in [each[0] for each in first.came]
        for each in (first, second):
            await each.leave()


async def _until_heard(subscriber: Client, publisher: AsyncClient, topic: str) -> None:
    """QoS 0 is best effort: said again until it is heard."""
    while topic not in [each[0] for each in subscriber.came]:
        await publisher.publish(topic, b"fast")
        await asyncio.sleep(AGAIN_S)


@pytest.mark.slow
async def test_without_coordinators_new_filters_are_served_and_sessions_are_taken(
    network: dict[str, Any],
) -> None:
    up_pid = json.loads((Path(network["state"]) / "network.json").read_text())["pid"]
    subscriber = Client(network)
    async with asyncio.timeout(60), AsyncClient([Server(*address(network, NORTH[2]))]) as publisher:
        os.kill(up_pid, signal.SIGSTOP)
        try:
            os.kill(network["pids"]["coordinator-1"], signal.SIGKILL)
            answer = await subscriber.connect(NORTH[1])
            assert not answer.session_present
            subscriber.send(SubscribePacket(1, [TopicFilter("new/#", max_qos=QoS.AT_LEAST_ONCE)]))
            said = await subscriber.answer(SubAckPacket)
            assert said.reason_str is None, "the store has it"
            await _until_heard(subscriber, publisher, "new/x")
            await publisher.publish("new/y", b"sure", qos=1)
            await subscriber.got("new/y", b"sure")
        finally:
            os.kill(up_pid, signal.SIGCONT)
        await subscriber.leave()
