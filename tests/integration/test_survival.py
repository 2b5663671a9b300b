"""A broker is gone with all that was in its memory: its backup has it. Real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from mqtt5 import ConnAckPacket, ConnectPacket, Will

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tests.integration.test_home import until
from tests.unit.broker.harness import Peer
from tocsin.client import AsyncClient, Message
from tocsin.client.address import Server
from tocsin.wire.mqtt.connect import V5

BROKERS = json.dumps(
    [
        {"id": "north-1", "cluster": "north"},
        {"id": "north-2", "cluster": "north"},
        {"id": "south-1", "cluster": "south"},
    ]
)
OPTIONS = ("--set", f"brokers={BROKERS}", "--set", "recovery.will_grace_s=1", "--set", "log.level=info")


@pytest.fixture
def network() -> Iterator[dict[str, Any]]:
    with up(*OPTIONS, level="error") as line:
        yield line


async def test_the_backup_publishes_the_will_of_a_client_lost_with_its_broker(
    network: dict[str, Any],
) -> None:
    told: list[tuple[str, bytes]] = []
    async with (
        asyncio.timeout(READY_DEADLINE_S),
        AsyncClient([Server(*address(network, "south-1"))]) as watcher,
    ):

        async def read() -> None:
            async for message in watching:
                told.append((message.topic, message.payload))

        watching = await watcher.subscribe("wills/#", qos=1)
        reading = asyncio.create_task(read())
        dying = Peer(*await asyncio.open_connection(*address(network, "north-1")), V5)
        dying.send(ConnectPacket("dying", will=Will("wills/dying", payload=b"dead", will_delay_interval=0)))
        await dying.receive(ConnAckPacket)
        living = AsyncClient([Server(*address(network, "north-1"))], client_id="living")
        async with living:
            await until(lambda: bool(living.others))
            await asyncio.sleep(3)  # for backups to be planned, and to have everything
            broker = network["pids"]["broker/north-1"]
            os.kill(broker, signal.SIGSTOP)  # one that is killed may be back before it is missed
            try:
                dying.close()
                await until(lambda: ("wills/dying", b"dead") in told)
            finally:
                os.kill(broker, signal.SIGCONT)
        reading.cancel()


SLOW = ("--set", "membership.suspect_least_ms=20000", "--set", "membership.suspect_after_ms=20000")


@pytest.mark.slow
async def test_a_will_is_published_if_its_client_misses_the_brokers_restart() -> None:
    """The broker is back before it is missed: nobody stands in, and its memory is gone."""
    told: list[tuple[str, bytes]] = []
    with up(*OPTIONS, *SLOW, level="error") as network:
        async with (
            asyncio.timeout(READY_DEADLINE_S),
            AsyncClient([Server(*address(network, "south-1"))]) as watcher,
            AsyncClient(
                [Server(*address(network, "north-1"))],
                client_id="living",
                will=Message("wills/living", b"dead"),
            ) as living,
        ):

            async def read() -> None:
                async for message in watching:
                    told.append((message.topic, message.payload))

            watching = await watcher.subscribe("wills/#", qos=1)
            reading = asyncio.create_task(read())
            dying = Peer(*await asyncio.open_connection(*address(network, "north-1")), V5)
            will = Will("wills/dying", payload=b"dead", will_delay_interval=0)
            dying.send(ConnectPacket("dying", will=will))
            await dying.receive(ConnAckPacket)
            await until(lambda: bool(living.others))
            await asyncio.sleep(3)  # for backups to be planned, and to have everything
            os.kill(network["pids"]["broker/north-1"], signal.SIGKILL)
            dying.close()
            await until(lambda: ("wills/dying", b"dead") in told)
            await asyncio.sleep(2)  # longer than the grace
            assert told == [("wills/dying", b"dead")]
            reading.cancel()
