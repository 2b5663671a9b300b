"""Retention: how long datasets, results, notices and records of feeds are kept.

Datasets and results have an upkeep of their own (``storage.upkeep``, ``storage.results``). Results, and the notices
that name them, go when they are older than ``results_keep_s`` *and* no stored session or group can need them any more
(``store.retention``); results also wait for the channels that read them. Records of feeds go when they are in their
datasets, and no feed still needs them to know how far it is.

Everything here can be done later: a failure is reported, and tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

import structlog

from tocsin.errors import DatasetMissing, FormatNewer, Malformed, StorageUnusable, StoreError
from tocsin.model.results import decode_notice
from tocsin.pipeline.definitions.definitions import Definitions
from tocsin.ports import Log, Table
from tocsin.store.retention import feeds_floor, retention_floor

EVERY_S: Final = 20.0
FLOOR_EVERY: Final = 15  # rounds: every five minutes all stored sessions and groups are looked at
NOTICES_MAX: Final = 1_000  # that one round removes


class Housekeeping:
    """The clean-up of one pipeline."""

    def __init__(
        self,
        definitions: Definitions,
        *,
        feeds: Log,
        feeders: Table,
        notices: Log,
        subject: str,
        sessions: Table,
        groups: Table,
        keep_s: float,
        threads: Executor,
        clock: Callable[[], int],
    ) -> None:
        self._definitions = definitions
        self._feeds = feeds
        self._feeders = feeders
        self._notices = notices
        self._subject = subject
        self._sessions = sessions
        self._groups = groups
        self._keep_s = keep_s
        self._threads = threads
        self._clock = clock
        self._log = structlog.get_logger()
        self.floor = 0  # the oldest position of a notice that somebody may need; 0: it is not known yet

    async def run(self, every_s: float = EVERY_S) -> None:
        """Until cancelled."""
        rounds = 0
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.tidy(look=rounds % FLOOR_EVERY == 0)
            except (
                DatasetMissing,
                StorageUnusable,
                StoreError,
                Malformed,
                FormatNewer,
            ) as error:  # one may be dropped just now
                self._log.warning("upkeep was not possible", problem=str(error))
            rounds += 1

    async def tidy(self, *, look: bool) -> None:
        """One round; with ``look``, after a look at which results are still needed."""
        if look:
            self.floor = await retention_floor(self._sessions, self._groups, self._notices)
        loop = asyncio.get_running_loop()
        for name in list(self._definitions.catalogue.datasets):
            await loop.run_in_executor(self._threads, self._definitions.landing.upkeep, name, self._clock())
        tick = await self._tick_of(self.floor)
        unread = self._definitions.unread_tick()
        if unread is not None:
            tick = min(tick, unread)
        forget = partial(self._definitions.results.upkeep, self._clock(), keep_s=self._keep_s, floor=tick)
        await loop.run_in_executor(self._threads, forget)
        await self._trim_notices()
        await self._trim_feeds()

    async def _tick_of(self, position: int) -> int:
        """The first tick that is needed if notices from a position on are; 0: all may be."""
        if not position:
            return 0
        page = (
            await self._notices.read(self._subject, position, limit=1, fresh=True)
            if await self._kept(position)
            else None
        )
        if page is not None and page.entries:
            return decode_notice(page.entries[0].payload).tick
        return self._definitions.progress.tick

    async def _kept(self, position: int) -> bool:
        """Whether there are notices from a position on."""
        return position <= await self._notices.last(fresh=True)  # a "no" has results forgotten

    async def _trim_notices(self) -> None:
        """Forget old ones that nobody needs, but never the newest: a start compares it with the newest commit."""
        horizon_us = self._clock() - int(self._keep_s * 1e6)
        page = await self._notices.read(self._subject, 0, limit=NOTICES_MAX)
        old = [
            entry.position
            for entry in page.entries
            if entry.at_us < horizon_us and entry.position < min(self.floor, page.last)
        ]
        if old:
            await self._notices.trim(before=old[-1] + 1)

    async def _trim_feeds(self) -> None:
        landed = self._definitions.progress.ingested
        if landed:
            end = await feeds_floor(self._feeders, landed + 1)
            await self._feeds.trim(before=end)
