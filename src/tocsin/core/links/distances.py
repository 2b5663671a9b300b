"""Distances between brokers: the Landmark paper's distance table, in microseconds of a round trip.

A broker measures over the links that it has (``Delays``): each answered ping is a sample, smoothed as TCP smooths its
own. The table (``Distances``) has the brokers' reports; a pair without a report is **estimated** by pairs of its kind:
inside the same cluster, else between the same two clusters, else between any two. Where there is no such pair either, a
constant is taken.

A round trip is as long from one side as from the other: of two that were measured the shorter counts, since delays
are made longer by busy brokers, and never shorter.

Bounds: PEERS_MAX distances of each broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low
from typing import Final, NamedTuple

PEERS_MAX: Final = 256  # distances that a broker tells
SMOOTHING: Final = 8  # a sample counts for an eighth, as in TCP (RFC 6298)
MUCH: Final = 4  # a change by more than a quarter is worth telling …
LITTLE_US: Final = 1_000  # … if it is more than this: an event loop alone makes as much
WITHIN_US: Final = 1_000  # estimates where nothing is known: a local network …
BETWEEN_US: Final = 40_000  # … and a wide one
LONGEST_US: Final = 60_000_000  # of a distance that is believed


class Distance(NamedTuple):
    """Between two brokers."""

    us: int
    measured: bool


class Delays:
    """The delays that one broker has measured over its links."""

    def __init__(self) -> None:
        self._smooth: dict[str, int] = {}

    def measured(self, peer: str, round_trip_us: int) -> None:
        sample = min(max(round_trip_us, 1), LONGEST_US)
        before = self._smooth.pop(peer, sample)
        self._smooth[peer] = max(1, before + (sample - before) // SMOOTHING)
        while len(self._smooth) > PEERS_MAX:
            del self._smooth[next(iter(self._smooth))]

    def lost(self, peer: str) -> None:
        """There is no link to it any more: what was measured says nothing of how it is now."""
        self._smooth.pop(peer, None)

    def all(self) -> dict[str, int]:
        return dict(sorted(self._smooth.items()))


def differ_much(told: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether two delays differ so much that a broker that was told the first should hear of the second."""
    if told.keys() != now.keys():
        return True
    return any(abs(us - now[peer]) > max(LITTLE_US, max(us, now[peer]) // MUCH) for peer, us in told.items())


class Distances:
    """The table. ``clusters`` says where each broker is that there is."""

    def __init__(self, clusters: Mapping[str, str] | None = None) -> None:
        self._clusters = dict(clusters or {})
        self._told: dict[str, dict[str, int]] = {}
        self._kinds: dict[tuple[str, str], int] | None = None  # estimates; None: to be computed again

    def set_brokers(self, clusters: Mapping[str, str]) -> None:
        """These are there, and no others: what others told is forgotten."""
        if self._clusters != clusters:
            self._clusters = dict(clusters)
            self._told = {broker: delays for broker, delays in self._told.items() if broker in clusters}
            self._kinds = None

    def tell(self, broker: str, delays: Mapping[str, int]) -> None:
        """All that a broker has measured; replaces what it told before."""
        known = [(peer, us) for peer, us in delays.items() if 0 < us <= LONGEST_US and peer != broker]
        self._told[broker] = dict(known[:PEERS_MAX])
        self._kinds = None

    def cluster(self, broker: str) -> str | None:
        """Where a broker is; None if it is not there."""
        return self._clusters.get(broker)

    def reaches(self, broker: str, peer: str) -> bool:
        """Whether a broker has told of a link to a peer."""
        return peer in self._told.get(broker, ())

    def neighbours(self, broker: str) -> set[str]:
        """The brokers with a link to it, or from it."""
        to = {peer for peer in self._told.get(broker, ()) if peer in self._clusters}
        return to | {other for other, delays in self._told.items() if broker in delays} - {broker}

    def between(self, a: str, b: str) -> Distance:
        if a == b:
            return Distance(0, True)
        measured = [self._told[x][y] for x, y in ((a, b), (b, a)) if x in self._told and y in self._told[x]]
        if measured:
            return Distance(min(measured), True)
        return Distance(self._estimate(self._clusters.get(a, ""), self._clusters.get(b, "")), False)

    def rows(self) -> list[tuple[str, str, int]]:
        """All that was measured, as (broker, peer, µs)."""
        return [(broker, *each) for broker, delays in self._told.items() for each in delays.items()]

    def _estimate(self, here: str, there: str) -> int:
        if self._kinds is None:
            self._kinds = self._work_out()
        default = WITHIN_US if here == there else BETWEEN_US
        anywhere = ("", "") if here == there else ("", "*")
        return self._kinds.get(_kind(here, there), self._kinds.get(anywhere, default))

    def _work_out(self) -> dict[tuple[str, str], int]:
        """The middle of what was measured, by kind: the two clusters, any one (""), any two ("*")."""
        samples: dict[tuple[str, str], list[int]] = {}
        for broker, peer, us in self.rows():
            here, there = self._clusters.get(broker), self._clusters.get(peer)
            if here is not None and there is not None:
                samples.setdefault(_kind(here, there), []).append(us)
                samples.setdefault(("", "" if here == there else "*"), []).append(us)
        return {kind: median_low(each) for kind, each in samples.items()}


def _kind(here: str, there: str) -> tuple[str, str]:
    return (here, there) if here <= there else (there, here)
