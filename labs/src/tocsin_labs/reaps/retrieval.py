"""Fig 4a: how much each broker fetches from the backend, with quasi-active and with active replication.

REAPS fetches what its own subscribers asked for; as a local backup it hears of more, which is a line a result. Under
active replication (AR) a broker also fetches the results of the brokers that it backs, for every choice of backups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.outcome import Plan
from tocsin.core.assignment.planning import Strategy, plan
from tocsin.core.assignment.table import Floats
from tocsin.sim.chance import Chance
from tocsin.sim.schedule import Schedule
from tocsin_labs.reaps.backend import Backend
from tocsin_labs.reaps.parameters import Parameters
from tocsin_labs.reaps.workload import SECOND_US, Flags, Workload

MB: Final = 1_000_000
STRATEGIES: Final[dict[Strategy, str]] = {"random": "RND", "lcs_mmcs": "LCS/MMCS", "search": "ours"}
REAPS: Final = "REAPS"


class Retrieved(msgspec.Struct, frozen=True):
    """The retrieval of one scheme, with so many subscribers: MB a second that a broker fetches, and results a second it
    hears of.
    """

    subscribers: int
    scheme: str
    mean_mb_s: float
    largest_mb_s: float
    heard_s: float


def run(workload: Workload, given: Parameters, tell: Callable[[float], None]) -> list[Retrieved]:
    """All schemes, with ever more subscribers."""
    found: list[Retrieved] = []
    for step, percent in enumerate(given.steps_percent):
        tell(step / len(given.steps_percent))
        subscribers = given.subscribers * percent // 100
        demand = workload.demand(subscribers)
        chance = Chance(given.seed, f"RND {percent}")
        plans = {strategy: plan(demand, strategy, chance) for strategy in STRATEGIES}
        own = workload.held(demand)
        schemes = {REAPS: (own, own | _backed(workload, own, plans["lcs_mmcs"], remote=False))}
        for strategy, name in STRATEGIES.items():
            every = own | _backed(workload, own, plans[strategy], remote=True)
            schemes[f"AR, {name}"] = (every, every)
        for name, (fetched, heard) in schemes.items():
            rates = observe(workload, fetched, given.retrieval_s)
            heard_s = float(observe(workload, heard, given.retrieval_s, count=True).mean())
            mean, largest = float(rates.mean()) / MB, float(rates.max()) / MB
            found.append(Retrieved(subscribers, name, mean, largest, heard_s))
    return found


def _backed(workload: Workload, own: Flags, chosen: Plan, *, remote: bool) -> Flags:
    """The subscriptions that brokers hold for those that they back."""
    row = {name: at for at, name in enumerate(workload.brokers)}
    flags = np.zeros_like(own)
    for broker, backups in chosen.backups.items():
        for backup in (backups.local, backups.remote if remote else None):
            if backup is not None:
                flags[row[backup]] |= own[row[broker]]
    return flags


def observe(workload: Workload, held: Flags, seconds: int, *, count: bool = False) -> Floats:
    """Run for so many seconds: the bytes a second that each broker fetches of what it holds, or results a second."""
    schedule = Schedule()
    backend = Backend(workload, schedule)
    total = np.zeros(len(workload.brokers), dtype=np.float64)
    sizes = np.ones(len(workload.sizes)) if count else np.array(workload.sizes, dtype=np.float64)
    each = [
        held[:, list(ks)] @ sizes[list(ks)]
        for ks in map(workload.of_channel, range(len(workload.periods_us)))
    ]

    def fetch(channel: int, number: int) -> None:
        np.add(total, each[channel], out=total)

    backend.listeners.append(fetch)
    schedule.run_until(seconds * SECOND_US)
    return total / seconds


def demanded(demand: Demand) -> int:
    """Original subscriptions: (broker, k) pairs."""
    return sum(len(held) for held in demand.holdings.values())
