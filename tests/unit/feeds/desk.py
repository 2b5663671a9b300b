"""What the tests of feeds share: a store in memory, feeds on it, and what they brought."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from tocsin.feeds.agents.agent import Agent, Work
from tocsin.feeds.outlet import FeedWriter
from tocsin.feeds.status import FeedCounts
from tocsin.model.catalogue import Dataset, Feed, FeedSource
from tocsin.model.channel_names import ChannelNames
from tocsin.model.feeding import RECORDS, FeedCell, cell_key, decode_cell, table_spec
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.subjects import messages_log, subject_of
from tocsin.ports import Entry, Log, Record, Table
from tocsin.store.memory.store import MemoryServer, MemoryStore

NETWORK = "net"
PLACES = ChannelNames(NETWORK)
DEADLINE_S = 20.0


class HandClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000

    def now_us(self) -> int:
        self.us += 1
        return self.us


class Desk:
    """Logs and tables of a network in memory."""

    feeds: Log
    messages: Log
    cells: Table

    def __init__(self, clock: HandClock | None = None) -> None:
        self.server = MemoryServer(clock)
        self.store = MemoryStore(self.server)
        self._published = 0

    @classmethod
    async def open(cls, clock: HandClock | None = None) -> Desk:
        desk = cls(clock)
        desk.feeds = await desk.store.log(PLACES.feeds)
        desk.messages = await desk.store.log(messages_log(NETWORK, None, None))
        desk.cells = await desk.store.table(table_spec(NETWORK))
        return desk

    def work(
        self, source: FeedSource, dataset: Dataset | None = None, *, name: str = "Reports", version: int = 1
    ) -> Work:
        feed = Feed(name, "Data", source, version)
        return Work(feed, FeedWriter(feed, self.feeds, self.cells, PLACES), FeedCounts(), lambda: dataset)

    async def publish(self, topic: str, payload: object = None, **more: Any) -> int:
        """A message above QoS 0, in the message log; its position."""
        self._published += 1
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        publication = Publication(topic, data, 1, "somebody", **more)
        subject = subject_of(topic, NETWORK, critical=publication.critical)
        record = Record(subject, encode_publication(publication), f"message-{self._published}")
        (position,) = await self.messages.append([record])
        return position

    async def entries(self, feed: str = "Reports") -> list[Entry]:
        return list((await self.feeds.read(PLACES.feed_subject(feed), 0)).entries)

    async def records(self, feed: str = "Reports") -> list[Any]:
        """What a feed brought, record by record, as the pipeline would see it."""
        found: list[Any] = []
        for entry in await self.entries(feed):
            said = json.loads(RECORDS.open(entry.payload))
            found += said if isinstance(said, list) else [said]
        return found

    async def until_records(self, count: int, feed: str = "Reports") -> list[Any]:
        async with asyncio.timeout(DEADLINE_S):
            while len(found := await self.records(feed)) < count:
                await asyncio.sleep(0.005)
        return found

    async def cell(self, feed: str = "Reports") -> FeedCell:
        cell = await self.cells.get(cell_key(feed))
        assert cell is not None
        return decode_cell(cell.value)


def running(agent: Agent) -> AbstractAsyncContextManager[None]:
    """An agent at work; what it raises is raised at the end, unless it is only ended."""
    return _background(agent.run())


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, None]):  # type: ignore[no-untyped-def]
    task = asyncio.ensure_future(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that has no event of its own."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {DEADLINE_S:g} s") from None
