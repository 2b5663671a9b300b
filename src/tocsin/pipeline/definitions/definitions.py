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
from tocsin.pipeline.language.tree.resolution import Read, is_results_key, results_key
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
        await self._hold_for_readers()

    async def _open(self, channel: Channel) -> None:
        try:
            compiled = self.compile(channel)
        except TocsinError as error:
            # It was checked when it was made: a newer version of ours sees it otherwise.
            self.broken[channel.name.lower()] = str(error)
            self._log.error("a channel cannot be run", channel=channel.name, problem=str(error))
            return
        await self._define(compiled)

    def compile(self, channel: Channel) -> Compiled:
        """A channel's plan, as things are defined now."""
        return compile_channel(
            channel, self.catalogue.named(), channels=tuple(self.catalogue.channels.values())
        )

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
        await self._open_broken()

    async def _open_broken(self) -> None:
        """Try channels again that cannot be run: perhaps because what is there now was missing."""
        for name in list(self.broken):
            del self.broken[name]
            await self._open(self.catalogue.channels[name])

    async def create_feed(self, feed: Feed) -> None:
        await self.catalogue.put(feed)

    async def create_channel(self, channel: Channel) -> None:
        """A new channel, or one in place of another of its name."""
        async with self.turn:
            await self._create_channel(channel)

    async def _create_channel(self, channel: Channel) -> None:
        compiled = self.compile(channel)
        known = self.progress.channel(channel.name) or ChannelProgress()
        read = {
            each.key: known.read.get(each.key, self._position(each))
            for each in compiled.template.reads
            if each.new
        }
        self.progress.note_channel(channel.name, msgspec.structs.replace(known, read=read))
        await self.progress.write()
        channel = await self.catalogue.put(channel)
        self.broken.pop(channel.name.lower(), None)
        await self._define(msgspec.structs.replace(compiled, channel=channel))
        for reader in self.catalogue.readers_of(results_key(channel.name)):
            await self._open(reader)  # its results may have other columns beside those that are read
        await self._open_broken()
        await self._hold_for_readers()

    async def _hold_for_readers(self) -> None:
        """Have results of channels without parameters that others read, also while nobody subscribes to them."""
        read = frozenset[str]().union(*self.catalogue.readers.values())
        names = [
            name
            for name, channel in self.catalogue.channels.items()
            if not channel.parameters and results_key(name) in read
        ]
        await self.call(lambda: self.subscriptions.hold_for_readers(names))

    def _position(self, read: Read) -> int:
        """The newest that there is of what a channel reads; of results it is a tick, whatever channels ran in it."""
        return self.progress.tick if read.results else self.versions.get(read.key, 0)

    async def change_channel(self, channel: Channel) -> None:
        """Another period, priority, or state of a channel whose query stays as it is."""
        channel = await self.catalogue.put(channel)
        self.broken.pop(channel.name.lower(), None)
        await self._open(channel)

    async def _define(self, compiled: Compiled) -> None:
        channel, reads = compiled.channel, compiled.template.reads
        name = channel.name.lower()
        self.catalogue.readers[name] = frozenset(each.key for each in reads)
        await self.call(lambda: self.engine.define(compiled))
        for each in reads:
            if each.results:  # nobody knows in which tick there were some: its readers look once
                self.schedule.advance(each.key, self.progress.tick, self._clock())
        news = tuple(each.key for each in reads if each.new)
        known = self.progress.channel(name)
        plan = Plan(
            every_us=None if channel.every_s is None else int(channel.every_s * 1e6),
            waits_for=() if channel.every_s is not None else news or tuple(each.key for each in reads),
            after=tuple(each.name.lower() for each in reads if each.results),
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

    def unread_tick(self) -> int | None:
        """The first tick with results that a channel is yet to read; None: none is.

        Channels that are paused, fail or cannot be run are not waited for.
        """
        ticks = [
            tick + 1
            for name, channel in self.catalogue.channels.items()
            if not channel.paused and name not in self.broken and not self._fails(name)
            for key, tick in (self.progress.channel(name) or ChannelProgress()).read.items()
            if is_results_key(key)
        ]
        return min(ticks, default=None)

    def _fails(self, channel: str) -> bool:
        figures = self.schedule.figures(channel, self._clock())
        return figures is not None and figures.failures > 0

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
            await self._hold_for_readers()
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
        return self.engine.select(selection, limit)

    async def explain(self, channel: Channel) -> str:
        words = in_words(self.compile(channel))
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
