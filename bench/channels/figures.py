"""The measurements, and how they are summed up."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.load.figures import Spread
from bench.matching.figures import slope

SPARK = "spark"  # all subscriptions at once, as the pipeline does it
DUCKDB = "duckdb"  # the same rows, files and commit, with the query in DuckDB
ALONE = "alone"  # a query of Spark's for each subscription; from a few, times their number


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """Executions of one channel at one size, from the snapshot to the notice."""

    workload: str
    how: str
    subscriptions: int
    publications: int
    results: float  # of an execution, on average
    ms: Spread
    cpu_ms: float = 0.0  # of the driver, its Java and the Python workers, on average
    turns: int


class Ratio(msgspec.Struct, frozen=True):
    """Spark's time over DuckDB's, taken within turns."""

    workload: str
    subscriptions: int
    publications: int
    ratio: Spread


class Growth(msgspec.Struct, frozen=True):
    """The medians grow as the number of subscriptions to this power."""

    workload: str
    how: str
    publications: int
    slope: float


class Cost(msgspec.Struct, frozen=True):
    """A part of what an execution costs that has next to nothing to do."""

    part: str
    ms: Spread


class Due(msgspec.Struct, frozen=True):
    """A tick of several channels that are due."""

    channels: int
    shapes: int
    ms: Spread
    ratio: Spread  # over a tick of one channel in the same turn


class Fairness(msgspec.Struct, frozen=True):
    """Channels side by side for a while, their periods a fifth of those that they stand for."""

    channels: int
    seconds: float
    ticks: int
    executions: int
    overruns: int
    least: float  # of all channels: executions over intervals
    late_ms: Spread  # from the moment when a channel was due until it began


class Latency(msgspec.Struct, frozen=True):
    """In milliseconds."""

    what: str
    count: int
    p50: float
    p95: float
    low: float


class Rate(msgspec.Struct, frozen=True):
    """Results a second."""

    what: str
    results: int
    per_s: Spread


class Target(msgspec.Struct, frozen=True):
    """The targets and the measured medians."""

    what: str
    wanted: str
    seen: str
    reached: bool
    best: str  # the least (or most) that was seen: what the machine's neighbours leave aside


class Report(msgspec.Struct, frozen=True, kw_only=True):
    quick: bool
    machine: str
    load: tuple[float, float]  # averages of the machine when it began and ended: how busy others were
    executions: list[Execution]
    ratios: list[Ratio]
    growth: list[Growth]
    costs: list[Cost]
    due: list[Due]
    fairness: Fairness | None
    latencies: list[Latency]
    rates: list[Rate]
    targets: list[Target]
    notes: list[str]


def growth_of(executions: Sequence[Execution]) -> list[Growth]:
    """The slope of each curve of two points or more."""
    curves: dict[tuple[str, str, int], list[Execution]] = {}
    for each in executions:
        curves.setdefault((each.workload, each.how, each.publications), []).append(each)
    return [
        Growth(*key, slope([(each.subscriptions, each.ms.median) for each in curve]))
        for key, curve in curves.items()
        if len({each.subscriptions for each in curve}) > 1
    ]


def latency(what: str, taken_s: Sequence[float]) -> Latency:
    ordered = sorted(each * 1e3 for each in taken_s)
    return Latency(
        what, len(ordered), ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)], ordered[0]
    )
