"""The measurements, and the law by which they grow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One way to do one task at one size."""

    workload: str
    task: str  # change, query
    how: str  # index, all, keys
    size: int  # standing queries, or streams
    answers: float  # queries that turned, or streams that were found
    p50_us: float
    p95_us: float


class Growth(msgspec.Struct, frozen=True):
    """``p50_us`` grows as the size to this power."""

    workload: str
    task: str
    how: str
    slope: float


class Memory(msgspec.Struct, frozen=True):
    """Bytes and time of one query or stream, on average over the largest size."""

    workload: str
    of: str
    own_b: float  # the query or the metadata itself
    index_b: float  # its share of the index
    add_us: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    python: str
    quick: bool
    target_us: float
    points: list[Point]
    growth: list[Growth]
    memory: list[Memory]


def growth_of(points: Sequence[Point]) -> list[Growth]:
    """The slope of each curve."""
    curves: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        curves.setdefault((point.workload, point.task, point.how), []).append(point)
    return [Growth(*curve, slope([(each.size, each.p50_us) for each in of])) for curve, of in curves.items()]


def slope(places: Sequence[tuple[float, float]]) -> float:
    """The slope of the straight line nearest to the logarithms, by least squares."""
    logs = [(math.log(x), math.log(y)) for x, y in places]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)
