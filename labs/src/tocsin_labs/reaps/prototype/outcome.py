"""The outcome of one failure, of all with as many subscribers, and a line through them. Nothing here reads a clock.

Times are seconds after the failure: after the signal was sent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec

from tocsin_demo.scene import Course, Ledger
from tocsin_labs.reaps.prototype.plan import Way


class Outcome(msgspec.Struct, frozen=True):
    """One failure."""

    way: Way
    run: int
    subscribers: int  # that were connected to the broker
    detected_s: float | None  # the leader declared it lost; None: it took leave itself
    stands_in: str | None  # the broker that was told to stand in
    taken_s: float | None  # the stand-in announced the takeover
    broken_s: list[float]  # connections broke, by rising time, as the next two
    served_s: list[float]  # a broker had taken the session
    told_s: list[float]  # the program was given the storm
    others_told_s: list[float]  # the same, of the subscribers of other brokers
    at: dict[str, int]  # broker → how many of them it took
    returned_s: list[float] = []  # at home again, after that broker had joined again

    @property
    def all_served_s(self) -> float:
        """The fail-over time."""
        return self.served_s[-1]

    @property
    def all_told_s(self) -> float:
        return self.told_s[-1]

    @property
    def after_detection_s(self) -> float | None:
        """The same from when the broker was declared lost; below 0: everybody was served before."""
        return None if self.detected_s is None else self.all_served_s - self.detected_s

    @property
    def missed(self) -> bool:
        """Whether they missed the storm: a machine that is busy may let the broker tell before the signal ends it."""
        return self.all_told_s >= self.served_s[0]

    @property
    def at_backup_percent(self) -> float | None:
        """How many of them went to the broker that was told to stand in; None: nobody was."""
        if self.stands_in is None:
            return None
        return 100 * self.at.get(self.stands_in, 0) / self.subscribers


def outcome(
    way: Way, run: int, course: Course, ledger: Ledger, storm: int, subscribers: Iterable[int]
) -> Outcome:
    """The outcome of a complete recovery: all affected subscribers are served, and everybody was told of the storm."""
    (broker,) = course.failure.brokers
    at_s, affected = course.failure.at_s, {each.subscriber for each in course.passages}
    told = {each: told_at(ledger, each, storm) for each in {*subscribers} | affected}
    return Outcome(
        way=way,
        run=run,
        subscribers=len(affected),
        detected_s=_after(course.lost_s[broker], at_s),
        stands_in=course.stands_in[broker],
        taken_s=_after(course.taken_s[broker], at_s),
        broken_s=_sorted((each.lost_s for each in course.passages), at_s),
        served_s=_sorted((each.back_s for each in course.passages), at_s),
        told_s=_sorted((told[each] for each in affected), at_s),
        others_told_s=_sorted((when for each, when in told.items() if each not in affected), at_s),
        at=dict(Counter(each.at for each in course.passages if each.at is not None)),
    )


def told_at(ledger: Ledger, subscriber: int, storm: int) -> float | None:
    """When its program was given the storm with that number, for the first time."""
    return next((at_s for at_s, each in ledger.arrivals(subscriber) if each.number == storm), None)


def _after(when_s: float | None, at_s: float) -> float | None:
    return None if when_s is None else when_s - at_s


def _sorted(times: Iterable[float | None], at_s: float) -> list[float]:
    return sorted(each - at_s for each in times if each is not None)


# ── of several ───────────────────────────────────────────────────────────────────────────────────────────────


class Middle(msgspec.Struct, frozen=True):
    """The median, with the least and the most."""

    median: float
    least: float
    most: float
    samples: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Middle | None:
        """The median of the known values; None if none is."""
        known = [each for each in values if each is not None]
        return cls(median(known), min(known), max(known), len(known)) if known else None


def typical(outcomes: Sequence[Outcome]) -> Outcome:
    """The failure with the median fail-over time; of an even number, the sooner of the two in the middle."""
    return sorted(outcomes, key=lambda each: each.all_served_s)[(len(outcomes) - 1) // 2]


class Line(msgspec.Struct, frozen=True):
    """The straight line with the least squares."""

    slope: float  # seconds for each subscriber
    intercept: float  # seconds for none
    explained: float  # share of the variance that the line explains, R²

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def line(points: Sequence[tuple[float, float]]) -> Line | None:
    """None through fewer than two places along x."""
    if len({x for x, _ in points}) < 2:
        return None
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / math.fsum(
        (x - mean_x) ** 2 for x, _ in points
    )
    intercept = mean_y - slope * mean_x
    rest = math.fsum((y - intercept - slope * x) ** 2 for x, y in points)
    every = math.fsum((y - mean_y) ** 2 for _, y in points)
    return Line(slope, intercept, 1 - rest / every if every else 1.0)


def by_size(outcomes: Iterable[Outcome], way: Way) -> Mapping[int, list[Outcome]]:
    """Those of one way, by how many subscribers the broker had, by rising number."""
    found: dict[int, list[Outcome]] = {}
    for each in outcomes:
        if each.way == way:
            found.setdefault(each.subscribers, []).append(each)
    return dict(sorted(found.items()))
