"""Delay as a distribution: how long messages are under way, and how often longer than they may be.

A broker samples a way (``DelayHistogram``): answers to pings, the kernel's own figures, messages with stamps. It tells
what it knows as parts with weights (``Delay``), and predicts ways that it does not sample itself: legs one behind the
other are **convolved**, and ways that are taken at once miss only together. A few quantiles would be shorter, and would
say several times too many misses of a way that is quick mostly and slow where TCP repeats.

A round trip says nothing of its two halves. So the least one is divided, and all that is beyond it counts for the way
there (``one_way``): a prediction is rather too bad than too good.

A **twin** is a second connection of the same way. What delays the one delays the other, except for what TCP repeats:
each connection loses segments of its own (``miss_of_twins``).

Invariants: weights are whole numbers, halved every HALF_US, so that a histogram forgets; parts rise, and do not
overlap if they were sampled. Bounds: PARTS parts of what was sampled, and BUCKETS of what was computed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

BUCKETS: Final = 160
FIRST_US: Final = (
    250  # the first bucket's end; each next one ends a sixteenth later: the last begins at 3.6 s
)
PARTS: Final = 32  # of what was sampled, that are told and judged
SAMPLE: Final = 64  # weight of one, before it is halved
HALF_US: Final = 60_000_000
MILLION: Final = 1_000_000
TOTAL: Final = 1_000_000_000  # weight of what was computed
LONGEST_US: Final = 60_000_000
MUCH: Final = 4  # a change by more than a quarter …
LITTLE_US: Final = 1_000  # … and by more than this is worth another judgement
LEVELS: Final = (0, 500_000, 900_000, 990_000, 999_000)  # at which distributions are compared, in ppm
BODY_US: Final = (
    10_000  # what is slower than twice the floor by this was repeated by TCP, or stood in a queue
)
BURST: Final = 4  # losses come together: of a twin counts so much more than the kernel's share of segments


def _ends(count: int, by: int, of: int) -> tuple[int, ...]:
    return tuple(accumulate(range(count - 2), lambda end, _: end * by // of, initial=FIRST_US))


ENDS: Final = _ends(BUCKETS, 17, 16)


class Part(NamedTuple):
    """What lies between two delays, evenly."""

    low_us: int
    high_us: int
    weight: int


class Delay(msgspec.Struct, frozen=True, array_like=True):
    """A distribution. There is at least one part."""

    parts: tuple[Part, ...]
    lost_ppm: int = 0  # never came
    repeated_ppm: int = -1  # of segments, by the kernel's figures; -1: it does not tell
    samples: int = 0

    @property
    def floor_us(self) -> int:
        return self.parts[0].low_us

    @property
    def total(self) -> int:
        return sum(weight for _, _, weight in self.parts)

    def miss(self, budget_us: int) -> float:
        """How often a message is longer under way, or never comes."""
        within = 0.0
        for low_us, high_us, weight in self.parts:
            if high_us <= budget_us:
                within += weight
            elif low_us <= budget_us:
                within += weight * (budget_us - low_us) / (high_us - low_us)
        lost = self.lost_ppm / MILLION
        return lost + (1 - lost) * (1 - within / self.total)

    def quantile(self, ppm: int) -> int:
        """So much of what comes takes at most so long."""
        wanted, reached = ppm * self.total, 0
        for low_us, high_us, weight in self.parts:
            if (reached + weight) * MILLION >= wanted:
                return low_us + (high_us - low_us) * (wanted - reached * MILLION) // (weight * MILLION)
            reached += weight
        return self.parts[-1].high_us

    def one_way(self) -> Delay:
        """The way there, of a round trip."""
        return self.later(-(self.floor_us // 2))

    def later(self, by_us: int) -> Delay:
        """The same with so much more for each message."""
        moved = tuple(Part(low + by_us, high + by_us, weight) for low, high, weight in self.parts)
        return msgspec.structs.replace(self, parts=moved)

    def repeating(self, repeated_ppm: int, after_us: int) -> Delay:
        """The same, if so many of its segments are sent again so much later. What was sampled may show it already."""
        middle_us, total = self.quantile(MILLION // 2), self.total
        late_us = min(middle_us + after_us, LONGEST_US)
        shown = sum(weight for low, _, weight in self.parts if low >= middle_us + after_us // 2)
        lacking = repeated_ppm * total // MILLION - shown
        parts: Iterable[Part] = self.parts
        if lacking > 0:
            parts = _gathered([*_atoms(self.parts), (late_us, lacking)])
        return msgspec.structs.replace(self, parts=tuple(parts), repeated_ppm=repeated_ppm)

    def differs(self, other: Delay) -> bool:
        """Whether a way that was judged by the one should be judged again by the other."""
        lost = abs(self.lost_ppm - other.lost_ppm)
        if lost > max(self.lost_ppm, other.lost_ppm) // MUCH:
            return True
        return any(_far_apart(self.quantile(level), other.quantile(level)) for level in LEVELS)


def _far_apart(one_us: int, other_us: int) -> bool:
    return abs(one_us - other_us) > max(LITTLE_US, max(one_us, other_us) // MUCH)


def _atoms(parts: Iterable[Part]) -> Iterator[tuple[int, int]]:
    """Delays with weights that stand for parts: their ends and middles."""
    for low_us, high_us, weight in parts:
        if low_us == high_us or weight < 3:
            yield (low_us + high_us) // 2, weight
        else:
            third = weight // 3
            yield low_us, third
            yield (low_us + high_us) // 2, weight - 2 * third
            yield high_us, third


def _gathered(atoms: Iterable[tuple[int, int]]) -> list[Part]:
    """The parts of delays with weights."""
    found: dict[int, Part] = {}
    for at_us, weight in atoms:
        bucket = bisect_right(ENDS, at_us)
        low_us, high_us, before = found.get(bucket, (at_us, at_us, 0))
        found[bucket] = Part(min(low_us, at_us), max(high_us, at_us), before + weight)
    return [part for _, part in sorted(found.items()) if part.weight]


def _coarser(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The same in PARTS parts at most: neighbours become one where that says least that is wrong."""
    found = list(parts)
    while len(found) > PARTS:
        at = min(
            range(len(found) - 1),
            key=lambda n: (found[n + 1].high_us - found[n].low_us) * (found[n].weight + found[n + 1].weight),
        )
        one, other = found[at : at + 2]
        found[at : at + 2] = [Part(one.low_us, other.high_us, one.weight + other.weight)]
    return tuple(found)


def convolve(first: Delay, second: Delay) -> Delay:
    """The delay of two legs, one behind the other."""
    scale = max(1, first.total * second.total // TOTAL)
    sums = ((a + b, -(-v * w // scale)) for a, v in _atoms(first.parts) for b, w in _atoms(second.parts))
    told = (first.repeated_ppm, second.repeated_ppm)
    return Delay(
        tuple(_gathered(sums)),
        lost_ppm=first.lost_ppm + second.lost_ppm - first.lost_ppm * second.lost_ppm // MILLION,
        repeated_ppm=-1 if min(told) < 0 else sum(told),
        samples=min(first.samples, second.samples),
    )


def miss_of_twins(way: Delay, budget_us: int) -> float:
    """How often both of two connections of one way are late: all that delays the way itself delays both."""
    body_us = max(budget_us, 2 * way.floor_us + BODY_US)
    tail = way.miss(body_us)
    own = tail if way.repeated_ppm < 0 else min(tail, BURST * way.repeated_ppm / MILLION)
    return min(1.0, way.miss(budget_us) - own + own * own)


class DelayHistogram:
    """Samples of one way's delay, the old ones with less weight."""

    __slots__ = ("_halved_us", "_high", "_lost", "_low", "_weights")

    def __init__(self) -> None:
        self._weights = [0] * BUCKETS
        self._low = [0] * BUCKETS  # the least sample of each bucket …
        self._high = [0] * BUCKETS  # … and the greatest
        self._lost = 0  # weight of what never came
        self._halved_us: int | None = None

    def add(self, delay_us: int, now_us: int) -> None:
        self._fade(now_us)
        sample = min(max(delay_us, 0), LONGEST_US)
        bucket = bisect_right(ENDS, sample)
        if not self._weights[bucket]:
            self._low[bucket] = self._high[bucket] = sample
        elif sample < self._low[bucket]:
            self._low[bucket] = sample
        elif sample > self._high[bucket]:
            self._high[bucket] = sample
        self._weights[bucket] += SAMPLE

    def lost(self, messages: int, now_us: int) -> None:
        """So many never came."""
        self._fade(now_us)
        self._lost += SAMPLE * messages

    def _fade(self, now_us: int) -> None:
        if self._halved_us is None:
            self._halved_us = now_us
        halves = (now_us - self._halved_us) // HALF_US
        if halves > 0:
            self._halved_us += halves * HALF_US
            shift = min(halves, 60)
            self._weights = [each >> shift for each in self._weights]
            self._lost >>= shift

    def delay(self, now_us: int) -> Delay | None:
        """What is known now; None: nothing."""
        self._fade(now_us)
        rows = zip(self._low, self._high, self._weights, strict=True)
        parts = tuple(Part(low, high, weight) for low, high, weight in rows if weight)
        if not parts:
            return None
        total = sum(self._weights) + self._lost
        return Delay(_coarser(parts), lost_ppm=self._lost * MILLION // total, samples=total // SAMPLE)


def predicted(*legs: Delay) -> Delay:
    """The delay of legs one behind the other."""
    way = legs[0]
    for leg in legs[1:]:
        way = convolve(way, leg)
    return way
