"""Two users, one client id, two brokers: who was there first stays, and its will is published when it dies."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, PingReqPacket, PingRespPacket, QoS, Will

from tests.integration.running import DEADLINE_S, READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tests.unit.broker.harness import Peer
from tests.unit.broker.talk import ending
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.wire.mqtt.connect import V5

BROKERS = json.dumps(
    [{"id": "north-1", "cluster": "north"}, {"id": "north-2", "cluster": "north"}],
)
ROUNDS = 20
NOT_VALID = 0x85


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    users = tmp_path_factory.mktemp("users") / "users"
    for name in ("alice", "mallory", "watcher"):
        command = [sys.executable, "-m", "tocsin", "user", "add", name, "--password-stdin"]
        subprocess.run(
            [*command, "--file", str(users)], input=f"{name}'s", text=True, check=True, timeout=DEADLINE_S
        )
    options = ("--set", f"brokers={BROKERS}", "--set", f"access.users={users}")
    with up(*options, level="error") as line:
        yield line


class Clients:
    """All clients of one test, which come under one client id."""

    def __init__(self, network: dict[str, Any]) -> None:
        self._network = network
        self._peers: list[Peer] = []

    async def come(
        self, broker: str, user: str, *, expiry_s: int = 0, clean: bool = True, will_s: int = 0
    ) -> tuple[Peer, int]:
        """A client of this user, and how it was answered."""
        peer = Peer(*await asyncio.open_connection(*address(self._network, broker)), V5)
        self._peers.append(peer)
        will = Will(f"wills/{user}", payload=b"dead", qos=QoS.AT_LEAST_ONCE, will_delay_interval=will_s)
        peer.send(
            ConnectPacket(
                "the-one",
                username=user,
                password=f"{user}'s".encode(),
                clean_start=clean,
                session_expiry_interval=expiry_s,
                will=will if will_s else None,
            )
        )
        return peer, int((await peer.receive(ConnAckPacket)).reason_code)

    async def close(self) -> None:
        for peer in self._peers:
            peer.writer.close()
        for _ in range(3):  # for the loop to end what was closed
            await asyncio.sleep(0)


@pytest.fixture
async def clients(network: dict[str, Any]) -> AsyncIterator[Clients]:
    made = Clients(network)
    yield made
    await made.close()


async def is_there(peer: Peer) -> bool:
    peer.send(PingReqPacket())
    return isinstance(await peer.next(), PingRespPacket)


@pytest.mark.parametrize("hers_s", [0, 600])
@pytest.mark.parametrize("his_s", [0, 600])
async def test_nobody_throws_out_another_users_client_from_another_broker(
    clients: Clients, hers_s: int, his_s: int
) -> None:
    async with asyncio.timeout(READY_DEADLINE_S):
        alice, code = await clients.come("north-1", "alice", expiry_s=hers_s)
        assert code == 0
        answers = []
        for number in range(ROUNDS):
            mallory, code = await clients.come("north-2", "mallory", expiry_s=his_s, clean=bool(number % 2))
            answers.append(code)
            mallory.close()
            assert await is_there(alice), f"thrown out in round {number}"
        assert answers == [NOT_VALID] * ROUNDS
        again, code = await clients.come("north-2", "alice", expiry_s=hers_s)
        assert code == 0, "her own client takes over"
        assert await ending(alice) == 0x8E
        again.send(DisconnectPacket(session_expiry_interval=0 if hers_s else None))
        assert await again.closed()


async def test_of_two_users_that_race_for_one_id_only_one_gets_in(clients: Clients) -> None:
    async with asyncio.timeout(READY_DEADLINE_S):
        for _ in range(ROUNDS):
            both = await asyncio.gather(clients.come("north-1", "alice"), clients.come("north-2", "mallory"))
            assert sorted(code for _, code in both) == [0, NOT_VALID]
            for peer, code in both:
                if code == 0:
                    assert await is_there(peer)
                    peer.send(DisconnectPacket())
                    assert await peer.closed()


async def test_nobody_silences_the_delayed_will_of_another_users_client(
    network: dict[str, Any], clients: Clients
) -> None:
    watching = AsyncClient([Server(*address(network, "north-1"))], username="watcher", password="watcher's")
    async with asyncio.timeout(READY_DEADLINE_S), watching as watcher:
        told = await watcher.subscribe("wills/#", qos=1)
        alice, code = await clients.come("north-1", "alice", expiry_s=600, will_s=3)
        assert code == 0
        alice.writer.transport.abort()
        for number in range(ROUNDS):
            mallory, code = await clients.come(
                "north-2", "mallory", expiry_s=600 * (number % 2), clean=number % 4 < 2
            )
            assert code == NOT_VALID, f"her session is stored; round {number}"
            mallory.close()
        message = await anext(aiter(told))
        assert (message.topic, message.payload) == ("wills/alice", b"dead")


async def test_nobody_keeps_another_user_out_by_knocking_under_its_id(clients: Clients) -> None:
    async with asyncio.timeout(READY_DEADLINE_S):
        hers, code = await clients.come("north-1", "alice", expiry_s=600)
        assert code == 0

        async def knock() -> None:
            while True:
                peer, code = await clients.come("north-2", "mallory")
                assert code == NOT_VALID
                peer.close()

        async with asyncio.TaskGroup() as group:
            knocking = [group.create_task(knock()) for _ in range(5)]
            for _ in range(ROUNDS):
                hers, code = await clients.come("north-2", "alice", expiry_s=600, clean=False)
                assert code == 0
            for each in knocking:
                each.cancel()
        hers.send(DisconnectPacket(session_expiry_interval=0))
        assert await hers.closed()
