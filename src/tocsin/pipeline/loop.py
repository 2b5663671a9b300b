"""The pipeline's loop: take in what feeds brought, run the channels that are due, and wait for either.

Everything that uses Spark, the storage or the subscriptions runs in one thread, one call after the other: a slice of
an ingest, a tick, a change of a definition. So none of them sees another half done. Slices are bounded, and ticks
take turns with them: neither a backlog nor a busy channel starves the other.

Beside the loop, each in its own task: the watch of the subscriptions, the log of feeds, the lease, upkeep of the
datasets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from tocsin.errors import StorageUnusable
from tocsin.pipeline.definitions.definitions import Definitions
from tocsin.pipeline.execution.failures import first_words
from tocsin.pipeline.ingest.ingest import Ingest
from tocsin.pipeline.language.tree.resolution import results_key
from tocsin.pipeline.status import Figures
from tocsin.pipeline.tick import Ticker
from tocsin.ports import Change, Table

CHANGES_MAX: Final = 100_000  # of subscriptions that wait to be applied; beyond it the watch waits
APPLY_MAX: Final = 50_000  # of them that are applied between two ticks
WRITE_S: Final = 2.0  # between two writes of what is not urgent
RETRY_S: Final = 1.0


class Loop:
    """Runs until it is cancelled."""

    def __init__(
        self,
        definitions: Definitions,
        ticker: Ticker,
        ingest: Ingest,
        figures: Figures,
        *,
        tick_s: float,
        clock: Callable[[], int],
        woken: asyncio.Event,
        warm_up: Callable[[], object] | None = None,
    ) -> None:
        self._definitions = definitions
        self._ticker = ticker
        self._ingest = ingest
        self._figures = figures
        self._tick_s = tick_s
        self._clock = clock
        self._woken = woken
        self._warm_up = warm_up  # to be done once, before the first wait; None: there has been a tick
        self._changes: deque[Change] = deque()
        self._applied = asyncio.Event()  # there is room for more changes
        self.ready = asyncio.Event()  # all subscriptions are known, and ticks are made
        self.executed = 0
        self._log = structlog.get_logger()

    # ── beside the loop ─────────────────────────────────────────────────────────────────────────────────────────

    async def watch(self, table: Table) -> None:
        """Follow the table of subscriptions."""
        async for change in table.watch():
            self._changes.append(change)
            self._woken.set()
            while len(self._changes) >= CHANGES_MAX:
                self._applied.clear()
                await self._applied.wait()

    async def look_around(self, every_s: float = WRITE_S) -> None:
        """Write down what is not urgent, and see what others have loaded into datasets."""
        while True:
            await asyncio.sleep(every_s)
            await self._definitions.progress.write()
            for name in list(self._definitions.catalogue.datasets):
                before = self._definitions.versions.get(name, 0)
                await self._definitions.see(name)
                if self._definitions.versions.get(name, 0) != before:
                    self._woken.set()

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        while True:
            began = asyncio.get_running_loop().time()
            self._woken.clear()
            await self._apply()
            ingested = await self._take_in()
            async with self._definitions.turn:
                ticked = await self._tick() if self._definitions.subscriptions.ready else False
            if ticked:
                self._warm_up = None
            if not (ingested or ticked or self._changes) and not await self._warmed_up():
                await self._wait()
            pause_s = began + self._tick_s - asyncio.get_running_loop().time()
            if pause_s > 0:
                await asyncio.sleep(pause_s)

    async def _warmed_up(self) -> bool:
        """Use the time before the first tick, if there is any; whether it was used."""
        if self._warm_up is None or not self._definitions.subscriptions.ready:
            return False
        warm_up, self._warm_up = self._warm_up, None
        try:
            await self._definitions.call(warm_up)
        except Exception as error:  # of Spark, or the storage: channels will say the same, if it is true
            self._log.warning("Spark could not be warmed up", problem=first_words(error))
        return True

    async def _apply(self) -> None:
        """Bring the subscriptions up to date, with at most so many changes at once."""
        if not self._changes:
            return
        some = [self._changes.popleft() for _ in range(min(APPLY_MAX, len(self._changes)))]

        def apply() -> None:
            for change in some:
                self._definitions.subscriptions.apply(change)

        await self._definitions.call(apply)
        self._applied.set()
        if self._definitions.subscriptions.ready:
            self.ready.set()

    async def _take_in(self) -> bool:
        entries = self._ingest.take()
        if not entries:
            return False
        try:
            feeds = dict(self._definitions.catalogue.feeds)
            landed = await self._definitions.call(lambda: self._ingest.land(entries, feeds))
        except StorageUnusable as error:
            self._ingest.give_back(entries)
            self._log.warning("records of feeds cannot be stored yet", problem=str(error))
            await asyncio.sleep(RETRY_S)
            return False
        self._definitions.progress.note_ingested(self._ingest.position)
        for dataset, version in landed.versions.items():
            self._definitions.saw(dataset, version)
        return True

    async def _tick(self) -> bool:
        schedule = self._definitions.schedule
        turns = schedule.take(self._clock())
        if not turns:
            return False
        for turn in turns:
            if turn.skipped:
                self._log.warning("executions were skipped", channel=turn.channel, skipped=turn.skipped)
        before = self._definitions.progress.tick
        done = await self._ticker.run(
            [turn.channel for turn in turns],
            self._definitions.versions,
            self._definitions.subscriptions.revision,
        )
        now_us = self._clock()
        for each in done:
            self._figures.note(each)
            if each.error:
                held_us = schedule.failed(each.channel, now_us, each.error)
                self._log.warning(
                    "a channel failed", channel=each.channel, problem=each.error, again_in_s=held_us / 1e6
                )
            else:
                schedule.done(each.channel, now_us, read=each.read, cost_us=each.took_us)
                if each.results:
                    schedule.advance(results_key(each.channel), self._ticker.number, now_us)
        if not self.executed:
            self._log.info("the first execution is done", channels=[each.channel for each in done])
        self.executed += len(done)
        if self._definitions.progress.tick != before:
            self._log.debug("tick", tick=self._definitions.progress.tick, channels=len(done))
        return True

    async def _wait(self) -> None:
        """Until something comes, or a channel is due."""
        now_us = self._clock()
        due_us = self._definitions.schedule.next_us(now_us)
        timeout = None if due_us is None else max((due_us - now_us) / 1e6, 0.0)
        try:
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        except TimeoutError:
            return
