"""The running costs of a plan, with quasi-active and with active replication (REAPS, section VI.B).

**Quasi-active** (ours): a local backup keeps the subscriptions ready that it lacks, and fetches no results for
them; a remote backup keeps nothing at the backend. **Active** (AR, the paper's baseline): subscribers subscribe at
their home and at both backups, and each of the three fetches every result; only home delivers. Which brokers are
the backups is the plan's business in both.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

import msgspec

from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.outcome import Plan


class Cost(msgspec.Struct, frozen=True):
    """The costs of one broker: subscriptions at the backend, and the rate at which it fetches results (lam over
    those).
    """

    own_subscriptions: int
    quasi_active_subscriptions: int
    active_subscriptions: int
    quasi_active_rate: float
    active_rate: float


def costs(demand: Demand, plan: Plan) -> dict[str, Cost]:
    """The costs of each broker."""
    held: dict[str, set[Hashable]] = {
        each.name: {k for k, count in demand.holdings.get(each.name, {}).items() if count}
        for each in demand.members
    }
    everything = {name: set(own) for name, own in held.items()}
    for broker, backups in plan.backups.items():
        for backup in (backups.local, backups.remote):
            if backup is not None:
                everything[backup] |= held[broker]
    return {
        name: Cost(
            own_subscriptions=len(own),
            quasi_active_subscriptions=len(own) + plan.overhead[name],
            active_subscriptions=len(everything[name]),
            quasi_active_rate=_rate(demand, own),
            active_rate=_rate(demand, everything[name]),
        )
        for name, own in held.items()
    }


def _rate(demand: Demand, subscriptions: set[Hashable]) -> float:
    return math.fsum(demand.rates.get(k, 1.0) for k in subscriptions)
