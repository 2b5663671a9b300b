"""The feeder process: an agent for each feed that is defined, the HTTP endpoint, and how they are.

Definitions are watched. A new feed gets an agent, a dropped feed loses its agent and its cell, and a feed that was
dropped and created again starts from the beginning. An agent that fails is made again after a while
(``feeds.retrying``), shows its error, and concerns no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from tocsin.client.address import Server
from tocsin.config import Settings
from tocsin.errors import FormatNewer, OperatorError, StoreError, TocsinError
from tocsin.feeds.agents.agent import Agent, Work, together
from tocsin.feeds.agents.folder import FolderAgent
from tocsin.feeds.agents.kafka import KafkaAgent
from tocsin.feeds.agents.live import LiveSubscriber
from tocsin.feeds.agents.messages import MessageAgent
from tocsin.feeds.filling import Filling
from tocsin.feeds.http.endpoint import HttpEndpoint
from tocsin.feeds.metrics import served
from tocsin.feeds.outlet import FeedWriter
from tocsin.feeds.retrying import Retrying
from tocsin.feeds.status import FeedCounts, FeedStatus, Status, source_words
from tocsin.model.catalogue import (
    Dataset,
    Feed,
    FolderSource,
    HttpSource,
    KafkaSource,
    decode_definition,
)
from tocsin.model.channel_names import ChannelNames
from tocsin.model.feeding import PREFIX, REQUESTS_CELL, cell_key, status_subject, table_spec
from tocsin.model.questions import ASK, FEEDER
from tocsin.model.subjects import messages_log
from tocsin.model.versions import UNREADABLE
from tocsin.ports import BusMessage, Change, Log, Store, Table
from tocsin.runtime.network.directory import BrokerAddress, read_network
from tocsin.runtime.process import Process
from tocsin.runtime.security.files import Guard
from tocsin.runtime.security.folders import Folders
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.process_lease import ProcessLease

REPORT_S: Final = 1.0
LEAVE_S: Final = 2.0  # to write down how far feeds are; it is no loss if that is not done
LAG_S: Final = 2.0  # for a source to say what it has
FEEDS_MAX: Final = 1_000  # of which each has a task, and most a connection

Make = Callable[[Work], Agent]


class HttpAgent:
    """A feed whose records come by themselves, through the endpoint."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def lag(self) -> int:
        return 0


class Running:
    """One feed, with its agent of the moment."""

    def __init__(
        self,
        feed: Feed,
        counts: FeedCounts,
        outlet: Callable[[], FeedWriter],
        dataset: Callable[[], Dataset | None],
        make: Make,
    ) -> None:
        self.feed = feed
        self.counts = counts
        self.state = "running"
        self._outlet = outlet
        self._dataset = dataset
        self._make = make
        self.work = self._new_work()
        self._agent: Agent | None = None
        self._task = asyncio.create_task(self._run(), name=f"feed {feed.name}")

    def _new_work(self) -> Work:
        return Work(self.feed, self._outlet(), self.counts, self._dataset)

    async def _run(self) -> None:
        retrying, loop, log = Retrying(), asyncio.get_running_loop(), structlog.get_logger()
        while True:
            began = loop.time()
            try:
                self.state = "running"
                self._agent = self._make(self.work)
                await self._agent.run()
                self.counts.error = "the agent ended by itself"
            except TocsinError as error:
                self.counts.error = str(error)
            except Exception as error:  # a bug of ours, or of a library's: this feed's alone
                self.counts.error = f"{type(error).__name__}: {error}"
                log.error("a feed failed in a way that it should not", feed=self.feed.name, exc_info=True)
            self.state = "waiting"
            pause_s = retrying.failed(loop.time() - began)
            self.counts.failures = retrying.failures
            log.warning("a feed failed", feed=self.feed.name, problem=self.counts.error, again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            self.work = self._new_work()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(TocsinError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self.work.outlet.settle()

    async def status(self) -> FeedStatus:
        counts, lag = self.counts, -1
        if self._agent is not None and self.state == "running":
            with contextlib.suppress(TocsinError, TimeoutError):
                async with asyncio.timeout(LAG_S):
                    lag = await self._agent.lag()
        return FeedStatus(
            name=self.feed.name,
            source=source_words(self.feed),
            state=self.state,
            records=counts.records,
            bytes=counts.bytes,
            live=counts.live,
            dropped=counts.dropped,
            missed=counts.missed,
            files=counts.files,
            failed_files=counts.failed_files,
            position=max(self.work.outlet.marks.values(), default=0),
            lag=lag,
            failures=counts.failures,
            error=counts.error or counts.live_error,
        )


class Feeder:
    """All feeds of a network."""

    def __init__(
        self,
        settings: Settings,
        places: ChannelNames,
        *,
        feeds: Log,
        messages: Log,
        cells: Table,
        brokers: Sequence[Server],
    ) -> None:
        self._settings = settings
        self._places = places
        self._feeds = feeds
        self._messages = messages
        self._cells = cells
        self._brokers = tuple(brokers)
        self._defined: dict[str, Feed] = {}
        self._datasets: dict[str, Dataset] = {}
        self._known = False  # whether the definitions are all that there are
        self._ready = asyncio.Event()  # whether they ever were
        self._log = structlog.get_logger()
        self.running: dict[str, Running] = {}

    def find(self, name: str) -> Work | None:
        """A feed that runs, by its name, for the endpoint."""
        found = self.running.get(name.lower())
        return None if found is None else found.work

    async def follow(self, catalogue: Table) -> None:
        """Keep to the definitions, for ever."""
        async for change in catalogue.watch():
            self._apply(change)
            if self._known:
                await self._keep_to()

    def _apply(self, change: Change) -> None:
        match change.kind:
            case "reset":
                self._known = False
                self._defined.clear()
                self._datasets.clear()
            case "ready":
                self._known = True
                self._ready.set()
            case "delete":
                kind, _, name = change.key.partition(".")
                if kind == "feed":
                    self._defined.pop(name, None)
                elif kind == "dataset":
                    self._datasets.pop(name, None)
            case "put":
                try:
                    found = decode_definition(change.value)
                except UNREADABLE as error:
                    self._log.error("a definition cannot be read", key=change.key, problem=str(error))
                    if isinstance(
                        error, FormatNewer
                    ):  # what was known by that name is no longer what is defined
                        self._defined.pop(change.key.partition(".")[2], None)
                    return
                if isinstance(found, Feed):
                    self._defined[found.name.lower()] = found
                elif isinstance(found, Dataset):
                    self._datasets[found.name.lower()] = found

    async def _keep_to(self) -> None:
        """Run what is defined, and nothing else."""
        for name, running in list(self.running.items()):
            if self._defined.get(name) != running.feed:
                del self.running[name]
                await running.stop()
                self._log.info("a feed ended", feed=running.feed.name)
                if name not in self._defined:
                    await self._forget(cell_key(name))
        for name, feed in self._defined.items():
            if name in self.running:
                continue
            if len(self.running) >= FEEDS_MAX:
                self._log.error("too many feeds; this feed is not run", feed=feed.name, most=FEEDS_MAX)
                continue
            self.running[name] = self._start(feed)
            self._log.info("a feed began", feed=feed.name, source=source_words(feed))

    async def sweep(self) -> None:
        """Forget cells of feeds that were dropped while no feeder ran."""
        await self._ready.wait()
        for key in await self._cells.keys(PREFIX):
            if key != REQUESTS_CELL and key.removeprefix(PREFIX) not in self._defined:
                await self._forget(key)

    async def _forget(self, key: str) -> None:
        with contextlib.suppress(StoreError):  # the next feeder that starts will
            await self._cells.delete(key)

    def _start(self, feed: Feed) -> Running:
        counts = FeedCounts()

        def dataset() -> Dataset | None:
            return self._datasets.get(feed.dataset.lower())

        def make(work: Work) -> Agent:
            return self._agent(work)

        return Running(
            feed, counts, lambda: FeedWriter(feed, self._feeds, self._cells, self._places), dataset, make
        )

    def _agent(self, work: Work) -> Agent:
        chosen = self._settings.feeds
        match work.feed.source:
            case HttpSource():
                return HttpAgent()
            case FolderSource():
                folders = Folders(chosen.folders, self._settings.state)
                return FolderAgent(work, poll_s=chosen.folder_poll_s, folders=folders)
            case KafkaSource():
                return KafkaAgent(work)
            case _:
                live = None
                if self._brokers:
                    live = LiveSubscriber(
                        work.feed,
                        self._brokers,
                        work.counts,
                        username=chosen.username,
                        password=chosen.password,
                        authorities=chosen.broker_ca,
                        with_metadata=Filling(work.dataset()).wants_metadata,
                    )
                return MessageAgent(
                    work, self._messages, self._settings.network, live_max=chosen.live_max, live=live
                )

    async def stop(self) -> None:
        await asyncio.gather(*(each.stop() for each in self.running.values()))
        self.running.clear()

    async def status(self, http: str) -> Status:
        found = await asyncio.gather(*(each.status() for each in self.running.values()))
        return Status(tuple(sorted(found, key=lambda each: each.name)), http)


def brokers_of(settings: Settings) -> tuple[Server, ...]:
    """Where QoS 0 messages are heard: brokers whose ports are known, from the settings or from the state directory."""
    known = [BrokerAddress.of(each) for each in settings.brokers]
    found = [server for each in known if (server := _way_in(each)) is not None]
    if found:
        return tuple(found)
    with contextlib.suppress(OperatorError):
        network = read_network(Path(settings.state))
        servers = map(_way_in, network.brokers) if network else ()
        return tuple(each for each in servers if each is not None)
    return ()


def _way_in(broker: BrokerAddress) -> Server | None:
    """In plain if that is possible, else over TLS; None while the port is still to be chosen."""
    entrances = {scheme: entrance for scheme, entrance in broker.entrances().items() if entrance[1] > 0}
    scheme = next((each for each in ("mqtt", "ws", "mqtts", "wss") if each in entrances), None)
    return None if scheme is None else Server(*entrances[scheme], scheme)


async def serve(process: Process) -> None:
    """Run the feeder until the process is asked to stop."""
    settings = process.settings
    process.report("starting")
    guard = Guard(settings)
    store = await JetStreamStore.open(
        settings.nats, "feeder", name=process.name, shares=settings.shares.by_name(settings.network)
    )
    try:
        cells = await store.table(table_spec(settings.network))
        lease = ProcessLease(cells, secrets.token_hex(8), "feeder")
        taking = asyncio.create_task(
            lease.acquire(
                lambda holder: process.report("starting", problem=f"waits for the feeder at {holder}")
            )
        )
        stopped = asyncio.create_task(process.stopped())
        await asyncio.wait((taking, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not taking.done():
            taking.cancel()
            return
        taking.result()
        try:
            await _serve(process, guard, store, cells, lease)
        finally:
            await lease.release()
    finally:
        guard.close()
        await store.close()


async def _serve(process: Process, guard: Guard, store: Store, cells: Table, lease: ProcessLease) -> None:
    settings = process.settings
    places = ChannelNames(settings.network)
    feeds = await store.log(places.feeds)
    kept = settings.messages
    feeder = Feeder(
        settings,
        places,
        feeds=feeds,
        messages=await store.log(messages_log(settings.network, kept.keep_s, kept.keep_bytes)),
        cells=cells,
        brokers=brokers_of(settings),
    )
    catalogue = await store.table(places.catalogue)
    endpoint = HttpEndpoint(settings.feeds, guard, places, feeds, cells, feeder.find)
    await endpoint.open()

    async def answer(delivery: BusMessage) -> bytes:
        try:
            ASK.read(delivery.payload or b"{}")
        except UNREADABLE as error:
            return FEEDER.write({"error": str(error)})
        return FEEDER.write(await status())

    async def sweep() -> None:
        await feeder.sweep()
        await asyncio.Event().wait()

    async def status() -> Status:
        return await feeder.status(" ".join(endpoint.addresses))

    chosen = settings.feeds
    try:
        async with (
            store.bus.serve(status_subject(settings.network), answer),
            served(chosen.metrics_host, chosen.metrics_port, status) as metrics,
        ):
            await together(
                process.stopped(),
                feeder.follow(catalogue),
                sweep(),
                lease.keep(),
                endpoint.keep(),
                endpoint.ending.wait(),
                guard.watch(lambda changed: None),
                _report(process, feeder, endpoint, metrics),
            )
        process.report("stopping")
    finally:
        await endpoint.close()
        await feeder.stop()


async def _report(process: Process, feeder: Feeder, endpoint: HttpEndpoint, metrics: str) -> None:
    while True:
        failing = [each for each in feeder.running.values() if each.counts.error]
        facts = {
            "http": " ".join(endpoint.addresses),
            "metrics": metrics,
            "feeds": len(feeder.running),
            "failing": len(failing),
            "records": sum(each.counts.records for each in feeder.running.values()),
        }
        if failing:
            problem = f"feed {failing[0].feed.name}: {failing[0].counts.error}"
            process.report("degraded", problem=problem, **facts)
        else:
            process.report("ready", **facts)
        await asyncio.sleep(REPORT_S)
