"""Brokers that stop or are full send their clients to another one of the network: real processes, real clients."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket

from tests.integration.running import READY_DEADLINE_S, Heard, up
from tests.unit.broker.harness import Peer
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.wire.mqtt.connect import V5

BROKERS = json.dumps(
    [
        {"id": "north-1", "cluster": "north"},
        {"id": "north-2", "cluster": "north"},
        {"id": "south-1", "cluster": "south"},
    ]
)
AGAIN_S = 0.1


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up("--set", f"brokers={BROKERS}", "--set", "limits.connections_max=2", level="error") as line:
        yield line


def address(line: dict[str, Any], broker: str) -> tuple[str, int]:
    found = next(each for each in line["brokers"] if each["id"] == broker)
    return found["host"], found["port"]


def link_address(line: dict[str, Any], broker: str) -> tuple[str, int]:
    """Where the links of other brokers reach it."""
    found = next(each for each in line["brokers"] if each["id"] == broker)
    return found.get("link_host", found["host"]), found["link_port"]


async def connect(line: dict[str, Any], broker: str, client_id: str) -> tuple[Peer, ConnAckPacket]:
    peer = Peer(*await asyncio.open_connection(*address(line, broker)), V5)
    peer.send(ConnectPacket(client_id, clean_start=True))
    return peer, await peer.receive(ConnAckPacket)


async def reference_of_full(line: dict[str, Any], broker: str) -> str | None:
    """Where a full broker sends clients, once it has been told of the others."""
    async with asyncio.timeout(READY_DEADLINE_S):
        while True:
            more, answer = await connect(line, broker, "one-more")
            more.close()
            if int(answer.reason_code) == 0x9C:
                return answer.server_reference
            assert int(answer.reason_code) == 0x89
            await asyncio.sleep(AGAIN_S)


async def test_full_and_stopping_brokers_redirect_clients_within_their_cluster(
    network: dict[str, Any],
) -> None:
    host, port = address(network, "north-2")
    peers = [(await connect(network, "north-1", f"c{number}"))[0] for number in range(2)]
    assert await reference_of_full(network, "north-1") == f"{host}:{port}"
    os.kill(network["pids"]["broker/north-1"], signal.SIGTERM)
    for peer in peers:
        goodbye = await peer.receive(DisconnectPacket)
        assert (int(goodbye.reason_code), goodbye.server_reference) == (0x9C, f"{host}:{port}")
        assert await peer.closed()
        peer.close()


async def test_tocsin_sub_goes_where_it_is_sent_and_hears_on(network: dict[str, Any]) -> None:
    host, port = address(network, "north-1")
    heard = Heard([sys.executable, "-m", "tocsin", "sub", "--at", f"{host}:{port}", "a"])
    try:
        south = Server(*address(network, "south-1"))
        async with asyncio.timeout(READY_DEADLINE_S), AsyncClient([south]) as publisher:
            await say(publisher, b"before", heard)
            peer, _ = await connect(network, "north-1", "filler")
            await reference_of_full(network, "north-1")
            os.kill(network["pids"]["broker/north-1"], signal.SIGTERM)
            await say(publisher, b"after", heard)
            peer.close()
    finally:
        heard.stop()


async def say(publisher: AsyncClient, payload: bytes, heard: Heard) -> None:
    """Publish until it is heard."""
    while f"a {payload.decode()}" not in heard.lines:
        await publisher.publish("a", payload)
        await asyncio.sleep(AGAIN_S)
