"""A broker's machine gets another address while the broker serves: real processes on loopback addresses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.running import DEADLINE_S, READY_DEADLINE_S, up
from tests.integration.test_door import ask
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.options import Connection
from tocsin.runtime.machines.listening import listen_on
from tocsin.runtime.security.authority import Authority
from tocsin.runtime.security.credentials import certificates_directory

BROKERS = json.dumps([{"id": "fixed", "cluster": "north"}])
AGAIN_S = 0.05
BEFORE, AFTER = "127.0.0.2", "127.0.0.3"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(AGAIN_S)


def free_port() -> int:
    with listen_on(BEFORE, 0, "a test", "port") as found:
        return int(found.getsockname()[1])


class Mobile:
    """A broker that was started by hand, with a settings file of its own."""

    def __init__(self, network: dict[str, Any], settings: Path) -> None:
        self._settings = settings
        self.port, self.link_port = free_port(), free_port()
        self.be_at(BEFORE)
        state, (store, *_) = network["state"], network["nats"]
        Authority.open_or_make(certificates_directory(state)).ensure("mobile", role="broker")
        words = ("broker", "mobile", "-c", str(settings), "--state", state)
        sets = (f"nats.port={store.rpartition(':')[2]}", "log.level=error", f"network={network['network']}")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tocsin", *words, *(word for each in sets for word in ("--set", each))]
        )

    def be_at(self, host: str) -> None:
        table = f'[[brokers]]\nid = "mobile"\ncluster = "north"\nhost = "{host}"\n'
        self._settings.write_text(f"{table}port = {self.port}\nlink_port = {self.link_port}\n")

    def links_at(self, host: str) -> bool:
        """Whether a peer has a link to the broker at an address."""
        connections = psutil.Process(self._process.pid).net_connections("tcp4")
        here = (host, self.link_port)
        return any(each.status == psutil.CONN_ESTABLISHED and each.laddr == here for each in connections)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(DEADLINE_S) == 0


@contextlib.contextmanager
def mobile(network: dict[str, Any], settings: Path) -> Iterator[Mobile]:
    made = Mobile(network, settings)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up("--set", f"brokers={BROKERS}", level="error") as line:
        yield line


async def test_a_broker_moves_to_another_address_and_loses_nothing(
    network: dict[str, Any], tmp_path: Path
) -> None:
    fixed = Server(*address(network, "fixed"))
    places: list[str] = []
    heard: list[int] = []
    with mobile(network, tmp_path / "mobile.toml") as broker:
        home = Server(BEFORE, broker.port)

        def told(connection: Connection) -> None:
            if connection.up:
                places.append(connection.server)

        resident = AsyncClient([home], on_connection=told, client_id="resident", session_expiry_s=600)
        async with asyncio.timeout(READY_DEADLINE_S):
            await until(lambda: is_there(home))
            async with AsyncClient([fixed]) as publisher, resident:
                messages = await resident.subscribe("numbers", qos=1)
                live = await resident.subscribe("live")
                numbers = Numbers(publisher)

                async def read() -> None:
                    async for message in messages:
                        heard.append(int(message.payload))

                reading, writing = asyncio.create_task(read()), asyncio.create_task(numbers.run())
                await until(lambda: len(heard) > 20 and bool(resident.others) and broker.links_at(BEFORE))
                broker.be_at(AFTER)
                await until(lambda: addresses(network, "mobile") == [f"mqtt://{AFTER}:{broker.port}"])
                await until(lambda: broker.links_at(AFTER) and not broker.links_at(BEFORE))
                assert not is_there(home), "nobody listens at the old address any more"
                await publisher.publish("live", b"over the new link")
                async for message in live:
                    assert message.payload == b"over the new link"
                    break
                resident._line.fail("the old address is gone")
                await until(lambda: len(places) == 3)
                numbers.stop()
                await writing
                await until(lambda: len(heard) == numbers.published)
                reading.cancel()
    assert heard == list(range(numbers.published)), "nothing is lost, and nothing comes twice"
    assert places == [f"{home.host}:{home.port}", f"{fixed.host}:{fixed.port}", f"{AFTER}:{broker.port}"]


def is_there(server: Server) -> bool:
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection((server.host, server.port), DEADLINE_S):
        return True
    return False


def addresses(network: dict[str, Any], broker: str) -> list[str]:
    """Where the coordinators' door says that clients reach a broker."""
    return next(
        (each["addresses"] for each in ask(network, "/v1/brokers")["brokers"] if each["broker"] == broker), []
    )


class Numbers:
    """Publishes 0, 1, 2 … until it is stopped."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.published = 0
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    async def run(self) -> None:
        while not self._stopped:
            await self._client.publish("numbers", str(self.published).encode(), qos=1)
            self.published += 1
            await asyncio.sleep(AGAIN_S)
