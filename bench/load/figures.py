"""The measurements, and how they are summed up: ratios within pairs, with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec


class Reading(msgspec.Struct, frozen=True):
    """One broker's turn under one load."""

    deliveries: int
    cpu_s: float  # of the broker process
    wall_s: float
    latencies_us: tuple[float, ...] = ()

    @property
    def per_cpu_s(self) -> float:
        return self.deliveries / max(self.cpu_s, 1e-9)

    @property
    def per_s(self) -> float:
        return self.deliveries / self.wall_s


class Spread(msgspec.Struct, frozen=True):
    """A median and the least and most that were seen."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}..{self.high:.2f})"


class Percentiles(msgspec.Struct, frozen=True):
    """In microseconds."""

    p50: float
    p95: float
    p99: float


class Figure(msgspec.Struct, frozen=True):
    """The figures of one broker under one load."""

    load: str
    broker: str
    per_cpu_s: Spread  # deliveries for each second of the broker's time
    per_s: float  # deliveries for each second that passed
    busy: float  # share of its core that the broker used
    latency_us: Percentiles | None


class Ratio(msgspec.Struct, frozen=True):
    """Tocsin's deliveries per CPU second over a peer's, taken within pairs."""

    load: str
    peer: str
    ratio: Spread
    rate: Spread  # the same for each second that passed
    latency: float | None  # Tocsin's median latency over the peer's
    target: float | None
    pairs: int

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "reached" if self.ratio.median >= self.target else "missed"


def spread(values: Iterable[float]) -> Spread:
    found = sorted(values)
    return Spread(statistics.median(found), found[0], found[-1])


def percentiles(values: Sequence[float]) -> Percentiles | None:
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    return Percentiles(at(0.50), at(0.95), at(0.99))


def figure(load: str, broker: str, readings: Sequence[Reading]) -> Figure:
    wall_s = sum(each.wall_s for each in readings)
    return Figure(
        load,
        broker,
        spread(each.per_cpu_s for each in readings),
        sum(each.deliveries for each in readings) / wall_s,
        sum(each.cpu_s for each in readings) / wall_s,
        percentiles([each_us for each in readings for each_us in each.latencies_us]),
    )


def ratio(
    load: str, peer: str, ours: Sequence[Reading], theirs: Sequence[Reading], target: float | None
) -> Ratio:
    pairs = list(zip(ours, theirs, strict=True))
    mine = percentiles([us for each in ours for us in each.latencies_us])
    other = percentiles([us for each in theirs for us in each.latencies_us])
    return Ratio(
        load,
        peer,
        spread(our.per_cpu_s / their.per_cpu_s for our, their in pairs),
        spread(our.per_s / their.per_s for our, their in pairs),
        mine.p50 / other.p50 if mine is not None and other is not None else None,
        target,
        len(pairs),
    )
