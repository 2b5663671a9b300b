"""A client whose broker is killed goes on at another one, and goes home when the first is back: real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient, Message
from tocsin.client.address import Server
from tocsin.client.options import Connection

BROKERS = json.dumps([{"id": "north-1", "cluster": "north"}, {"id": "north-2", "cluster": "north"}])
AGAIN_S = 0.05


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up("--set", f"brokers={BROKERS}", level="error") as line:
        yield line


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(AGAIN_S)


async def test_a_client_finds_its_backup_keeps_its_session_and_comes_home(
    network: dict[str, Any],
) -> None:
    home, other = (Server(*address(network, name)) for name in ("north-1", "north-2"))
    places: list[str] = []  # where it was connected, one after the other

    def told(connection: Connection) -> None:
        if connection.up:
            places.append(connection.server)

    moving = AsyncClient(
        [home], on_connection=told, will=Message("gone", b"x"), session_expiry_s=600, client_id="mover"
    )
    heard: list[bytes] = []
    wills: list[bytes] = []
    async with asyncio.timeout(READY_DEADLINE_S), AsyncClient([other]) as resident, moving:

        async def read(subscription: Any, into: list[bytes]) -> None:
            async for message in subscription:
                into.append(message.payload)

        watching = resident.subscribe("gone")
        asking = moving.query('Room = "410"', qos=1)
        from_mover = resident.query('Owner = "mover"')
        await asyncio.gather(watching, asking, from_mover)
        of_mover: list[bytes] = []
        readers = [
            asyncio.create_task(read(subscription, into))
            for subscription, into in ((watching, wills), (asking, heard), (from_mover, of_mover))
        ]
        sensor = resident.stream("room/410", qos=1, Room="410")
        own = moving.stream("mover/state", qos=2, Owner="mover")
        await sensor.publish(b"1")
        await own.publish(b"at home")
        await until(lambda: heard == [b"1"] and of_mover == [b"at home"])

        await until(lambda: bool(moving.others))
        os.kill(network["pids"]["broker/north-1"], signal.SIGKILL)
        await until(lambda: len(places) == 2)
        await sensor.publish(b"2")
        await own.publish(b"away")
        await until(lambda: heard == [b"1", b"2"] and of_mover == [b"at home", b"away"])

        await until(lambda: len(places) == 3)
        await sensor.publish(b"3")
        await own.publish(b"at home again")
        await until(lambda: heard == [b"1", b"2", b"3"] and len(of_mover) == 3)
        assert places == [f"{each.host}:{each.port}" for each in (home, other, home)]
        assert of_mover == [b"at home", b"away", b"at home again"]
        assert wills == [], "it has not died"
        for reader in readers:
            reader.cancel()
