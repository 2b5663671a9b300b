"""Groups (``$share/group/filter``) over two clusters, on processes of ``tocsin up``, also when one is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

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

from tests.integration.running import DEADLINE_S, Heard, until, up
from tests.integration.taker import Taker
from tests.unit.broker.harness import Peer
from tocsin.wire.mqtt.connect import V5

MESSAGES = 120
KILLED = "north-2"
BROKERS = ("north-1", KILLED, "south-1")
BROKEN = (OSError, EOFError, TimeoutError)
STORY_DEADLINE_S = 120.0

Address = tuple[str, int]


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, Any]]:
    """A network that lasts for this module."""
    with up(level="error") as ready:
        yield ready


def addresses(network: dict[str, Any]) -> dict[str, Address]:
    return {broker["id"]: (broker["host"], broker["port"]) for broker in network["brokers"]}


@pytest.mark.parametrize("version", ["mqttv5", "mqttv311"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mosquitto_clients_of_two_clusters_share(
    network: dict[str, Any], debian_program: Callable[[str, str], str], version: str, qos: int
) -> None:
    sub_program = debian_program("mosquitto_sub", "mosquitto-clients")
    pub_program = debian_program("mosquitto_pub", "mosquitto-clients")
    where, topic = addresses(network), f"m/{version}/{qos}"

    def at(broker: str) -> list[str]:
        host, port = where[broker]
        return ["-h", host, "-p", str(port), "-V", version, "-q", str(qos)]

    subscription = ["-t", f"$share/g/{topic}/#"]
    members = [
        Heard([sub_program, *at(broker), *subscription]) for broker in ("north-1", "south-1", "south-2")
    ]

    def heard() -> list[str]:
        return [line for each in members for line in each.lines]

    def publish(topic: str, *payloads: str) -> None:
        command = [pub_program, *at("north-2"), "-t", topic, "-l"]
        subprocess.run(command, input="\n".join(payloads), text=True, check=True, timeout=DEADLINE_S)

    try:
        # Of the first ones some find nobody: how soon who is known where is not promised.
        until(
            lambda: all("probe" in each.lines for each in members) if qos else bool(heard()),
            lambda: publish(f"{topic}/probe", "probe", "probe", "probe"),
            "a message to each member",
        )
        numbers = [str(number) for number in range(60)]
        publish(f"{topic}/x", *numbers)
        until(lambda: {*numbers} <= {*heard()}, lambda: None, "all messages")
    finally:
        for each in members:
            each.stop()
    counts = Counter(line for line in heard() if line != "probe")
    assert counts == Counter(numbers), "each once"


class Member(Taker):
    """A client of a group with a session that lasts, or not, that connects to any of the brokers."""

    def __init__(
        self, where: list[Address], name: str, group: str, qos: int, *, lasting: bool = True
    ) -> None:
        super().__init__()
        self.peer: Peer | None = None
        self._where = where
        self._connections = 0
        self._connect = ConnectPacket(
            name, clean_start=not lasting, session_expiry_interval=3_600 if lasting else 0
        )
        self._subscription = TopicFilter(group, max_qos=QoS(qos))

    async def connect(self) -> Peer:
        """Connect to the next broker that takes us, and be a member."""
        while True:
            with contextlib.suppress(*BROKEN):
                address = self._where[self._connections % len(self._where)]
                self._connections += 1
                peer = Peer(*await asyncio.open_connection(*address), V5)
                try:
                    if await self._is_taken(peer):
                        self.peer = peer
                        return peer
                finally:
                    if self.peer is not peer:
                        peer.close()
            await asyncio.sleep(0.1)

    async def _is_taken(self, peer: Peer) -> bool:
        peer.send(self._connect)
        if int((await peer.first(ConnAckPacket)).reason_code):
            return False
        peer.send(SubscribePacket(1, [self._subscription]))
        await peer.first(SubAckPacket)
        return True

    async def run(self) -> None:
        peer = self.peer or await self.connect()
        while True:
            try:
                await self.take(peer)
            except TimeoutError:
                continue  # nothing came for a while
            except BROKEN:
                peer.close()
                peer = await self.connect()


async def publish(address: Address, topic: str, qos: int, numbers: range) -> None:
    """Publish numbers, each until it is acknowledged."""
    peer = Peer(*await asyncio.open_connection(*address), V5)
    peer.send(ConnectPacket("publisher", clean_start=True))
    await peer.first(ConnAckPacket)
    for number in numbers:
        identifier = number % 7 + 1
        peer.send(PublishPacket(topic, b"%d" % number, qos=QoS(qos), packet_id=identifier))
        if qos == 1:
            await peer.first(PubAckPacket)
        else:
            await peer.first(PubRecPacket)
            peer.send(PubRelPacket(identifier))
            await peer.first(PubCompPacket)
        await asyncio.sleep(0.01)  # so that the kill comes in between
    peer.close()


@contextlib.asynccontextmanager
async def running(members: list[Member]) -> AsyncIterator[None]:
    for member in members:
        await member.connect()
    tasks = [asyncio.create_task(member.run()) for member in members]
    try:
        yield
        failed = [task.exception() for task in tasks if task.done()]
        assert not failed, failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in members:
            if member.peer is not None:
                member.peer.close()


def kill(network: dict[str, Any], broker: str) -> None:
    name = next(name for name in network["pids"] if broker in name)
    os.kill(network["pids"][name], signal.SIGKILL)


@pytest.mark.parametrize("qos", [1, 2])
async def test_everything_acknowledged_reaches_the_group_when_a_broker_is_killed(qos: int) -> None:
    with up(level="error") as network:
        where = addresses(network)
        topic = f"k/{qos}"
        around = [where[broker] for broker in BROKERS]
        members = [
            Member(around[start:] + around[:start], f"m{start}{each}", f"$share/g/{topic}", qos)
            for start in range(3)
            for each in "ab"
        ]

        def taken() -> list[int]:
            return [number for member in members for number in member.taken]

        async with asyncio.timeout(STORY_DEADLINE_S), running(members):
            publishing = asyncio.create_task(publish(where["south-2"], topic, qos, range(MESSAGES)))
            while len(taken()) < MESSAGES // 3:
                await asyncio.sleep(0.01)
            kill(network, KILLED)
            await publishing
            while {*taken()} < {*range(MESSAGES)}:
                await asyncio.sleep(0.05)
        assert {*taken()} == {*range(MESSAGES)}
        if qos == 2:
            assert Counter(taken()) == Counter(range(MESSAGES)), "each exactly once"
        assert sum(bool(member.taken) for member in members) == len(members), "all have a part in it"


async def test_messages_of_members_lost_with_their_broker_go_to_other_members() -> None:
    with up(level="error") as network:
        where = addresses(network)
        lost = Member([where[KILLED]], "lost", "$share/g/l", 1, lasting=False)
        here = Member([where["south-1"]], "here", "$share/g/l", 1)
        peer = await lost.connect()
        async with asyncio.timeout(STORY_DEADLINE_S):
            await publish(where["north-1"], "l", 1, range(10))
            for _ in range(10):
                await peer.first(PublishPacket)  # and does not acknowledge
            async with running([here]):
                kill(network, KILLED)
                while {*here.taken} < {*range(10)}:
                    await asyncio.sleep(0.05)
        peer.close()
        assert here.taken == list(range(10)), "once, and in order"
