"""Where the fixed cost of an execution goes, whatever there is to do.

A small channel is executed with a stop-watch around each part. Other jobs tell the parts of a job apart: one that
does nothing, and one that passes nothing through Python. The files are written once more in this process, with and
without flushing. The rest of the job is the query itself.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pyarrow as pa

from bench.channels import workloads as w
from bench.channels.figures import Cost
from bench.channels.stage import BROKERS, Stage, now_us, opened
from bench.load.figures import Spread, spread
from tocsin.model.results import k_of
from tocsin.pipeline.execution.engine import Engine
from tocsin.pipeline.execution.subscription_tables import Holders
from tocsin.pipeline.execution.views import Views
from tocsin.pipeline.execution.writer import Running, Writer
from tocsin.pipeline.ingest.progress import Progress
from tocsin.pipeline.spark.session import Spark
from tocsin.pipeline.storage import parts
from tocsin.pipeline.storage.parts import TaskOutput
from tocsin.pipeline.storage.results import ResultsStore
from tocsin.pipeline.tick import Ticker

SUBSCRIPTIONS: Final = 10_000
PUBLICATIONS: Final = 1_000  # and as many results


class Watches:
    """Seconds by name, turn by turn."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}

    def note(self, name: str, seconds: float) -> None:
        self.taken.setdefault(name, []).append(seconds)

    def around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                self.note(name, time.perf_counter() - began)

        return timed

    def around_async(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        async def timed(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return await work(*arguments, **named)
            finally:
                self.note(name, time.perf_counter() - began)

        return timed

    def planned(self, collect: Callable[..., Any]) -> Callable[..., Any]:
        """Spark plans before the job, and not when the rows are asked for: so that the two can be told apart."""

        def timed(engine: Engine, frame: Any, name: str) -> Any:
            began = time.perf_counter()
            frame._jdf.queryExecution().executedPlan()
            self.note("planning", time.perf_counter() - began)
            return self.around("job", collect)(engine, frame, name)

        return timed


async def measure(spark: Spark, directory: Path, warm: int, turns: int) -> list[Cost]:
    watches = Watches()
    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (Views, "results", watches.around("views", Views.results)),
        (Engine, "_collect", watches.planned(Engine._collect)),
        (ResultsStore, "commit", watches.around("commit", ResultsStore.commit)),
        (Ticker, "_tell", watches.around_async("notice", Ticker._tell)),
        (Progress, "write", watches.around_async("progress", Progress.write)),
    ]
    async with opened(directory, spark, "costs") as stage:
        stage.create(w.EQUALITY.dataset)
        stage.define(w.EQUALITY.channel)
        stage.hold(w.EQUALITY.channel, (w.EQUALITY.values(i) for i in range(SUBSCRIPTIONS)))
        await stage.call(stage.engine.fold)
        with _replaced(replaced):
            for turn in range(warm + turns):
                if turn == warm:
                    watches.taken.clear()
                await _turn(stage, watches)
        _write_again(watches, directory / "again", turns)
    return _told_apart(watches.taken)


class _replaced:
    """Methods with a stop-watch, for a while."""

    def __init__(self, methods: list[tuple[Any, str, Callable[..., Any]]]) -> None:
        self._patches = [mock.patch.object(*each) for each in methods]

    def __enter__(self) -> None:
        for each in self._patches:
            each.start()

    def __exit__(self, *_: object) -> None:
        for each in self._patches:
            each.stop()


async def _turn(stage: Stage, watches: Watches) -> None:
    rows = w.EQUALITY.publications(stage.chance, PUBLICATIONS)
    await stage.call(stage.append, w.EQUALITY.dataset, rows)
    turn = await stage.run(w.EQUALITY.channel)
    watches.note("whole", turn.seconds)
    session, cores = stage.spark.session, len(os.sched_getaffinity(0))
    nothing = session.range(0, cores, 1, cores)

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        if not gc.get_freeze_count():  # as the writer does
            gc.collect()
            gc.freeze()
        yield from batches

    watches.around("empty", nothing.toArrow)()
    watches.around("empty Python", nothing.mapInArrow(through, "id BIGINT").toArrow)()


def _write_again(watches: Watches, root: Path, turns: int) -> None:
    """Write the output of one of two tasks in this process, with and without flushing."""
    half = PUBLICATIONS // 2
    batch = pa.record_batch(
        {
            "_channel": pa.repeat("c", half),
            "_k": [f"{k_of('c', (i,))}.{i % 2}.{{}}" for i in range(half)],
            "_rank": pa.nulls(half, pa.int64()),
            "_priority": pa.nulls(half, pa.int32()),
            "payload": pa.repeat(f'{{"id": 1, "about": "topic-1", "text": "{w.TEXT}"}}', half),
        }
    )
    holders = Holders(tuple((broker,) for broker in BROKERS), {})

    def write(attempt: int) -> None:
        place = TaskOutput(str(root), 1, "again", now_us())
        Writer(place, 0, {"c": Running("C", 1, 3)}, holders).write([batch], 0, attempt)

    for attempt in range(2 * turns):
        if attempt % 2:
            with mock.patch.object(parts, "_sync_all"), mock.patch.object(parts, "sync_directory"):
                watches.around("write", write)(attempt)
        else:
            watches.around("write and flush", write)(attempt)


def _told_apart(taken: dict[str, list[float]]) -> list[Cost]:
    def of(name: str) -> list[float]:
        return [each * 1e3 for each in taken[name]]

    def less(name: str, *others: str) -> Spread:
        """The time of a part beyond others, by medians; the spread is the part's own."""
        rest = sum(statistics.median(of(other)) for other in others)
        return spread(max(each - rest, 0.0) for each in of(name))

    known = ("views", "planning", "job", "commit", "notice", "progress")
    rows: Iterable[tuple[str, Spread]] = (
        ("snapshot, views, analysis of the query", spread(of("views"))),
        ("planning", spread(of("planning"))),
        ("a job of Spark's, if it does nothing", spread(of("empty"))),
        ("Python workers, if they do nothing", less("empty Python", "empty")),
        ("the query: join, JSON, to Python", less("job", "empty Python", "write and flush")),
        ("writing files", spread(of("write"))),
        ("flushing them", less("write and flush", "write")),
        ("commit", spread(of("commit"))),
        ("notice", spread(of("notice"))),
        ("progress", spread(of("progress"))),
        ("the rest: threads, grouping, holders", less("whole", *known)),
        ("the whole execution", spread(of("whole"))),
    )
    return [Cost(part, ms) for part, ms in rows]
