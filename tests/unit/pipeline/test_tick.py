"""A tick and what a restart finds of it, wherever it was killed; without Spark, on a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="install the extra tocsin[spark]")

from tocsin.errors import StorageUnusable, StoreUnavailable  # noqa: E402
from tocsin.model.channel_names import ChannelNames  # noqa: E402
from tocsin.model.results import Notice, decode_notice  # noqa: E402
from tocsin.pipeline import tick as module  # noqa: E402
from tocsin.pipeline.execution.runs import Done, Due, Run  # noqa: E402
from tocsin.pipeline.ingest.progress import Progress  # noqa: E402
from tocsin.pipeline.language.tree.resolution import Read  # noqa: E402
from tocsin.pipeline.storage.parts import IN, TaskOutput, parts_of, write_part  # noqa: E402
from tocsin.pipeline.storage.results import ResultsStore  # noqa: E402
from tocsin.pipeline.tick import Overtaken, Ticker  # noqa: E402
from tocsin.results.reader import ResultsReader  # noqa: E402
from tocsin.runtime.faults import kill_points as points  # noqa: E402
from tocsin.store.memory.store import MemoryServer, MemoryStore  # noqa: E402

PLACES = ChannelNames("net")


class Killed(BaseException):
    """In place of SIGKILL."""


class FakeEngine:
    """Every execution has one result for broker x, which says what it had read; ``failing`` ones fail."""

    def __init__(self, root: Path, run: str) -> None:
        self.root = root
        self.run = run
        self.failing: set[str] = set()
        self.silent: set[str] = set()
        self.version = 1
        self.attempts = 0

    def reads(self, name: str) -> list[Read]:
        return [Read("Reports", new=True)]

    def payload(self, due: Due) -> str:
        return f"{due.channel} {due.execution}: {due.since['reports']}–{self.version}"

    def read(self, due: Due) -> dict[str, int]:
        return {"reports": self.version}

    def execute(self, due: list[Due], *, tick: int, at_us: int) -> Run:
        self.attempts += 1  # as a task's number, which Spark never gives twice
        done, rows = [], []
        for each in due:
            if each.channel in self.failing:
                done.append(Done(each.channel, each.execution, each.since, error="it broke"))
                continue
            count = 0 if each.channel in self.silent else 1
            done.append(Done(each.channel, each.execution, self.read(each), results=count))
            if count:
                rows.append((each.channel, each.execution, "k" * 24, ["x"], 0, self.payload(each), None))
        columns = zip(*rows, strict=True) if rows else [[]] * 7
        batch = pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, IN, strict=True)], schema=IN)
        place = TaskOutput(str(self.root), tick, self.run, at_us)
        return Run(tuple(done), tuple(parts_of([write_part(place, 0, self.attempts, [batch])])))


class World:
    """What survives a kill: the storage and the store."""

    def __init__(self, root: Path, engine: type[FakeEngine] = FakeEngine) -> None:
        self.root = root
        self.engine = engine
        self.server = MemoryServer()
        self.threads = ThreadPoolExecutor(1)
        self.runs = 0
        self.now = 1_000_000

    async def start(self) -> tuple[Ticker, FakeEngine, Progress]:
        self.runs += 1
        store = MemoryStore(self.server)
        progress = Progress(await store.table(PLACES.progress))
        await progress.load()
        results = ResultsStore(self.root)
        engine = self.engine(self.root, f"run{self.runs}")
        ticker = Ticker(
            engine,  # type: ignore[arg-type]
            results,
            await store.log(PLACES.notices),
            PLACES.notices_subject,
            progress,
            self.threads,
            run=engine.run,
            clock=self.clock,
        )
        await ticker.recover()
        return ticker, engine, progress

    def clock(self) -> int:
        self.now += 1
        return self.now

    async def notices(self) -> list[Notice]:
        log = await MemoryStore(self.server).log(PLACES.notices)
        return [decode_notice(each.payload) for each in (await log.read(PLACES.notices_subject, 0)).entries]

    async def told(self) -> list[str]:
        reader = ResultsReader(self.root)
        return [each.payload.decode() for notice in await self.notices() for each in reader.read(notice, "x")]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "results")
    yield made
    made.threads.shutdown()


async def test_a_tick_is_committed_told_and_written_down(world: World) -> None:
    ticker, engine, progress = await world.start()
    done = await ticker.run(["near", "far"], {"reports": 0}, seen=17)
    assert [(each.channel, each.error) for each in done] == [("near", ""), ("far", "")]
    (notice,) = await world.notices()
    assert (notice.tick, notice.rows, notice.seen, notice.id) == (1, 2, 17, "tick-1-0")
    assert {(each.channel, each.number, each.results) for each in notice.executions} == {
        ("near", 1, 1),
        ("far", 1, 1),
    }
    assert progress.tick == 1 and progress.channels["near"].read == {"reports": 1}
    engine.version = 4
    await ticker.run(["near"], {}, seen=18)
    assert await world.told() == ["near 1: 0–1", "far 1: 0–1", "near 2: 1–4"]


async def test_a_tick_without_results_tells_nobody_and_is_no_tick(world: World) -> None:
    ticker, engine, _ = await world.start()
    engine.silent = {"near"}
    await ticker.run(["near"], {"reports": 0}, seen=0)
    assert ticker.number == 0 and await world.notices() == []
    engine.version = 2
    engine.silent = set()
    await ticker.run(["near"], {"reports": 0}, seen=0)
    assert await world.told() == ["near 2: 1–2"], "what it had read is remembered all the same"


async def test_what_fails_reads_the_same_again(world: World) -> None:
    ticker, engine, _ = await world.start()
    engine.failing = {"near"}
    (first, second) = await ticker.run(["near", "far"], {"reports": 0}, seen=0)
    assert (first.error, second.error) == ("it broke", "")
    engine.failing = set()
    engine.version = 9
    await ticker.run(["near"], {"reports": 5}, seen=0)
    assert await world.told() == ["far 1: 0–1", "near 1: 5–9"]


@pytest.mark.parametrize("point", [points.BEFORE_COMMIT, points.AFTER_COMMIT, points.AFTER_NOTICE])
@pytest.mark.parametrize("again", [1, 2])
async def test_killed_anywhere_each_result_is_there_and_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, again: int
) -> None:
    ticker, engine, _ = await world.start()
    await ticker.run(["near", "far"], {"reports": 0}, seen=0)

    def reach(where: str) -> None:
        if where == point:
            raise Killed

    for _ in range(again):
        engine.version += 1
        monkeypatch.setattr(points, "reach", reach)
        with pytest.raises(Killed):
            await ticker.run(["near"], {"reports": 0}, seen=0)
        monkeypatch.undo()
        version = engine.version
        ticker, engine, progress = await world.start()
        engine.version = version
    await ticker.run(["near"], {"reports": 0}, seen=0)
    told = await world.told()
    assert len(set(told)) == len(told)
    ranges = [each.partition(": ")[2].split("–") for each in told if each.startswith("near")]
    assert [start for start, _ in ranges] == ["0", *(end for _, end in ranges[:-1])], (
        "nothing is missing between them"
    )
    assert ranges[-1][1] == str(version)
    numbers = [notice.tick for notice in await world.notices()]
    assert numbers == sorted(set(numbers))
    committed = ResultsStore(world.root).committed()
    assert committed is not None and committed.tick == numbers[-1] == progress.tick


async def test_a_notice_with_an_unanswered_append_is_not_told_twice(world: World) -> None:
    ticker, _, _ = await world.start()
    log: Any = ticker._notices
    real = log.append
    calls = 0

    async def append(records: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        positions = await real(records, **options)
        if calls == 1:
            raise StoreUnavailable("append", "the answer was lost")
        return positions

    log.append = append
    module_retry, module.RETRY_S = module.RETRY_S, 0.0  # type: ignore[misc]
    try:
        await ticker.run(["near"], {"reports": 0}, seen=0)
    finally:
        module.RETRY_S = module_retry  # type: ignore[misc]
    assert calls == 2 and await world.told() == ["near 1: 0–1"]


async def test_two_pipelines_on_one_storage_do_not_both_go_on(world: World) -> None:
    first, _, _ = await world.start()
    second, _, _ = await world.start()
    await first.run(["near"], {"reports": 0}, seen=0)
    with pytest.raises(Overtaken, match="tick 1 was committed by another pipeline"):
        await second.run(["near"], {"reports": 0}, seen=0)
    assert await world.told() == ["near 1: 0–1"]


async def test_a_storage_that_refuses_fails_the_channels_and_not_the_pipeline(world: World) -> None:
    ticker, _, progress = await world.start()
    results: Any = ticker._results
    real = results.commit

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise StorageUnusable("commit", "no room")

    results.commit = refuse
    (done,) = await ticker.run(["near"], {"reports": 0}, seen=0)
    assert "no room" in done.error and progress.channels == {}
    results.commit = real
    await ticker.run(["near"], {"reports": 0}, seen=0)
    assert await world.told() == ["near 1: 0–1"]


async def test_a_commit_whose_flush_failed_counts_if_it_is_there(world: World) -> None:
    ticker, _, _ = await world.start()
    results: Any = ticker._results
    real: Callable[..., Any] = results.commit

    def commit(*arguments: Any, **options: Any) -> Any:
        real(*arguments, **options)
        raise StorageUnusable("flush", "the disk is slow")

    results.commit = commit
    (done,) = await ticker.run(["near"], {"reports": 0}, seen=0)
    assert done.error == ""
    results.commit = real
    await ticker.run(["near"], {"reports": 0}, seen=0)
    assert await world.told() == ["near 1: 0–1", "near 2: 1–1"]
