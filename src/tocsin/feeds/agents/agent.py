"""The common part of all agents, whatever their source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from tocsin.feeds.outlet import FeedWriter
from tocsin.feeds.status import FeedCounts
from tocsin.model.catalogue import Dataset, Feed


class Work(msgspec.Struct, frozen=True):
    """The inputs of an agent: its feed, its writer, its counters, and the current dataset, if there is one."""

    feed: Feed
    outlet: FeedWriter
    counts: FeedCounts
    dataset: Callable[[], Dataset | None]


class Agent(Protocol):
    """Reads one feed's source. It is created again after each failure."""

    async def run(self) -> None:
        """Until cancelled; raises whatever goes wrong."""
        ...

    async def lag(self) -> int:
        """Records of the source that are not in the log of feeds yet, at most; -1 if unknown."""
        ...


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Run all of it until one ends; the others are cancelled, and what it raised is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
