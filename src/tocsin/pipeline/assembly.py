"""A pipeline's parts, put together: what is stored, Spark, and the loop between them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from tocsin.core.channels.schedule import Limits, Schedule
from tocsin.errors import DirectoryUnusable, StoreError
from tocsin.model import feeding
from tocsin.model.catalogue import Column
from tocsin.model.channel_names import ChannelNames
from tocsin.model.subjects import messages_log
from tocsin.pipeline.definitions.catalogue import Catalogue
from tocsin.pipeline.definitions.definitions import Definitions
from tocsin.pipeline.definitions.rights import SqlRules
from tocsin.pipeline.definitions.statements import StatementRunner
from tocsin.pipeline.execution.compiled import Compiled
from tocsin.pipeline.execution.engine import Engine
from tocsin.pipeline.execution.subscriptions import Subscriptions
from tocsin.pipeline.ingest.ingest import Ingest
from tocsin.pipeline.ingest.progress import Progress
from tocsin.pipeline.ingest.retention import Housekeeping
from tocsin.pipeline.language.checks.spark import check_with_spark
from tocsin.pipeline.loop import Loop
from tocsin.pipeline.metrics import served
from tocsin.pipeline.service import Service
from tocsin.pipeline.spark.session import Spark
from tocsin.pipeline.spark.warm_up import wake_workers, warm_up
from tocsin.pipeline.status import (
    Figures,
    SparkStatus,
    Status,
    channel_status,
    dataset_statuses,
    feed_status,
)
from tocsin.pipeline.storage.landing import Landing
from tocsin.pipeline.storage.results import ResultsStore
from tocsin.pipeline.tick import Ticker
from tocsin.ports import Store, TableSpec
from tocsin.results.reader import ResultsReader
from tocsin.runtime.network.directory import datasets_directory, make_private
from tocsin.runtime.process import Process
from tocsin.runtime.security.audit import Audit
from tocsin.runtime.security.folders import Folders
from tocsin.store.process_lease import ProcessLease

REPORT_S: Final = 1.0
REHEARSE_AFTER_S: Final = 60.0  # when the first rush is over


def now_us() -> int:
    return time.time_ns() // 1_000


class Pipeline:
    """The parts, put together."""

    def __init__(
        self,
        process: Process,
        spark: Spark,
        store: Store,
        places: ChannelNames,
        lease: ProcessLease,
        threads: ThreadPoolExecutor,
        queries: ThreadPoolExecutor,
        run: str,
    ) -> None:
        self._process = process
        self._spark = spark
        self._store = store
        self._places = places
        self._lease = lease
        self._threads = threads
        self._queries = queries
        self._run = run
        self._settings = process.settings
        self._woken = asyncio.Event()
        self._figures = Figures()
        self._metrics = ""  # the address of the figures; empty: they are not served
        self._log = structlog.get_logger()

    async def open(self, connecting: asyncio.Task[Any]) -> None:
        """Read what is stored, while Spark starts; then put both together."""
        settings, places = self._settings, self._places
        root = datasets_directory(settings)
        self._progress = Progress(await self._store.table(places.progress))
        await self._progress.load()
        self._catalogue = Catalogue(await self._store.table(places.catalogue), self._progress)
        await self._catalogue.load()
        self._feeds = await self._store.log(places.feeds)
        kept = settings.messages
        messages = await self._store.log(messages_log(settings.network, kept.keep_s, kept.keep_bytes))
        notices = await self._store.log(places.notices)
        self._subscriptions_table = await self._store.table(places.subscriptions)
        landing, results = await asyncio.to_thread(_open_storage, root, bool(settings.pipeline.storage))
        subscriptions = Subscriptions()
        await connecting
        self._log.info("Spark has started")
        self._process.report("starting", problem="opening datasets and channels")
        self._waking = asyncio.create_task(asyncio.to_thread(wake_workers, self._spark.session))
        self._engine = Engine(
            self._spark.session,
            landing.data,
            subscriptions,
            results=results,
            directory=root / "subscriptions",
            run=self._run,
            deadline_s=settings.pipeline.execution_deadline_s,
        )
        limits = Limits(
            per_tick=settings.pipeline.channels_per_tick, gap_us=settings.pipeline.continuous_ms * 1_000
        )
        self._definitions = Definitions(
            self._catalogue,
            landing,
            results,
            self._engine,
            Schedule(limits),
            self._progress,
            subscriptions,
            self._threads,
            clock=now_us,
            wake=self._woken.set,
            check=self._check,
        )
        self._ticker = Ticker(
            self._engine,
            results,
            notices,
            places.notices_subject,
            self._progress,
            self._threads,
            run=self._run,
            clock=now_us,
        )
        self._ingest = Ingest(
            landing,
            self._feeds,
            f"{settings.network}.feeds.>",
            batch=settings.pipeline.ingest_batch,
            start=self._progress.ingested + 1 if self._progress.ingested else 0,
            clock=now_us,
            wake=self._woken.set,
        )
        await self._ticker.recover()
        await self._definitions.open()
        self._loop = Loop(
            self._definitions,
            self._ticker,
            self._ingest,
            self._figures,
            tick_s=settings.pipeline.tick_ms / 1_000,
            clock=now_us,
            woken=self._woken,
            warm_up=partial(warm_up, self._spark.session, root / "play"),
        )
        self._housekeeping = Housekeeping(
            self._definitions,
            feeds=self._feeds,
            feeders=await self._store.table(feeding.table_spec(settings.network)),
            notices=notices,
            subject=places.notices_subject,
            sessions=await self._store.table(TableSpec(f"{settings.network}-sessions")),
            groups=await self._store.table(TableSpec(f"{settings.network}-groups")),
            keep_s=settings.pipeline.results_keep_s,
            threads=self._queries,
            clock=now_us,
        )
        self._desk = StatementRunner(
            self._definitions,
            self._queries,
            messages.last,
            rules=SqlRules(settings.access.rules),
            audit=Audit(settings.state),
            folders=Folders(settings.feeds.folders, settings.state),
        )
        self._service = Service(
            self._store.bus, places, self._desk, ResultsReader(root / "results"), self.status, self._queries
        )

    def _check(self, compiled: Compiled, text: str, at: int) -> tuple[Column, ...]:
        return check_with_spark(self._spark.session, compiled, self._catalogue.datasets.values(), text, at)

    async def run(self) -> None:
        """Until the process is asked to stop, or something that must go on ends."""
        work: list[Coroutine[Any, Any, None]] = [
            self._loop.run(),
            self._loop.watch(self._subscriptions_table),
            self._loop.look_around(),
            self._housekeeping.run(),
            self._ingest.follow(),
            self._lease.keep(),
            self._report(),
            self._rehearse(),
        ]
        chosen = self._settings.pipeline
        async with self._service.serve(), served(chosen.metrics_host, chosen.metrics_port, self.status) as at:
            self._metrics = at
            tasks = [asyncio.create_task(each) for each in work]
            stopped = asyncio.create_task(self._process.stopped())
            try:
                await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done() and not task.cancelled():
                        task.result()  # it never returns: something ended it
            finally:
                self._process.report("stopping")
                for task in (*tasks, stopped):
                    task.cancel()
                await asyncio.gather(*tasks, stopped, return_exceptions=True)
                await self._progress.write()

    async def _rehearse(self) -> None:
        """Have the archive of classes made, once, when nothing else is urgent; then wait for ever."""
        await asyncio.sleep(REHEARSE_AFTER_S)
        self._rehearsal = self._spark.rehearse()
        await asyncio.Event().wait()

    async def _report(self) -> None:
        context = self._spark.session.sparkContext
        role = f"Spark {context.version} on {context.master}"
        while True:
            if (failure := self._spark.ended()) is not None:
                raise failure
            ready = self._loop.ready.is_set()
            self._process.report(
                "ready" if ready else "starting",
                role=role,
                spark=self._spark.ui or "",
                metrics=self._metrics,
                channels=len(self._catalogue.channels),
                subscriptions=len(self._definitions.subscriptions),
                tick=self._ticker.number,
                executions=self._loop.executed,
                **({} if ready else {"problem": "reading the subscriptions"}),
            )
            await asyncio.sleep(REPORT_S)

    async def status(self) -> Status:
        """For status requests."""
        newest = self._ingest.position
        with contextlib.suppress(StoreError):
            newest = await self._feeds.last()
        lag = max(newest - self._ingest.position, 0)
        context = self._spark.session.sparkContext
        datasets = await asyncio.get_running_loop().run_in_executor(
            self._queries, dataset_statuses, self._definitions, lag
        )
        return Status(
            spark=SparkStatus(
                version=context.version, master=context.master or "", ui=self._spark.ui, state="running"
            ),
            channels=tuple(
                channel_status(self._definitions, self._figures, each, now_us())
                for each in self._catalogue.channels.values()
            ),
            datasets=datasets,
            feeds=tuple(feed_status(each, self._ingest, newest) for each in self._catalogue.feeds.values()),
            tick=self._ticker.number,
            subscriptions=len(self._definitions.subscriptions),
        )

    def close(self) -> None:
        self._engine.close()


def _open_storage(root: Path, shared: bool) -> tuple[Landing, ResultsStore]:
    """Datasets and results, which nobody else may read; a group may where an operator chose the place and let it."""
    try:
        make_private(root, keep_group=shared)
    except OSError as error:
        raise DirectoryUnusable(str(root), error.strerror or str(error)) from None
    return Landing(root), ResultsStore(root / "results")
