"""A standby takes the place of a broker that stays away, and gives it back: real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tests.integration.test_home import until
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.options import Connection

BROKERS = json.dumps(
    [
        {"id": "north-1", "cluster": "north"},
        {"id": "north-2", "cluster": "north"},
        {"id": "spare", "cluster": "north", "role": "standby"},
    ]
)
OPTIONS = ("--set", f"brokers={BROKERS}", "--set", "recovery.promote_after_ms=500")


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up(*OPTIONS, level="error") as line:
        yield line


async def test_clients_go_home_to_the_standby_and_later_to_their_own_broker(network: dict[str, Any]) -> None:
    home, other, spare = (Server(*address(network, name)) for name in ("north-1", "north-2", "spare"))
    places: list[str] = []

    def told(connection: Connection) -> None:
        if connection.up:
            places.append(connection.server)

    subscriber = AsyncClient(
        [home], on_connection=told, session_expiry_s=600, client_id="mover", keep_alive_s=2
    )
    broker = network["pids"]["broker/north-1"]
    heard: list[bytes] = []
    async with asyncio.timeout(READY_DEADLINE_S), AsyncClient([other]) as publisher, subscriber:

        async def read() -> None:
            async for message in subscription:
                heard.append(message.payload)

        subscription = await subscriber.subscribe("a", qos=1)
        reading = asyncio.create_task(read())
        await until(lambda: bool(subscriber.others))
        await publisher.publish("a", b"1", qos=1)
        os.kill(broker, signal.SIGSTOP)
        try:
            await publisher.publish("a", b"2", qos=1)
            await until(lambda: bool(places) and places[-1] == f"{spare.host}:{spare.port}")
            await publisher.publish("a", b"3", qos=1)
            await until(lambda: heard == [b"1", b"2", b"3"])
        finally:
            os.kill(broker, signal.SIGCONT)
        await until(lambda: places[-1] == f"{home.host}:{home.port}")
        await publisher.publish("a", b"4", qos=1)
        await until(lambda: heard == [b"1", b"2", b"3", b"4"])
        reading.cancel()
