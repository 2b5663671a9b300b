"""A tick: channels that are due run, their results are committed at once, brokers are told, and then it is written
down.

    execute → commit → notice → progress

The **commit** is the truth. It names the tick, and says which executions it holds and what they had read. Killed
before it, nothing happened: the files that tasks wrote belong to no tick, and the channels are due again. Killed
behind it, the next start finds what is missing: ``recover`` compares the newest commit with the log of notices and
with the cells of progress, and does the rest. A tick is told of before the next one is committed, so that it can only
be the newest that somebody still has to be told of.

The notices of a tick are one append, which the log takes as a whole or not at all. Their ids follow from the tick.

A channel that reads the results of another sees those of earlier ticks. Its position is a tick, and is in the commit as
positions in datasets are.

A tick without results commits nothing. That its channels had read something is written down later: if it is lost,
they read it again, and find nothing again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import Any, Final, TypeVar

import msgspec
import structlog

from tocsin.errors import StorageUnusable, StoreError, TocsinError
from tocsin.model.results import Notice, decode_notice, encode_notice
from tocsin.pipeline.execution.engine import Engine
from tocsin.pipeline.execution.runs import Done, Due, Run
from tocsin.pipeline.ingest.progress import ChannelProgress, Progress
from tocsin.pipeline.storage.results import Committed, ResultsStore
from tocsin.ports import Log, Record
from tocsin.runtime.faults import kill_points as points

T = TypeVar("T")

RETRY_S: Final = 0.5  # between two tries to tell of a tick, while the store is away


class Overtaken(TocsinError):
    """A tick of ours was committed by somebody else."""

    def __init__(self, tick: int) -> None:
        self.tick = tick
        super().__init__(
            f"tick {tick} was committed by another pipeline on the same storage; stop one of the two"
        )


class Ticker:
    """Makes ticks, one after the other."""

    def __init__(
        self,
        engine: Engine,
        results: ResultsStore,
        notices: Log,
        subject: str,
        progress: Progress,
        thread: Executor,
        *,
        run: str,
        clock: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._results = results
        self._notices = notices
        self._subject = subject
        self._progress = progress
        self._thread = thread  # where the engine and the storage are used, one call at a time
        self._run = run
        self._clock = clock
        self._attempts = 0
        self._log = structlog.get_logger()
        self.number = 0  # of the newest tick that is committed

    # ── at the start ────────────────────────────────────────────────────────────────────────────────────────────

    async def recover(self) -> None:
        """Do what the last run had no time for: tell of the newest commit, and write down what it says."""
        committed = await self._call(self._results.committed)
        if committed is None:
            return
        self.number = committed.tick
        told = max(self._progress.tick, await self._last_told())
        if committed.tick > told:
            self._log.info("telling again of a tick", tick=committed.tick, results=committed.rows)
            await self._tell(committed)
        for name, execution, read in committed.metadata.get("executions", ()):
            known = self._progress.channel(name)
            if known is None or known.execution < execution:
                self._progress.note_channel(name, ChannelProgress(execution, read, committed.at_us))
        self._progress.note_tick(committed.tick)
        await self._progress.write()

    async def _last_told(self) -> int:
        position = await self._notices.last(self._subject, fresh=True)
        if not position:
            return 0
        page = await self._notices.read(self._subject, position, limit=1, fresh=True)
        return max((decode_notice(entry.payload).tick for entry in page.entries), default=0)

    # ── one tick ────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, channels: Iterable[str], versions: Mapping[str, int], seen: int) -> tuple[Done, ...]:
        """Execute channels; how each went. ``versions``: of datasets now, for channels that have read none of them
        yet.

        ``seen``: the revision of the table of subscriptions up to which the engine knows it.
        """
        tick, at_us = self.number + 1, self._clock()
        due = [self._due(name, versions) for name in channels]
        ran = await self._call(lambda: self._engine.execute(due, tick=tick, at_us=at_us))
        if any(part.rows for part in ran.parts):
            try:
                committed = await self._commit(tick, at_us, ran, seen)
            except StorageUnusable as error:
                return tuple(
                    msgspec.structs.replace(done, error=done.error or str(error)) for done in ran.done
                )
            points.reach(points.AFTER_COMMIT)
            await self._tell(committed)
            points.reach(points.AFTER_NOTICE)
        for done in ran.done:
            if not done.error:
                self._progress.note_channel(done.channel, ChannelProgress(done.execution, done.read, at_us))
        if self._progress.tick < self.number:
            self._progress.note_tick(self.number)
            await self._progress.write()
        return ran.done

    def _due(self, name: str, versions: Mapping[str, int]) -> Due:
        known = self._progress.channel(name) or ChannelProgress()
        since: dict[str, int] = {}
        for read in self._engine.reads(name):
            if read.new and read.results:
                # A position beyond the newest tick is of results that are gone: those that come are new.
                since[read.key] = min(known.read.get(read.key, self.number), self.number)
            elif read.new:
                since[read.key] = known.read.get(read.key, versions.get(read.key, 0))
        return Due(name, known.execution + 1, since)

    async def _commit(self, tick: int, at_us: int, ran: Run, seen: int) -> Committed:
        self._attempts += 1
        mark = f"{self._run}-{self._attempts}"
        metadata: dict[str, Any] = {
            "mark": mark,
            "seen": seen,
            "executions": [[each.channel, each.execution, each.read] for each in ran.done if not each.error],
        }
        points.reach(points.BEFORE_COMMIT)
        try:
            committed = await self._call(
                lambda: self._results.commit(tick, ran.parts, at_us=at_us, metadata=metadata)
            )
        except StorageUnusable:
            # It may be there, and only its flush failed.
            found = await self._call(self._results.committed)
            if found is None or found.metadata.get("mark") != mark:
                raise
            committed = found
        if committed.metadata.get("mark") != mark:
            raise Overtaken(tick)
        self.number = tick
        return committed

    async def _tell(self, committed: Committed) -> None:
        """Append the notices, again and again until the log has them: what is committed must be told."""
        seen = int(committed.metadata.get("seen", 0))
        notices: list[Notice] = [msgspec.structs.replace(each, seen=seen) for each in committed.notices()]
        if not notices:
            return
        records = [Record(self._subject, encode_notice(notice), notice.id) for notice in notices]
        while True:
            try:
                await self._notices.append(records)
                return
            except StoreError as error:
                if not error.retryable:
                    raise
                self._log.warning("brokers cannot be told yet", tick=committed.tick, problem=str(error))
                await asyncio.sleep(RETRY_S)

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
