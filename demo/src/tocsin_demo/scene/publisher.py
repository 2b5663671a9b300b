"""The publisher of emergencies: one client, at QoS 2, on a stream for each kind, each with a number of its own.

At QoS 2 an emergency is published once, whatever fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Final

from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin_demo.scene import application
from tocsin_demo.traces import Emergency

DEADLINE_S: Final = 120.0  # for an emergency to be published: longer than any failure
KEEP_ALIVE_S: Final = 4
UNDER_WAY_MAX: Final = 100


class EmergencyPublisher:
    """Publishes the emergencies of a script."""

    def __init__(self, servers: Iterable[tuple[str, int]]) -> None:
        self.published = 0  # that the network has acknowledged
        self.told: list[
            tuple[float, int, Emergency]
        ] = []  # when each was acknowledged, its number, and what it was
        self._client = AsyncClient(
            [Server(host, port) for host, port in servers],
            client_id="crier",
            session_expiry_s=3_600,
            keep_alive_s=KEEP_ALIVE_S,
            deadline_s=DEADLINE_S,
        )
        self._number = 0
        self._enough = asyncio.Event()

    async def enter(self, stack: AsyncExitStack) -> None:
        """Connect, and say what the streams are."""
        await stack.enter_async_context(self._client)
        for kind in application.LEVELS:
            topic = application.emergency_topic(kind)
            stream = self._client.stream(topic, type=application.EMERGENCY, qos=2, permanent=True)
            await stream.describe()

    async def strike(self, emergency: Emergency) -> int:
        """Publish it; its number, once the network has it."""
        self._number += 1
        number = self._number
        await self._client.publish(
            application.emergency_topic(emergency.kind), application.report(number, emergency), qos=2
        )
        self.published += 1
        self.told.append((time.monotonic(), number, emergency))
        return number

    async def play(self, happenings: Iterable[Emergency], begin_s: float) -> None:
        """Publish each at its time, until the last or until ``rest``; an emergency that the network is slow to take
        delays no other. Returns when all that was begun is published, and raises if something cannot be.
        """
        room = asyncio.Semaphore(UNDER_WAY_MAX)
        async with asyncio.TaskGroup() as tasks:
            for each in happenings:
                await self._wait(begin_s + each.at_s - time.monotonic())
                await room.acquire()
                if self._enough.is_set():
                    return
                tasks.create_task(self.strike(each)).add_done_callback(lambda _: room.release())

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._enough.wait()

    def rest(self) -> None:
        """Begin nothing more."""
        self._enough.set()
