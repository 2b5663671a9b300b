"""The loop between feeds, the schedule and ticks; without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

for package in ("pyspark", "deltalake", "sqlglot"):
    pytest.importorskip(package, reason="install the extra tocsin[spark]")

from tests.unit.pipeline.shops import PLACES, Workshop  # noqa: E402
from tocsin.errors import StorageUnusable  # noqa: E402
from tocsin.model.results import BackendSubscription, encode_subscription  # noqa: E402
from tocsin.pipeline import loop as module  # noqa: E402
from tocsin.pipeline.execution.runs import Done  # noqa: E402
from tocsin.pipeline.ingest.ingest import Ingest  # noqa: E402
from tocsin.pipeline.loop import Loop  # noqa: E402
from tocsin.pipeline.status import Figures, channel_status, dataset_status, feed_status  # noqa: E402
from tocsin.ports import Record  # noqa: E402

SCRIPT = """
CREATE DATASET Reports (n BIGINT NOT NULL);
CREATE FEED Wire INTO Reports FROM HTTP;
CREATE CHANNEL Good(least BIGINT) CONTINUOUS AS SELECT r.n FROM NEW Reports r WHERE r.n > :least;
CREATE CHANNEL Bad(least BIGINT) EVERY 1 SECONDS AS SELECT r.n FROM NEW Reports r WHERE r.n < :least;
"""


class FakeTicker:
    """Remembers who ran, with which versions; ``Bad`` fails."""

    def __init__(self) -> None:
        self.number = 0
        self.ran: list[tuple[tuple[str, ...], dict[str, int], int]] = []

    async def run(self, channels: Iterable[str], versions: Mapping[str, int], seen: int) -> tuple[Done, ...]:
        names = tuple(channels)
        self.number += 1
        self.ran.append((names, dict(versions), seen))
        return tuple(
            Done(
                name,
                1,
                {**versions, "results of good": self.number - 1},
                results=3,
                matched=2,
                took_us=1_500,
                error="it broke" if name == "bad" else "",
            )
            for name in names
        )


class Running:
    """A loop that runs, on a clock that is moved by hand."""

    def __init__(self, work: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work = work
        self.ticker = FakeTicker()
        self.figures = Figures()
        self.woken = asyncio.Event()
        self.warmed = 0
        self.tasks: list[asyncio.Task[Any]] = []
        monkeypatch.setattr(module, "RETRY_S", 0.0)

    async def start(self) -> None:
        work = self.work
        self.feeds = await work.store.log(PLACES.feeds)
        self.subscriptions = await work.store.table(PLACES.subscriptions)
        self.ingest = Ingest(
            work.definitions.landing,
            self.feeds,
            "net.feeds.>",
            batch=10,
            start=0,
            clock=self.clock,
            wake=self.woken.set,
        )
        self.loop = Loop(
            work.definitions,
            self.ticker,  # type: ignore[arg-type]
            self.ingest,
            self.figures,
            tick_s=0.0,
            clock=self.clock,
            woken=self.woken,
            warm_up=self._warm_up,
        )
        work._wake = self.woken.set  # type: ignore[method-assign]
        for each in (self.loop.watch(self.subscriptions), self.ingest.follow(), self.loop.run()):
            self.tasks.append(asyncio.create_task(each))

    def _warm_up(self) -> None:
        self.warmed += 1
        raise RuntimeError("it does not matter")

    def clock(self) -> int:
        return self.work.now

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.woken.set()
                await asyncio.sleep(0.001)

    def ran(self, name: str) -> int:
        return sum(name in names for names, _, _ in self.ticker.ran)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    work = Workshop(tmp_path)
    await work.open()
    assert (await work.run(SCRIPT)).error is None
    made = Running(work, monkeypatch)
    await made.start()
    yield made
    await made.stop()
    work.close()


async def test_new_feed_data_runs_channels_and_a_failing_one_is_held_back(running: Running) -> None:
    cell = BackendSubscription("Good", (1,), "x")
    revision = await running.subscriptions.put(cell.key, encode_subscription(cell))
    await running.until(lambda: len(running.work.definitions.subscriptions) == 1)
    await running.until(lambda: running.ran("bad") == 1)
    assert running.ran("good") == 0, "there is nothing new"
    await running.feeds.append([Record(PLACES.feed_subject("wire"), b'{"n":5}', "r1")])
    await running.until(lambda: running.ran("good") == 1)
    names, versions, seen = running.ticker.ran[-1]
    assert names == ("good",) and versions == {"reports": 1} and seen == revision
    assert running.work.progress.ingested == 1
    definitions, now = running.work.definitions, running.clock()
    bad = channel_status(definitions, running.figures, definitions.catalogue.channels["bad"], now)
    assert (bad.failures, bad.error) == (1, "it broke")
    good = channel_status(definitions, running.figures, definitions.catalogue.channels["good"], now)
    assert (good.subscriptions, good.results, good.matched, good.last_ms, good.error) == (1, 3, 2, 1.5, "")
    dataset = dataset_status(definitions, definitions.catalogue.datasets["reports"], 0)
    assert (dataset.rows, dataset.version, dataset.quarantined) == (1, 1, 0)
    feed = feed_status(definitions.catalogue.feeds["wire"], running.ingest, 4)
    assert (feed.records, feed.position, feed.lag, feed.source) == (1, 1, 3, "http")
    running.work.now += 2_000_000
    await running.until(lambda: running.ran("bad") == 2)
    assert running.ran("good") == 1


async def test_results_run_the_channels_that_read_them_in_the_next_tick(running: Running) -> None:
    over = "CREATE CHANNEL Over() CONTINUOUS AS SELECT r.n FROM NEW RESULTS OF Good r"
    assert (await running.work.run(over)).error is None
    await running.until(lambda: running.ran("bad") == 1)
    assert running.ran("over") == 0, "there are no results yet"
    await running.feeds.append([Record(PLACES.feed_subject("wire"), b'{"n":5}', "r1")])
    await running.until(lambda: running.ran("over") == 1)
    ticks = [names for names, _, _ in running.ticker.ran]
    assert ticks[-2:] == [("good",), ("over",)]


async def test_the_idle_loop_warms_up_once_and_not_after_a_tick(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.until(lambda: running.ran("bad") == 1)
    assert running.warmed == 0, "there was something to do"
    await running.stop()
    idle = Running(running.work, monkeypatch)
    for name in ("good", "bad"):
        running.work.definitions.schedule.drop(name)
    await idle.start()
    await idle.until(lambda: idle.warmed == 1)
    for _ in range(20):
        idle.woken.set()
        await asyncio.sleep(0)
    assert idle.warmed == 1 and idle.ticker.ran == []
    await idle.stop()


async def test_a_storage_that_refuses_is_tried_again_and_channels_go_on(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = running.ingest.land
    refused = 0

    def land(*arguments: Any) -> Any:
        nonlocal refused
        refused += 1
        if refused < 4:
            raise StorageUnusable("append", "no room")
        return real(*arguments)

    monkeypatch.setattr(running.ingest, "land", land)
    await running.feeds.append([Record(PLACES.feed_subject("wire"), b'{"n":5}', "r1")])
    await running.until(lambda: running.ran("good") == 1)
    assert refused >= 4 and running.ran("bad") == 1
    assert running.work.definitions.landing.data.version("Reports") == 1
