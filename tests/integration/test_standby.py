"""A standby takes the place of a broker that stays away, and gives it back: real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_door import ask
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


# A client that does not notice anything for a while: the test freezes its process.
SLEEPER = """
import asyncio, sys
from tocsin.client import AsyncClient

async def main():
    def told(connection):
        if connection.up:
            print(connection.server, flush=True)
    client = AsyncClient(sys.argv[1:], on_connection=told, client_id="sleeper", session_expiry_s=600)
    async with client:
        await client.subscribe("a", qos=1)
        while not client.others:
            await asyncio.sleep(0.05)
        print("knows others", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_client_that_is_late_moves_once_straight_to_the_standby(network: dict[str, Any]) -> None:
    home, other, spare = (
        ":".join(map(str, address(network, name))) for name in ("north-1", "north-2", "spare")
    )
    broker = network["pids"]["broker/north-1"]
    words = (sys.executable, "-c", SLEEPER, home, other)
    sleeper = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert sleeper.stdout is not None
    try:
        async with asyncio.timeout(READY_DEADLINE_S):
            lines = [await sleeper.stdout.readline() for _ in range(2)]
            assert lines == [f"{home}\n".encode(), b"knows others\n"]
            os.kill(sleeper.pid, signal.SIGSTOP)
            os.kill(broker, signal.SIGSTOP)
            await until(lambda: in_place(network, "north-1") == [f"mqtt://{spare}"])
            os.kill(sleeper.pid, signal.SIGCONT)
            first = await sleeper.stdout.readline()
            assert first == f"{spare}\n".encode(), "not by way of another broker"
    finally:
        os.kill(broker, signal.SIGCONT)
        sleeper.kill()
        await sleeper.wait()


def in_place(network: dict[str, Any], broker: str) -> list[str]:
    """Where the coordinators' door says that clients of a broker are served under its own name."""
    living = ask(network, "/v1/brokers")["brokers"]
    return next((each["addresses"] for each in living if each["broker"] == broker), [])
