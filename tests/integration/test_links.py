"""A link between two brokers is cut while both are alive: messages go around it, and nobody is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address, link_address
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.runtime.faults import partition_socket as cut_socket
from tocsin.runtime.faults.partition_socket import socket_path

NAMES = ("north-1", "north-2", "north-3", "south-1")
BROKERS = json.dumps([{"id": each, "cluster": each.partition("-")[0]} for each in NAMES])
OPTIONS = ("--set", f"brokers={BROKERS}")
PUBLISH_S = 0.05
CUT_S = 300.0
STEP_S = 60.0  # for each thing that is waited for
LOST_MOST = int(10.0 / PUBLISH_S)  # what is published while nobody knows that the link is cut
TOPIC = "links/test"


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up(*OPTIONS, level="error") as line:
        yield line


async def cut(network: dict[str, Any], broker: str, *peers: str, seconds: float = CUT_S) -> None:
    """Let a broker reach these no more; without any, let it reach all again."""
    path = socket_path(Path(network["state"]), f"broker/{broker}")
    await cut_socket.ask(path, [link_address(network, peer) for peer in peers], time.monotonic() + seconds)


async def status(network: dict[str, Any]) -> list[dict[str, Any]]:
    port = network["nats"][0].rpartition(":")[2]
    words = ("coordinator", "status", "--json", "--state", network["state"], "--set", f"nats.port={port}")
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tocsin", *words), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await running.communicate()
    found: list[dict[str, Any]] = json.loads(out)
    return found


async def detour(
    network: dict[str, Any], fits: Callable[[dict[str, tuple[str, ...]]], bool]
) -> dict[str, Any]:
    """The leader's word, once its detours, as "broker>peer" → relays, are such."""
    async with asyncio.timeout(STEP_S):
        while True:
            leader = next((each for each in await status(network) if each["role"] == "leader"), None)
            if leader is not None and fits(
                {f"{each['broker']}>{each['peer']}": tuple(each["via"]) for each in leader["cut"]}
            ):
                return leader
            await asyncio.sleep(0.2)


class Traffic:
    """Numbered messages at QoS 0 from a client of north-1 to one of south-1."""

    def __init__(self) -> None:
        self.sent = 0
        self.heard: list[int] = []

    async def flows(self, messages: int = 20) -> None:
        """Wait until what is sent from now on arrives, without a gap."""
        async with asyncio.timeout(STEP_S):
            while True:
                first, before = self.sent + 1, len(self.heard)
                while self.sent < first + messages + 10:
                    await asyncio.sleep(PUBLISH_S)
                if set(range(first, first + messages)) <= set(self.heard[before:]):
                    return

    def look(self, *, lost_most: int) -> None:
        """Each came once at most, and in order; a few may be missing."""
        assert len(set(self.heard)) == len(self.heard), "a message came twice"
        assert self.heard == sorted(self.heard), "a message overtook another"
        assert self.sent - len(self.heard) <= lost_most


@contextlib.asynccontextmanager
async def traffic(network: dict[str, Any]) -> AsyncIterator[Traffic]:
    found = Traffic()
    async with (
        AsyncClient([Server(*address(network, "south-1"))]) as subscriber,
        AsyncClient([Server(*address(network, "north-1"))]) as publisher,
    ):
        listening = await subscriber.subscribe(TOPIC)

        async def hear() -> None:
            async for message in listening:
                found.heard.append(int(message.payload))

        async def publish() -> None:
            while True:
                found.sent += 1
                await publisher.publish(TOPIC, b"%d" % found.sent)
                await asyncio.sleep(PUBLISH_S)

        tasks = [asyncio.create_task(hear()), asyncio.create_task(publish())]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_messages_go_around_a_cut_link_and_back_and_nobody_is_lost(network: dict[str, Any]) -> None:
    async with asyncio.timeout(READY_DEADLINE_S + 4 * STEP_S), traffic(network) as messages:
        await messages.flows()
        await cut(network, "north-1", "south-1")
        found = await detour(network, lambda rows: bool(rows.get("north-1>south-1")))
        assert found["brokers"] == len(NAMES)
        await messages.flows()
        lost = messages.sent - len(messages.heard)
        await cut(network, "north-1")  # heal
        found = await detour(network, lambda rows: not rows)
        assert found["brokers"] == len(NAMES)
        await messages.flows()
        await asyncio.sleep(1)
    messages.look(lost_most=LOST_MOST)
    assert messages.sent - len(messages.heard) <= lost + 1, "the way back lost something"


@pytest.mark.slow
async def test_a_relay_that_is_cut_as_well_is_replaced(network: dict[str, Any]) -> None:
    async with asyncio.timeout(READY_DEADLINE_S + 4 * STEP_S), traffic(network) as messages:
        await messages.flows()
        await cut(network, "north-1", "south-1")
        await cut(network, "south-1", "north-1")
        found = await detour(network, lambda rows: bool(rows.get("north-1>south-1")))
        row = next(each for each in found["cut"] if each["broker"] == "north-1" and each["peer"] == "south-1")
        (relay,) = row["via"]
        await messages.flows()
        await cut(network, relay, "south-1")
        other = next(each for each in NAMES[1:3] if each != relay)
        found = await detour(network, lambda rows: other in rows.get("north-1>south-1", ()))
        await messages.flows()
        assert found["brokers"] == len(NAMES)
    messages.look(lost_most=2 * LOST_MOST)
