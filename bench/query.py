"""The cost of a change of metadata against many standing queries, and of a new query against many streams.

Beside ``QueryIndex`` stand two peers that do without: one asks every query, one those that mention a changed key (the
table of the CQBS paper). Beside ``StreamIndex``, asking about every stream. Answers are compared before anything is
timed. For each: the median processor time over several changes or queries, and the law by which it grows, the slope
of time over number, both logarithmic. 0 is flat, 1 is linear.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import psutil
from rich.console import Console
from rich.table import Table as Grid

from bench.matching.figures import Memory, Point, Report, growth_of
from bench.matching.peers import KeyTable, Turned, ask_all, ask_each
from bench.matching.plot import plot
from bench.matching.workloads import WORKLOADS, Workload
from tocsin.query import Metadata, Query, QueryIndex, StreamIndex

RESULTS: Final = Path(__file__).parent / "results"
CONSOLE: Final = Console(width=130)
TARGET_US: Final = 1_000.0  # for a change that turns a hundred of the most queries
TARGET_OF: Final = "building"


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    sizes: tuple[int, ...]
    turns: int  # changes or queries to time, unless the time below is over
    index_s: float
    peer_s: float


FULL: Final = Plan((1_000, 10_000, 100_000, 1_000_000), 201, 10.0, 3.0)
QUICK: Final = Plan((1_000, 10_000), 51, 0.5, 0.2)


def measure_changes(workload: Workload, plan: Plan) -> tuple[list[Point], Memory]:
    """Against ever more standing queries."""
    index: QueryIndex[int] = QueryIndex()
    table = KeyTable()
    queries: dict[int, Query] = {}
    points: list[Point] = []
    own = indexed = 0
    add_s = 0.0
    for size in plan.sizes:
        held_by_now = _resident()
        queries |= {i: workload.query(i) for i in range(len(queries), size)}
        own += _resident() - held_by_now
        held_by_now = _resident()
        begin = time.thread_time()
        for i in range(len(index), size):
            index.add(i, queries[i])
        add_s += time.thread_time() - begin
        indexed += _resident() - held_by_now
        for i in range(points[-1].size if points else 0, size):
            table.add(i, queries[i])
        points += _time_changes(workload, plan, size, index, table, queries)
    return points, Memory(workload.name, "query", own / size, indexed / size, add_s / size * 1e6)


def _time_changes(
    workload: Workload,
    plan: Plan,
    size: int,
    index: QueryIndex[int],
    table: KeyTable,
    queries: dict[int, Query],
) -> Iterator[Point]:
    chance = random.Random(size)
    steps = [workload.change(chance, size) for _ in range(plan.turns)]

    def ours(held: set[int], before: Metadata, after: Metadata) -> Turned:
        change = index.change(before, after, held)
        return change.entered, change.left

    ways: dict[str, Callable[[set[int], Metadata, Metadata], Turned]] = {
        "index": ours,
        "all": lambda held, before, after: ask_all(queries, held, after),
        "keys": lambda held, before, after: table.change(queries, held, before, after),
    }
    before, after = steps[0]
    held = {i for i, query in queries.items() if query.matches(before)}
    expected = ask_all(queries, held, after)
    assert index.matching(before) == held
    assert all(way(held, before, after) == expected for way in ways.values())
    turned = statistics.median(
        len(entered) + len(left)
        for entered, left in (ours(index.matching(step[0]), *step) for step in steps[:9])
    )
    with _settled():
        for how, way in ways.items():
            # The owner of the index knows the stream's old metadata: looking them up is not part of the change.
            known = ((index.matching(before), before, after) for before, after in steps)
            timed = _times(way, known, plan.index_s if how == "index" else plan.peer_s)
            yield _point(workload, "change", how, size, turned, timed)


def measure_queries(workload: Workload, plan: Plan) -> tuple[list[Point], Memory]:
    """Against ever more streams."""
    index: StreamIndex[int] = StreamIndex()
    streams: dict[int, Metadata] = {}
    points: list[Point] = []
    own = indexed = 0
    add_s = 0.0
    for size in plan.sizes:
        held_by_now = _resident()
        streams |= {i: workload.stream(i) for i in range(len(streams), size)}
        own += _resident() - held_by_now
        held_by_now = _resident()
        begin = time.thread_time()
        for i in range(len(index), size):
            index.put(i, streams[i])
        add_s += time.thread_time() - begin
        indexed += _resident() - held_by_now
        chance = random.Random(size)
        fresh = [workload.fresh(chance, size) for _ in range(plan.turns)]
        ways: dict[str, Callable[..., object]] = {"index": index.find, "all": partial(ask_each, streams)}
        assert index.find(fresh[0]) == ask_each(streams, fresh[0])
        found = statistics.median(len(index.find(query)) for query in fresh[:9])
        with _settled():
            for how, way in ways.items():
                timed = _times(
                    way, ((query,) for query in fresh), plan.index_s if how == "index" else plan.peer_s
                )
                points.append(_point(workload, "query", how, size, found, timed))
    return points, Memory(workload.name, "stream", own / size, indexed / size, add_s / size * 1e6)


# ── timing ───────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _settled() -> Iterator[None]:
    """Collect garbage as usual, but leave out what is there by now, as a process does that has been up for long."""
    gc.freeze()
    gc.enable()
    yield
    gc.disable()
    gc.unfreeze()


def _times(work: Callable[..., object], given: Iterable[tuple[object, ...]], most_s: float) -> list[float]:
    """Microseconds that each call had the processor, until ``most_s`` have passed on the clock."""
    taken: list[float] = []
    end = time.perf_counter() + most_s
    for each in given:
        begin = time.thread_time()
        work(*each)
        taken.append((time.thread_time() - begin) * 1e6)
        if time.perf_counter() > end:
            break
    return taken


def _point(workload: Workload, task: str, how: str, size: int, turned: float, taken: list[float]) -> Point:
    ordered = sorted(taken)
    return Point(
        workload=workload.name,
        task=task,
        how=how,
        size=size,
        answers=turned,
        p50_us=ordered[len(ordered) // 2],
        p95_us=ordered[int(len(ordered) * 0.95)],
    )


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


# ── all of it ────────────────────────────────────────────────────────────────────────────────────────────────


def _task(name: str, task: str, plan: Plan) -> tuple[list[Point], Memory]:
    gc.disable()  # to make a million queries takes half as long again with it
    workload = next(each for each in WORKLOADS if each.name == name)
    return measure_changes(workload, plan) if task == "change" else measure_queries(workload, plan)


def measure(plan: Plan, names: Sequence[str], quick: bool) -> Report:
    """Each workload in a process of its own, one after the other, so that its memory is its own."""
    points: list[Point] = []
    memory: list[Memory] = []
    context = multiprocessing.get_context("spawn")
    for name in names:
        for task in ("change", "query"):
            with context.Pool(1) as pool:
                measured, taken = pool.apply(_task, (name, task, plan))
            points += measured
            memory.append(taken)
            _show_points(measured)
    growth = growth_of(points)
    return Report(
        python=platform.python_version(),
        quick=quick,
        target_us=TARGET_US,
        points=points,
        growth=growth,
        memory=memory,
    )


def _show_points(points: Sequence[Point]) -> None:
    task = points[0].task
    peers = ("all", "keys") if task == "change" else ("all",)
    what = next(each.what for each in WORKLOADS if each.name == points[0].workload)
    grid = Grid(title=f"{points[0].workload}, {_TASKS[task]}: {what}", title_justify="left")
    for heading in (
        "queries" if task == "change" else "streams",
        "turned" if task == "change" else "found",
        "index p50 µs",
        "p95 µs",
        *(f"{_HOWS[peer]} µs" for peer in peers),
        *(f"{_HOWS[peer]} ÷ index" for peer in peers),
    ):
        grid.add_column(heading, justify="right")
    by = {(point.size, point.how): point for point in points}
    for size in sorted({point.size for point in points}):
        ours = by[size, "index"]
        grid.add_row(
            f"{size:,}",
            f"{ours.answers:,.0f}",
            f"{ours.p50_us:,.0f}",
            f"{ours.p95_us:,.0f}",
            *(f"{by[size, peer].p50_us:,.0f}" for peer in peers),
            *(f"{by[size, peer].p50_us / ours.p50_us:,.1f}" for peer in peers),
        )
    CONSOLE.print(grid)


def _show_rest(report: Report) -> None:
    grid = Grid(title="growth: slope of log time over log number (0 flat, 1 linear)", title_justify="left")
    for heading in ("workload", "task", "index", "all", "keys"):
        grid.add_column(heading, justify="left" if heading in ("workload", "task") else "right")
    slopes = {(each.workload, each.task, each.how): each.slope for each in report.growth}
    for workload, task in dict.fromkeys((each.workload, each.task) for each in report.growth):
        cells = (slopes.get((workload, task, how)) for how in ("index", "all", "keys"))
        grid.add_row(workload, _TASKS[task], *("" if cell is None else f"{cell:.2f}" for cell in cells))
    CONSOLE.print(grid)
    grid = Grid(title="memory and additions, at the largest size", title_justify="left")
    for heading in ("workload", "of a", "its own B", "in the index B", "addition µs"):
        grid.add_column(heading, justify="left" if heading in ("workload", "of a") else "right")
    for each in report.memory:
        grid.add_row(
            each.workload, each.of, f"{each.own_b:,.0f}", f"{each.index_b:,.0f}", f"{each.add_us:,.0f}"
        )
    CONSOLE.print(grid)


_TASKS: Final = {"change": "a change", "query": "a new query"}
_HOWS: Final = {"all": "ask all", "keys": "by key"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench query", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to ten thousand, in under half a minute")
    parser.add_argument(
        "--only", action="append", choices=[each.name for each in WORKLOADS], help="a workload; all if none"
    )
    arguments = parser.parse_args(argv)
    plan = QUICK if arguments.quick else FULL
    report = measure(plan, arguments.only or [each.name for each in WORKLOADS], arguments.quick)
    _show_rest(report)
    for point in report.points:
        if (point.workload, point.task, point.how, point.size) == (
            TARGET_OF,
            "change",
            "index",
            plan.sizes[-1],
        ):
            verdict = "reached" if point.p50_us < TARGET_US else "missed"
            CONSOLE.print(
                f"target of {TARGET_US:,.0f} µs for a change that turns {point.answers:,.0f} of {point.size:,}"
                f" queries: {verdict} ({point.p50_us:,.0f} µs)"
            )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "query.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    CONSOLE.print(plot(report, RESULTS / "query.png"), markup=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
