"""The input of a plan: the brokers, their subscriptions, and the rates of those.

The paper's symbols: ``holdings[i][k]`` is c[i,k], and z[i,k] = 1 where it is above 0; ``rates[k]`` is lam[k], 1
unless it is given; ``capacity`` is D[i]; the cluster gives e[i,j]. A subscription k is whatever can be a key: a
channel with its values, a canonical query, a topic filter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tocsin.errors import DemandInvalid

BROKERS_MAX: Final = 2_048  # a plan keeps some square matrices of them, 32 MiB each at this size
HANDICAP_MAX: Final = 1 << 23  # as many as all subscriptions there could be
FIGURE_MAX: Final = 1e12  # a rate, or a number of subscribers; sums of their products stay far from infinity
SPREAD: Final = 2.0  # mean loads that a broker backs, beside the largest, where no capacity is stated
PAIRS_MAX: Final = 1 << 23  # (broker, subscription) pairs; sums of them are exact in single precision


class Member(msgspec.Struct, frozen=True):
    """A broker that has backups, and can be one.

    ``handicap`` is what each backup placed here costs beside its subscriptions, counted in subscriptions: how whatever
    else speaks against a broker (``ranking.handicaps``) enters a plan. LCS and MMCS do not look at it.
    """

    name: str
    cluster: str
    capacity: float = math.inf
    handicap: int = 0


class Demand(msgspec.Struct, frozen=True):
    """The whole network, as a plan sees it. Brokers without holdings have none."""

    members: tuple[Member, ...]
    holdings: Mapping[str, Mapping[Any, int]]
    rates: Mapping[Any, float] = {}

    def check(self) -> None:
        """Raise ``DemandInvalid`` for what no plan can be made for."""
        if len(self.members) > BROKERS_MAX:
            raise DemandInvalid(
                f"{len(self.members)} brokers",
                f"plan for at most {BROKERS_MAX} at once, or divide the network",
            )
        names = {each.name for each in self.members}
        if len(names) != len(self.members):
            twice = next(
                name for name in sorted(names) if sum(each.name == name for each in self.members) > 1
            )
            raise DemandInvalid(f"broker {twice!r} is there twice", "give each broker a name of its own")
        for each in self.members:
            if not each.capacity >= 0:  # nan too
                raise DemandInvalid(
                    f"broker {each.name!r} has capacity {each.capacity}",
                    "give a number from 0 up, or infinity",
                )
            if not 0 <= each.handicap <= HANDICAP_MAX:
                raise DemandInvalid(
                    f"broker {each.name!r} has handicap {each.handicap}", f"give one from 0 to {HANDICAP_MAX}"
                )
        strangers = sorted(set(self.holdings) - names)
        if strangers:
            raise DemandInvalid(
                f"{strangers[0]!r} holds subscriptions and is no broker", "name it among the members too"
            )
        pairs = sum(len(held) for held in self.holdings.values())
        if pairs > PAIRS_MAX:
            raise DemandInvalid(f"{pairs} (broker, subscription) pairs", f"plan for at most {PAIRS_MAX}")
        for k, rate in self.rates.items():
            if not 0 <= rate <= FIGURE_MAX:  # nan too
                raise DemandInvalid(
                    f"subscription {k!r} has rate {rate}", f"give one from 0 to {FIGURE_MAX:g}"
                )


def unsaid_capacities(loads: Mapping[str, float]) -> dict[str, float]:
    """The default capacity of brokers: so much that backups are spread, and the largest fits anywhere.

    Without a bound a plan puts a whole cluster on the one broker that has the most in common with it: the fewest
    subscriptions, and the slowest recovery.
    """
    if not loads:
        return {}
    beyond = SPREAD * sum(loads.values()) / len(loads) + max(loads.values()) + 1
    return {broker: load + beyond for broker, load in loads.items()}
