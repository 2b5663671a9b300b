"""Detours: the best way around a cut link, over one other broker or two, by the least sum of delays.

A link from x to y is **cut** if x says so. An unknown link may be used: the broker that is told to use it finds out,
reports a failure, and another path is chosen. That takes seconds; so a link that x has not measured counts DOUBT_US
longer if a cut speaks against it: the opposite link, for most faults concern both directions, or another of x's into
the same other cluster, for most concern the way between two.

Each relay adds RELAY_US, what passing on costs a broker; so a path over one relay is preferred to a path over two that
is hardly shorter. Of ways that are as long the one with fewer relays is taken, then the first by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Final

from tocsin.core.links.distances import Distances

RELAY_US: Final = 500
DOUBT_US: Final = 1_000_000

Cuts = Collection[tuple[str, str]]
Way = tuple[str, ...]


class Legs:
    """The costs of the links between brokers, without those that are cut."""

    def __init__(self, distances: Distances, cut: Cuts) -> None:
        self._distances = distances
        self._cut = cut
        # Brokers, and the clusters into which they have lost a link.
        self._doubted = {(x, cluster) for x, y in cut if (cluster := distances.cluster(y)) is not None}

    def us(self, x: str, y: str) -> int | None:
        """None: it is cut."""
        if (x, y) in self._cut:
            return None
        there = self._distances.cluster(y)
        foreign = there is not None and there != self._distances.cluster(x)
        against = (y, x) in self._cut or (foreign and (x, there) in self._doubted)
        doubt = DOUBT_US if against and not self._distances.reaches(x, y) else 0
        return self._distances.between(x, y).us + doubt


def cost_us(way: Iterable[str], distances: Distances, cut: Cuts) -> int | None:
    """The delay from the first broker of a path to the last; None if a link between two of them is cut."""
    brokers, legs = tuple(way), Legs(distances, cut)
    total = RELAY_US * (len(brokers) - 2)
    for x, y in pairwise(brokers):
        leg = legs.us(x, y)
        if leg is None:
            return None
        total += leg
    return total


def detour(source: str, target: str, relays: Iterable[str], distances: Distances, cut: Cuts) -> Way | None:
    """The relays of the best way, in order; None if there is none."""
    able, legs = sorted({*relays} - {source, target}), Legs(distances, cut)
    last = {each: leg for each in able if (leg := legs.us(each, target)) is not None}
    best: tuple[int, int, Way] | None = None
    for first in able:
        out = legs.us(source, first)
        if out is None or (best is not None and out > best[0]):
            continue
        if first in last:
            best = _least(best, (out + RELAY_US + last[first], 1, (first,)))
        for second, rest in last.items():
            if second == first or (best is not None and out + rest > best[0]):
                continue
            middle = legs.us(first, second)
            if middle is not None:
                best = _least(best, (out + middle + rest + 2 * RELAY_US, 2, (first, second)))
    return None if best is None else best[2]


def _least(best: tuple[int, int, Way] | None, other: tuple[int, int, Way]) -> tuple[int, int, Way]:
    return other if best is None else min(best, other)
