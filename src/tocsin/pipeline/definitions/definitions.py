"""A pipeline's parts as one: what there is, how to change it, and how it is.

Changes come from one script at a time (``pipeline.definitions.statements``), and go to the storage, the catalogue, the
engine and the schedule, in this order, so that a pipeline that is killed in between has at most too much in its
storage. Calls to the engine are made in its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import structlog

from tocsin.core.channels.schedule import Plan, Schedule
from tocsin.errors import DatasetMissing, StoreError, StoreUnavailable, TocsinError
from tocsin.model.answer import Answer
from tocsin.model.catalogue import Channel, Column, Dataset, Definition, Feed
from tocsin.pipeline.definitions.answers import headings
from tocsin.pipeline.definitions.catalogue import Catalogue
from tocsin.pipeline.execution.compiled import Compiled, Selection, compile_channel
from tocsin.pipeline.execution.engine import Engine
from tocsin.pipeline.execution.failures import first_words
from tocsin.pipeline.execution.subscriptions import Subscriptions
from tocsin.pipeline.ingest.progress import ChannelProgress, Progress
from tocsin.pipeline.language.explaining import explain as in_words
from tocsin.pipeline.storage.landing import Landing
from tocsin.pipeline.storage.results import ResultsStore

T = TypeVar("T")

SHOWN_MAX = 10_000  # subscriptions that SHOW gives


class Definitions:
    """Everything that a statement may change."""

    def __init__(
        self,
        catalogue: Catalogue,
        landing: Landing,
        results: ResultsStore,
        engine: Engine,
        schedule: Schedule,
        progress: Progress,
        subscriptions: Subscriptions,
        thread: Executor,
        *,
        clock: Callable[[], int],
        wake: Callable[[], None],
        check: Callable[[Compiled, str, int], tuple[Column, ...]],
    ) -> None:
        self.catalogue = catalogue
        self.landing = landing
        self.results = results
        self.engine = engine
        self.schedule = schedule
        self.progress = progress
        self.subscriptions = subscriptions
        self.check = check  # has Spark look at a compiled channel; the columns of its results
        self.versions: dict[str, int] = {}  # of each dataset, as far as was seen
        self.broken: dict[str, str] = {}  # channels that cannot be compiled any more, and why
        self.turn = asyncio.Lock()  # held by a tick, and by what must not happen during one
        self._thread = thread
        self._clock = clock
        self._wake = wake
        self._log = structlog.get_logger()

    async def call(self, work: Callable[[], T]) -> T:
        """Do something in the engine's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # ── at the start ────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Open everything that is defined."""
        for dataset in self.catalogue.datasets.values():
            await self.call(partial(self.landing.create, dataset))
            await self.see(dataset.name)
        for channel in list(self.catalogue.channels.values()):
            await self._open(channel)

    async def _open(self, channel: Channel) -> None:
        try:
            compiled = compile_channel(channel, self.catalogue.named())
        except TocsinError as error:
            # It was checked when it was made: a newer version of ours sees it otherwise.
            self.broken[channel.name.lower()] = str(error)
            self._log.error("a channel cannot be run", channel=channel.name, problem=str(error))
            return
        await self._define(compiled)

    async def see(self, dataset: str) -> None:
        """The current version of a dataset; none, if it was dropped."""
        try:
            version = await self.call(lambda: self.landing.data.snapshot(dataset).version)
        except DatasetMissing:
            return
        self.saw(dataset, version)

    def saw(self, dataset: str, version: int) -> None:
        self.versions[dataset.lower()] = max(version, self.versions.get(dataset.lower(), 0))
        self.schedule.advance(dataset.lower(), version, self._clock())

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def create_dataset(self, dataset: Dataset) -> None:
        await self.call(lambda: self.landing.create(dataset))
        await self.catalogue.put(dataset)
        await self.see(dataset.name)
        for name in list(self.broken):  # perhaps because this dataset was missing
            del self.broken[name]
            await self._open(self.catalogue.channels[name])

    async def create_feed(self, feed: Feed) -> None:
        await self.catalogue.put(feed)

    async def create_channel(self, channel: Channel) -> None:
        """A new channel, or one in place of another of its name."""
        async with self.turn:
            await self._create_channel(channel)

    async def _create_channel(self, channel: Channel) -> None:
        compiled = compile_channel(channel, self.catalogue.named())
        known = self.progress.channel(channel.name) or ChannelProgress()
        read = {
            name: known.read.get(name, self.versions.get(name, 0))
            for name in (each.dataset.lower() for each in compiled.template.reads if each.new)
        }
        self.progress.note_channel(channel.name, msgspec.structs.replace(known, read=read))
        await self.progress.write()
        channel = await self.catalogue.put(channel)
        await self._define(msgspec.structs.replace(compiled, channel=channel))

    async def change_channel(self, channel: Channel) -> None:
        """Another period, priority, or state of a channel whose query stays as it is."""
        channel = await self.catalogue.put(channel)
        self.broken.pop(channel.name.lower(), None)
        await self._open(channel)

    async def _define(self, compiled: Compiled) -> None:
        channel, reads = compiled.channel, compiled.template.reads
        name = channel.name.lower()
        self.catalogue.readers[name] = frozenset(each.dataset.lower() for each in reads)
        await self.call(lambda: self.engine.define(compiled))
        news = tuple(each.dataset.lower() for each in reads if each.new)
        known = self.progress.channel(name)
        plan = Plan(
            every_us=None if channel.every_s is None else int(channel.every_s * 1e6),
            waits_for=()
            if channel.every_s is not None
            else news or tuple(each.dataset.lower() for each in reads),
            paused=channel.paused,
            shape=compiled.template.id,
        )
        fresh = name not in self.schedule and known is not None
        self.schedule.define(
            name,
            plan,
            self._clock(),
            last_us=known.at_us or None if fresh and known else None,
            read=known.read if fresh and known else None,
        )
        self._wake()

    async def drop(self, definition: Definition) -> None:
        self.catalogue.check_unused(definition)
        async with self.turn:
            await self._drop(definition)

    async def _drop(self, definition: Definition) -> None:
        name = definition.name
        if isinstance(definition, Channel):
            self.schedule.drop(name.lower())
            await self.call(lambda: self.engine.drop(name))
            self.broken.pop(name.lower(), None)
            self.progress.forget_reading(name)
        if not isinstance(definition, Dataset):
            await self.catalogue.drop(definition)
            return
        await self._drop_rows(name)
        try:
            await self.catalogue.drop(definition)
        except StoreError:
            await self.call(lambda: self.landing.create(definition))
            raise

    async def _drop_rows(self, name: str) -> None:
        """Remove what a dataset holds. Its versions start again then, and nobody may go by the old ones: that is
        durable before. Killed behind it, the dataset is still defined, and empty.
        """
        self.progress.forget_dataset(name)
        if not await self.progress.write():
            raise StoreUnavailable(f"drop dataset {name}", "how far channels are cannot be stored")
        await self.call(lambda: self.landing.drop(name))
        self.versions.pop(name.lower(), None)
        self.schedule.forget(name.lower())

    def ask(self, channel: str) -> None:
        """Run a channel in the next tick."""
        if channel.lower() in self.schedule:
            self.schedule.ask(channel.lower())
            self._wake()

    # ── questions ───────────────────────────────────────────────────────────────────────────────────────────────

    def select(self, selection: Selection, limit: int) -> pa.Table:
        return self.engine.select(selection, self.catalogue.channels, self.results, limit)

    async def explain(self, channel: Channel) -> str:
        compiled = compile_channel(channel, self.catalogue.named())
        words = in_words(compiled)
        try:
            plan = await self.call(lambda: self.engine.explain(channel.name))
        except KeyError:
            plan = self.broken.get(channel.name.lower(), "")
        except Exception as error:  # Spark's
            plan = first_words(error)
        return f"{words}\n\n{plan}"

    def show(self, what: str) -> Answer:
        match what:
            case "datasets":
                names = ["dataset", "columns", "key", "version"]
                rows: Any = [
                    (
                        each.name,
                        len(each.columns),
                        ", ".join(each.key),
                        self.versions.get(each.name.lower(), 0),
                    )
                    for each in self.catalogue.datasets.values()
                ]
            case "feeds":
                names = ["feed", "dataset", "from"]
                rows = [
                    (each.name, each.dataset, source_words(each)) for each in self.catalogue.feeds.values()
                ]
            case _:
                names = ["channel", "runs", "subscriptions", "executions", "overruns", "failures", "error"]
                rows = [self._channel_row(each) for each in self.catalogue.channels.values()]
        return Answer(
            f"SHOW {what.upper()}",
            headings(names),
            tuple(sorted(rows)),
            message="" if rows else f"there are no {what} yet",
        )

    def _channel_row(self, channel: Channel) -> tuple[Any, ...]:
        figures = self.schedule.figures(channel.name.lower(), self._clock())
        every = "continuous" if channel.every_s is None else f"every {channel.every_s:g} s"
        known = self.progress.channel(channel.name) or ChannelProgress()
        return (
            channel.signature,
            "paused" if channel.paused else every,
            len(self.subscriptions.of(channel.name)),
            known.execution,
            figures.overruns if figures else 0,
            figures.failures if figures else 0,
            self.broken.get(channel.name.lower(), figures.error if figures else ""),
        )

    async def subscriptions_of(self, channel: Channel) -> Answer:
        return await self.call(lambda: self._subscriptions_of(channel))

    def _subscriptions_of(self, channel: Channel) -> Answer:
        held = self.subscriptions.of(channel.name)
        rows: list[tuple[Any, ...]] = []
        for k, each in held.items():
            if len(rows) == SHOWN_MAX:
                break
            rows.append((*each.values, k, ", ".join(each.brokers)))
        names = [*(each.name for each in channel.parameters), "k", "brokers"]
        fitting = [row for row in rows if len(row) == len(names)]
        return Answer(
            "SHOW SUBSCRIPTIONS",
            headings(names, **{each.name: each.type for each in channel.parameters}),
            tuple(fitting),
            more=len(held) > len(fitting),
        )


def source_words(feed: Feed) -> str:
    """A feed's source, for people."""
    facts = msgspec.to_builtins(feed.source)
    kind = facts.pop("from")
    return " ".join([kind, *map(str, facts.values())])
