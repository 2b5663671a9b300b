"""Eq. 7 with measured rates and without them: what happens to brokers whose plan counts subscriptions, not data.

Neighbourhoods inside clusters (``networks.clustered``): all brokers have equally many subscribers. One neighbourhood
in four asks for results of megabytes, the others for results of kilobytes. Each broker can carry so many times the mean
data rate of a broker. One plan knows that (``recovery.capacity_bytes_per_s``), the other counts pairs of client and
subscription (``recovery.capacity``, the same number of times their mean). The load of both is then counted in data:
P[j] over D[j].
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Mapping
from typing import Final

import msgspec

from bench.assignment.networks import clustered, drawn
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.outcome import Plan
from tocsin.core.assignment.planning import Strategy, plan

LARGE, SMALL = (1_000_000, 10_000_000), (10_000, 100_000)  # results, in bytes
PERIODS_S: Final = (10, 600)
ROOMS: Final = (4.0, 6.0, 8.0)
BROKERS, QUICK_BROKERS = 100, 15


class Loaded(msgspec.Struct, frozen=True):
    """One plan, and what its brokers would carry."""

    room: float
    strategy: Strategy
    by_data: bool
    fullest: float  # P[j] / D[j], in data, of the broker where that is most
    over: int  # brokers that could not carry it


def rated(brokers: int, room: float, seed: int = 1) -> tuple[Demand, Demand]:
    """One network as both see it: by data, and by pairs."""
    chance = random.Random(f"rates {seed}")
    pairs = drawn(brokers, room, clustered, seed)
    kinds = sorted({k for held in pairs.holdings.values() for k in held}, key=str)
    rates = {
        k: chance.randint(*(LARGE if _is_large(k) else SMALL)) / chance.randint(*PERIODS_S) for k in kinds
    }
    total = math.fsum(own_load(pairs, rates).values())
    members = tuple(Member(each.name, each.cluster, room * total / brokers) for each in pairs.members)
    return Demand(members, pairs.holdings, rates), pairs


def _is_large(k: Hashable) -> bool:
    """Whether it is of the first neighbourhood of a cluster."""
    return isinstance(k, tuple) and k[2] == 0


def own_load(demand: Demand, rates: Mapping[Hashable, float]) -> dict[str, float]:
    """The data rate of each broker's own clients."""
    return {
        name: math.fsum(rates[k] * count for k, count in held.items())
        for name, held in demand.holdings.items()
    }


def loaded(made: Plan, truth: Demand, room: float, strategy: Strategy, *, by_data: bool) -> Loaded:
    """What a plan's brokers would carry if all that they back came to them."""
    own = own_load(truth, truth.rates)
    carried = dict(own)
    for name, backups in made.backups.items():
        for backup in (backups.local, backups.remote):
            if backup is not None:
                carried[backup] += own[name]
    shares = [carried[each.name] / each.capacity for each in truth.members]
    return Loaded(room, strategy, by_data, max(shares), sum(share >= 1 for share in shares))


def measure(quick: bool) -> list[Loaded]:
    found = []
    for room in ROOMS:
        by_data, by_pairs = rated(QUICK_BROKERS if quick else BROKERS, room)
        strategies: tuple[Strategy, ...] = ("lcs_mmcs", "search")
        for strategy in strategies:
            for demand in (by_data, by_pairs):
                made = plan(demand, strategy)
                found.append(loaded(made, by_data, room, strategy, by_data=demand is by_data))
    return found


def words(each: Loaded) -> str:
    counted = "data" if each.by_data else "pairs"
    brokers = "broker" if each.over == 1 else "brokers"
    return (
        f"  room ×{each.room:g}, {each.strategy}, planned by {counted}: the fullest at {each.fullest:.0%} of what it "
        f"can carry, {each.over} {brokers} above that"
    )


if __name__ == "__main__":
    print("\n".join(map(words, measure(quick=False))))
