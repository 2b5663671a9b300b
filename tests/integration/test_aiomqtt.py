"""aiomqtt, the asyncio client on Paho, over TCP and over WebSocket (where Paho brings its own framing)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import aiomqtt
import pytest

from tests.unit.broker.web import WebDoor
from tocsin.config import Limits

DEADLINE_S = 30.0


@pytest.fixture
async def door() -> AsyncIterator[WebDoor]:
    async with WebDoor(Limits()) as opened:
        yield opened


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("protocol", [aiomqtt.ProtocolVersion.V5, aiomqtt.ProtocolVersion.V311])
@pytest.mark.parametrize("transport", ["tcp", "websockets"])
async def test_what_aiomqtt_publishes_comes_back_whole_and_in_order(
    door: WebDoor, transport: Literal["tcp", "websockets"], protocol: aiomqtt.ProtocolVersion, qos: int
) -> None:
    port = door.port if transport == "tcp" else door.web_port
    payloads = [f"message {number}".encode() for number in range(200)] + [b"large " * 50_000, b"", b"last"]
    heard: list[bytes] = []
    async with (
        asyncio.timeout(DEADLINE_S),
        aiomqtt.Client(
            "127.0.0.1", port, protocol=protocol, transport=transport, websocket_path="/mqtt", identifier="a"
        ) as client,
    ):
        await client.subscribe("a/#", qos=qos)
        for payload in payloads:
            await client.publish("a/b", payload, qos=qos)
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            heard.append(message.payload)
            if len(heard) == len(payloads):
                break
    assert heard == payloads
