"""A will goes no further than the rules let its client, also when its broker dies and a backup publishes it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, DisconnectPacket, QoS, Will

from tests.integration.running import DEADLINE_S, READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tests.integration.test_home import until
from tests.unit.broker.harness import Peer
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.wire.mqtt.connect import V5, V311, Version

BROKERS = json.dumps([{"id": "north-1", "cluster": "north"}, {"id": "north-2", "cluster": "north"}])
NOT_AUTHORIZED = 0x87
EVERYWHERE = """
[[rules]]
allow = "both"
topics = ["#"]
"""
OPEN_ONLY = """
[[rules]]
allow = "publish"
topics = ["open/#"]
users = ["mallory"]

[[rules]]
allow = "both"
topics = ["#"]
users = ["alice"]
"""


class Place:
    """A network with users and rules, and a watcher that is alice."""

    def __init__(self, directory: Path) -> None:
        self.rules = directory / "rules.toml"
        self._users = directory / "users"
        self.network: dict[str, Any] = {}
        self.told: list[str] = []
        self._peers: list[Peer] = []
        self.rules.write_text(OPEN_ONLY)
        for name in ("alice", "mallory"):
            command = [sys.executable, "-m", "tocsin", "user", "add", name, "--password-stdin"]
            subprocess.run(
                [*command, "--file", str(self._users)],
                input=f"{name}'s",
                text=True,
                check=True,
                timeout=DEADLINE_S,
            )

    @property
    def options(self) -> tuple[str, ...]:
        sets = (f"brokers={BROKERS}", f"access.users={self._users}", f"access.rules={self.rules}")
        return tuple(word for each in (*sets, "recovery.will_grace_s=1") for word in ("--set", each))

    async def connect(self, user: str, topic: str, version: Version = V5) -> int:
        """The answer to a client that leaves a will on this topic."""
        peer = Peer(*await asyncio.open_connection(*address(self.network, "north-1")), version)
        self._peers.append(peer)
        will = Will(topic, payload=b"open", qos=QoS.AT_LEAST_ONCE, retain=True)
        client = f"{user}-{topic.replace('/', '-')}"
        peer.send(ConnectPacket(client, username=user, password=f"{user}'s".encode(), will=will))
        return int((await peer.receive(ConnAckPacket)).reason_code)

    async def read(self, messages: Any) -> None:
        async for message in messages:
            self.told.append(message.topic)

    def leave(self) -> None:
        """The last client goes in order."""
        self._peers[-1].send(DisconnectPacket())

    async def close(self) -> None:
        for peer in self._peers:
            peer.writer.close()
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = await asyncio.to_thread(Place, tmp_path)
    with up(*made.options, level="error") as line:
        made.network = line
        yield made
        await made.close()


async def test_a_will_on_a_denied_topic_is_refused_with_its_connect(place: Place) -> None:
    async with asyncio.timeout(READY_DEADLINE_S):
        for version in (V5, V311):
            assert await place.connect("mallory", "secret/valve", version) == NOT_AUTHORIZED
            assert await place.connect("mallory", "open/valve", version) == 0


async def test_a_backup_does_not_publish_a_will_on_a_topic_denied_since(
    place: Place,
) -> None:
    watching = AsyncClient([Server(*address(place.network, "north-2"))], username="alice", password="alice's")
    async with asyncio.timeout(READY_DEADLINE_S), watching as watcher:
        reading = asyncio.create_task(place.read(await watcher.subscribe("#", qos=1)))
        place.rules.write_text(EVERYWHERE)
        await until_allowed(place)
        assert await place.connect("mallory", "secret/valve") == 0
        assert await place.connect("mallory", "open/valve") == 0
        await asyncio.sleep(3)  # for backups to be planned, and to have everything
        place.rules.write_text(OPEN_ONLY)
        await asyncio.sleep(3)  # for all brokers to read it
        broker = place.network["pids"]["broker/north-1"]
        os.kill(broker, signal.SIGSTOP)
        try:
            await until(lambda: "open/valve" in place.told)
            await asyncio.sleep(2)  # the other one was due at the same moment
        finally:
            os.kill(broker, signal.SIGCONT)
        assert "secret/valve" not in place.told
        reading.cancel()


async def until_allowed(place: Place) -> None:
    """Return when the brokers have read the rules."""
    while await place.connect("mallory", "secret/probe") != 0:
        await asyncio.sleep(0.2)
    place.leave()
