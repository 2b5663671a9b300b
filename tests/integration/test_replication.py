"""Backups that the coordinator planned know of clients, on real processes; one that is killed is waited for no longer
than allowed, and learns everything when it is back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.running import READY_DEADLINE_S, up
from tests.integration.test_elsewhere import address
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.errors import TocsinError

NAMES = ("north-1", "north-2", "south-1")
BROKERS = json.dumps([{"id": name, "cluster": name.partition("-")[0]} for name in NAMES])
ROOT = "$SYS/broker/replication/"


class Watched:
    """The figures of some brokers, as they say them."""

    def __init__(self, network: dict[str, Any]) -> None:
        self.servers = {name: Server(*address(network, name)) for name in NAMES}
        self.figures: dict[str, dict[str, int]] = {name: {} for name in NAMES}

    async def watch(self, name: str) -> None:
        async with AsyncClient([self.servers[name]], client_id=f"watch-{name}") as client:
            async for message in await client.subscribe(f"{ROOT}#"):
                self.figures[name][message.topic.removeprefix(ROOT)] = int(message.payload)

    async def watch_once_back(self, name: str) -> None:
        """The same of a broker that may not be there yet."""
        while True:
            try:
                await self.watch(name)
            except TocsinError:
                await asyncio.sleep(0.2)

    async def until(self, condition: Callable[[dict[str, dict[str, int]]], bool]) -> None:
        while not condition(self.figures):
            await asyncio.sleep(0.1)


def backed(figures: dict[str, dict[str, int]]) -> bool:
    of = figures["north-1"]
    return of.get("backups") == 2 and of.get("backups/degraded") == 0 == of.get("backups/behind")


async def test_backups_know_of_clients() -> None:
    with up("--set", f"brokers={BROKERS}", level="error") as network:
        watched = Watched(network)
        async with asyncio.timeout(READY_DEADLINE_S), asyncio.TaskGroup() as group:
            tasks = [group.create_task(watched.watch(name)) for name in NAMES]
            async with AsyncClient([watched.servers["north-1"]], session_expiry_s=60) as client:
                await watched.until(backed)
                before = {name: watched.figures[name].get("copies/bytes", 0) for name in NAMES[1:]}
                for number in range(100):
                    await client.subscribe(f"t/{number}", qos=1)
                await watched.until(
                    lambda figures: all(
                        figures[name].get("copies/bytes", 0) >= before[name] + 100 * 100 for name in before
                    )
                )
            for task in tasks:
                task.cancel()


@pytest.mark.slow
async def test_a_killed_backup_delays_nobody_and_catches_up_after_its_restart() -> None:
    with up("--set", f"brokers={BROKERS}", level="error") as network:
        watched = Watched(network)
        async with asyncio.timeout(2 * READY_DEADLINE_S), asyncio.TaskGroup() as group:
            tasks = [group.create_task(watched.watch("north-1"))]
            async with AsyncClient([watched.servers["north-1"]], session_expiry_s=60) as client:
                await watched.until(backed)
                os.kill(network["pids"]["broker/south-1"], signal.SIGKILL)
                async with asyncio.timeout(20):
                    for number in range(20):
                        await client.subscribe(f"t/{number}", qos=1)
                tasks.append(group.create_task(watched.watch_once_back("south-1")))
                await watched.until(lambda figures: figures["south-1"].get("copies/bytes", 0) >= 20 * 100)
                await watched.until(backed)
            for task in tasks:
                task.cancel()
