"""An edge broker that nobody can dial is reached over connections that it has dialled: real processes, QoS 0."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.running import up
from tocsin.client import AsyncClient
from tocsin.client.subscription import Subscription

pytestmark = pytest.mark.timeout(240)
STEP_S = 60.0
PUBLISH_S = 0.05
NOBODY_LISTENS = "127.0.0.9"  # the edge broker listens at 127.0.0.1 alone


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    brokers = [
        {"id": "cloud-1", "cluster": "cloud", "role": "routing"},
        {"id": "cloud-2", "cluster": "cloud", "role": "routing"},
        {"id": "north-1", "cluster": "north", "advertise": NOBODY_LISTENS, "outward": True},
        {"id": "south-1", "cluster": "south"},
    ]
    with up("--set", f"brokers={json.dumps(brokers)}", level="error") as line:
        yield line


def server(network: dict[str, Any], broker: str) -> str:
    port = next(each["port"] for each in network["brokers"] if each["id"] == broker)
    return f"mqtt://127.0.0.1:{port}"


async def comes(messages: Subscription, payload: bytes) -> None:
    """Return when this comes; earlier messages may come before it."""
    async for message in messages:
        if message.payload == payload:
            return


async def flows(publisher: AsyncClient, messages: Subscription, payload: bytes) -> None:
    """Publish until it arrives."""

    async def publish() -> None:
        while True:
            await publisher.publish("line/1", payload)
            await asyncio.sleep(PUBLISH_S)

    async with asyncio.timeout(STEP_S):
        publishing = asyncio.create_task(publish())
        try:
            await comes(messages, payload)
        finally:
            publishing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await publishing


async def test_messages_reach_a_broker_that_cannot_be_dialled(network: dict[str, Any]) -> None:
    async with (
        AsyncClient(server(network, "north-1"), watch=False) as inside,
        AsyncClient(server(network, "south-1"), watch=False) as outside,
    ):
        heard = await inside.subscribe("line/#")
        await flows(outside, heard, b"in")
        out = await outside.subscribe("line/#")
        await flows(inside, out, b"out")
        for hub in ("cloud-1", "cloud-2"):
            os.kill(network["pids"][f"broker/{hub}"], signal.SIGKILL)
            await flows(outside, heard, f"after {hub}".encode())
