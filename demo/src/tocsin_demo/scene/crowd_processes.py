"""The processes in which the subscribers are: started, heard and told what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from typing import Final

from tocsin.errors import DeadlineExceeded
from tocsin_demo.scene import crowd
from tocsin_demo.scene.account import Result
from tocsin_demo.scene.ledger import Ledger
from tocsin_demo.scene.script import Script
from tocsin_demo.worker import News, Worker

SUBSCRIBE_S: Final = 120.0
MODULE: Final = "tocsin_demo.scene"


class CrowdProcesses:
    """Tells the ledger what the subscribers see."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._workers: list[Worker] = []
        self._there: dict[int, int] = {}  # by process: subscribers who have come, and not gone

    async def enter(
        self, stack: AsyncExitStack, script: Script, servers: Mapping[str, tuple[str, int]]
    ) -> None:
        """Start everybody, and return when all are subscribed."""
        people = [
            crowd.Subscriber(number, name, *servers[home.broker])
            for number, (name, home) in enumerate(script.cast())
        ]
        places, count, later = script.places(), min(script.workers, len(people)), set(script.later)
        self._ledger.absent |= later
        for turn in range(count):
            mine = tuple(place for place in places if place[1] % count == turn)
            job = crowd.Job(
                tuple(people[turn::count]),
                mine,
                later=tuple(each.number for each in people[turn::count] if each.number in later),
                keep_alive_s=script.keep_alive_s,
            )
            worker = await Worker.start(MODULE, "crowd", job)
            stack.push_async_callback(worker.close)
            self._workers.append(worker)
        try:
            async with asyncio.timeout(SUBSCRIBE_S):
                await asyncio.gather(*(self._ready(turn) for turn in range(count)))
        except TimeoutError:
            raise DeadlineExceeded("the brokers (subscribing)", SUBSCRIBE_S) from None

    async def _ready(self, turn: int) -> None:
        await self._workers[turn].until("ready", lambda news: self._hear(turn, news))

    async def listen(self) -> None:
        """Hear what they say, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for turn in range(len(self._workers)):
                tasks.create_task(self._listen(turn))

    async def _listen(self, turn: int) -> None:
        while True:
            self._hear(turn, await self._workers[turn].news())

    def _hear(self, turn: int, news: News) -> None:
        found, name = news.found, f"crowd-{turn}"
        for number, at_s, server in found.get("moves", ()):
            self._ledger.moved(number, at_s, server)
        for number, at_s, *result in found.get("got", ()):
            self._ledger.got(number, at_s, Result(*result))
        if found:
            self._ledger.repeats[name] = found["repeats"]
            self._ledger.skipped[name] = found["skipped"]
            self._there[turn] = found["there"]

    @property
    def there(self) -> int:
        """Subscribers who have come, and not gone, as their processes last said."""
        return sum(self._there.values())

    async def come(self, subscribers: Collection[int]) -> None:
        """Have these come, for the first time or again."""
        await self._order("come", subscribers)

    async def go(self, subscribers: Collection[int]) -> None:
        """Have these take leave; their sessions stay."""
        await self._order("go", subscribers)

    async def _order(self, word: str, subscribers: Collection[int]) -> None:
        count = len(self._workers)
        for turn, worker in enumerate(self._workers):
            if mine := [each for each in subscribers if each % count == turn]:
                await worker.order(**{word: mine})

    async def begin(self, begin_s: float) -> None:
        """Let them walk from that time on."""
        for worker in self._workers:
            await worker.order(begin_s=begin_s)

    async def rest(self) -> None:
        """Let them stay where they are."""
        for worker in self._workers:
            await worker.order(rest=True)
