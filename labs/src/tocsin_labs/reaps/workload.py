"""Brokers, subscribers and channels, drawn from a seed.

Everything that chance decides has a stream of its own, and subscribers are drawn one after the other: the first
thousand are the same ones, however many follow.

The paper's symbols: ``k`` is a backend subscription, ``lam[k]`` its rate (bytes a second), ``homes`` gives c[i,k].
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tocsin.core.assignment.demand import Demand, Member
from tocsin.sim.chance import Chance
from tocsin_labs.reaps.parameters import Parameters

SECOND_US: Final = 1_000_000
ADDRESS: Final = "127.0.0.1"
Flags = npt.NDArray[np.bool_]


class Workload:
    """The subscriptions, with their subscribers and brokers. Nothing in it changes."""

    def __init__(self, given: Parameters, *, regional: int = 0) -> None:
        chance = Chance(given.seed, "channels")
        self.brokers = [f"b{number:03}" for number in range(given.brokers)]
        self.cluster_of = {name: f"c{at % given.clusters}" for at, name in enumerate(self.brokers)}
        self.subscriptions_each = given.subscriptions_each
        self.periods_us = [chance.between(*given.period_s) * SECOND_US for _ in range(given.channels)]
        self.phases_us = [1 + chance.below(period) for period in self.periods_us]  # of the first execution
        self.sizes = [
            chance.between(*given.result_bytes) for _ in range(given.channels * self.subscriptions_each)
        ]
        self.homes = self._draw(Chance(given.seed, "subscribers"), given, regional)
        self._by_broker: dict[str, list[int]] = {name: [] for name in self.brokers}
        for broker, k in self.homes:
            self._by_broker[self.brokers[broker]].append(k)

    def _draw(self, chance: Chance, given: Parameters, regional: int) -> list[tuple[int, int]]:
        """Each subscriber's broker and k."""
        count, clusters = len(self.sizes), given.clusters
        homes = []
        for _ in range(given.subscribers):
            broker = chance.below(given.brokers)
            near = chance.below(100) < regional
            cluster = broker % clusters
            # A region's own: every third k, if there are three regions.
            k = (
                chance.below((count - cluster + clusters - 1) // clusters) * clusters + cluster
                if near
                else chance.below(count)
            )
            homes.append((broker, k))
        return homes

    def subscribers_of(self, broker: str) -> Sequence[int]:
        """The k of each subscriber whose home it is."""
        return self._by_broker[broker]

    def channel_of(self, k: int) -> int:
        return k // self.subscriptions_each

    def of_channel(self, channel: int) -> range:
        return range(channel * self.subscriptions_each, (channel + 1) * self.subscriptions_each)

    def topic(self, k: int) -> str:
        return f"$channel/C{self.channel_of(k)}/{k % self.subscriptions_each}"

    def rates(self) -> dict[int, float]:
        """lam[k], in bytes a second."""
        return {
            k: size * SECOND_US / self.periods_us[self.channel_of(k)] for k, size in enumerate(self.sizes)
        }

    def holdings(self, subscribers: int | None = None) -> dict[str, Counter[int]]:
        """c[i,k], of the first so many subscribers."""
        held: dict[str, Counter[int]] = {name: Counter() for name in self.brokers}
        for broker, k in self.homes[:subscribers]:
            held[self.brokers[broker]][k] += 1
        return held

    def demand(self, subscribers: int | None = None, room: float | None = None) -> Demand:
        """The demand for plans; ``room``: the capacity of each broker over the mean load, None for no bound."""
        holdings, rates = self.holdings(subscribers), self.rates()
        total = math.fsum(rates[k] * count for held in holdings.values() for k, count in held.items())
        capacity = math.inf if room is None else room * total / len(self.brokers)
        members = tuple(Member(name, self.cluster_of[name], capacity) for name in self.brokers)
        return Demand(members, holdings, rates)

    def held(self, demand: Demand) -> Flags:
        """z[i,k] as a matrix."""
        flags = np.zeros((len(self.brokers), len(self.sizes)), dtype=np.bool_)
        for row, name in enumerate(self.brokers):
            flags[row, list(demand.holdings[name])] = True
        return flags
