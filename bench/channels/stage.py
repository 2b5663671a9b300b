"""The production classes on a real Spark and a real NATS server, without brokers: executions as the pipeline has them.

``Ticker.run`` is timed: snapshot, plan, query, the tasks' files with their flush, the commit, the notice and
the cells of progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from tocsin import config
from tocsin.model.catalogue import Channel, Dataset
from tocsin.model.channel_names import ChannelNames
from tocsin.model.results import BackendSubscription, Value, encode_subscription
from tocsin.pipeline.execution.compiled import compile_channel
from tocsin.pipeline.execution.engine import Engine
from tocsin.pipeline.execution.runs import Done
from tocsin.pipeline.execution.subscriptions import Subscriptions
from tocsin.pipeline.ingest.progress import ChannelProgress, Progress
from tocsin.pipeline.spark.session import Options, Spark, cache_directory
from tocsin.pipeline.storage.landing import Landing
from tocsin.pipeline.storage.results import ResultsStore
from tocsin.pipeline.storage.rows.fitting import Fitted
from tocsin.pipeline.tick import Ticker
from tocsin.ports import Change
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

T = TypeVar("T")

PLACES = ChannelNames("bench")
BROKERS = ("north-1", "south-1")  # every other subscription is held by the second


class Turn(msgspec.Struct, frozen=True):
    """One execution, or one tick of several."""

    seconds: float
    done: tuple[Done, ...]

    @property
    def results(self) -> int:
        return sum(each.results for each in self.done)


class Stage:
    """One pipeline. ``engine`` may be replaced by one that is measured from inside."""

    def __init__(
        self, spark: Spark, store: JetStreamStore, root: Path, make: Callable[..., Engine] = Engine
    ) -> None:
        self.spark = spark
        self.root = root
        self.landing = Landing(root)
        self.results = ResultsStore(root / "results")
        self.subscriptions = Subscriptions()
        self.engine = make(
            spark.session,
            self.landing.data,
            self.subscriptions,
            results=self.results,
            directory=root / "subscriptions",
            run="bench",
            deadline_s=600.0,
        )
        self.channels: dict[str, Channel] = {}
        self.datasets: dict[str, Dataset] = {}
        self.chance = random.Random(root.name)
        self._store = store
        self._revision = 0
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="pipeline")
        self.ticker: Ticker

    async def open(self) -> None:
        self.progress = Progress(await self._store.table(PLACES.progress))
        self.ticker = Ticker(
            self.engine,
            self.results,
            await self._store.log(PLACES.notices),
            PLACES.notices_subject,
            self.progress,
            self._threads,
            run="bench",
            clock=now_us,
        )

    async def call(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """In the engine's thread, as the pipeline does it."""
        call = partial(work, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    # ── what there is ───────────────────────────────────────────────────────────────────────────────────────────

    def create(self, *datasets: Dataset) -> None:
        for dataset in datasets:
            self.landing.create(dataset)
            self.datasets[dataset.name] = dataset

    def define(self, *channels: Channel) -> None:
        """Channels; what is in their datasets by now is not new to them."""
        for channel in channels:
            self.channels[channel.name] = channel
            compiled = compile_channel(channel, self.datasets)
            self.engine.define(compiled)
            read = {
                each.key: self.landing.data.version(each.name) for each in compiled.template.reads if each.new
            }
            self.progress.note_channel(channel.name, ChannelProgress(0, read))

    def hold(self, channel: Channel, values: Iterable[tuple[Value, ...]]) -> None:
        """Subscriptions, as the watch of their table would bring them."""
        for number, each in enumerate(values):
            self._revision += 1
            cell = BackendSubscription(channel.name, each, BROKERS[number % len(BROKERS)])
            self.subscriptions.apply(Change("put", cell.key, encode_subscription(cell), self._revision))

    def append(self, dataset: Dataset, rows: pa.Table) -> None:
        """Rows, landed as a feed's are."""
        self.landing.land(dataset.name, Fitted(rows), feed="bench", now_us=now_us())

    # ── a tick ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, *channels: Channel) -> Turn:
        """Execute these at once."""
        began = time.perf_counter()
        done = await self.ticker.run([each.name.lower() for each in channels], {}, self._revision)
        seconds = time.perf_counter() - began
        failed = next((each.error for each in done if each.error), None)
        if failed is not None:
            raise RuntimeError(failed)
        return Turn(seconds, done)

    def close(self) -> None:
        self.engine.close()
        self._threads.shutdown()


def now_us() -> int:
    return time.time_ns() // 1_000


@contextlib.asynccontextmanager
async def started(directory: Path, conf: dict[str, str] | None = None) -> AsyncIterator[Spark]:
    """Spark as ``tocsin up`` starts it."""
    options = Options(
        settings=config.Spark(ui_port=0, conf=conf or {}),
        work=directory / "spark",
        log=directory / "spark.log",
        cache=cache_directory(os.environ, directory),
    )
    spark = Spark(options)
    spark.launch()
    try:
        await asyncio.to_thread(spark.connect)
        yield spark
    finally:
        await asyncio.to_thread(spark.stop)


@contextlib.asynccontextmanager
async def opened(
    directory: Path, spark: Spark, name: str, make: Callable[..., Engine] = Engine
) -> AsyncIterator[Stage]:
    """A stage on a store of its own."""
    root = directory / name
    root.mkdir(parents=True)
    with LocalServers(root / "nats") as servers:
        store = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=60)
        stage = Stage(spark, store, root / "storage", make)
        try:
            await stage.open()
            yield stage
        finally:
            stage.close()
            await store.close()
