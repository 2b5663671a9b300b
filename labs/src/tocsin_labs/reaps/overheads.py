"""Figs 4b and 4c: the subscriptions that backups cost, and the most that one broker would have to create.

Four ways to choose: RND (the mean of some draws), LCS/MMCS (the paper's), ours (``search``), and the least that any
plan could have (``lab.optimum``): for ΣO over all plans, for max R with the locals that ours chose.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Final

import msgspec

from tocsin.core.assignment.costs import costs
from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.outcome import Plan
from tocsin.core.assignment.planning import plan
from tocsin.core.assignment.search.multistart import search
from tocsin.core.assignment.table import Table
from tocsin.sim.chance import Chance
from tocsin_labs.optimum import least_largest, least_sum
from tocsin_labs.reaps.parameters import Condition, Parameters
from tocsin_labs.reaps.retrieval import demanded
from tocsin_labs.reaps.workload import Workload

SOLVE_S: Final = 30.0  # for one bound by HiGHS


class Chosen(msgspec.Struct, frozen=True):
    """The costs of a strategy: ΣO and max R, and backups that have no room."""

    overhead: float
    largest: float
    short: float


class Overhead(msgspec.Struct, frozen=True):
    """All ways, on one network."""

    condition: str
    subscribers: int
    original: int  # (broker, k) pairs
    mean_original: float  # of a broker
    active: int  # the same under active replication, with the paper's plan
    active_random: int  # with one by chance
    random: Chosen
    paper: Chosen
    ours: Chosen
    bound: int  # of ΣO
    largest_bound: int  # of max R


def sweep(workload: Workload, given: Parameters, tell: Callable[[float], None]) -> list[Overhead]:
    """With ever more subscribers, and all the room there could be."""
    found: list[Overhead] = []
    for step, percent in enumerate(given.steps_percent):
        tell(step / len(given.steps_percent))
        subscribers = given.subscribers * percent // 100
        found.append(_compare("uniform", workload.demand(subscribers), subscribers, given))
    return found


def conditions(given: Parameters, tell: Callable[[float], None]) -> list[Overhead]:
    """With all subscribers, under other conditions."""
    found: list[Overhead] = []
    for number, each in enumerate(given.conditions):
        tell(number / len(given.conditions))
        found.append(_compare(each.name, _demand(given, each), given.subscribers, given))
    return found


def _active(demand: Demand, chosen: Plan) -> int:
    return sum(each.active_subscriptions for each in costs(demand, chosen).values())


def _demand(given: Parameters, condition: Condition) -> Demand:
    return Workload(given, regional=condition.regional).demand(room=condition.room)


def _compare(name: str, demand: Demand, subscribers: int, given: Parameters) -> Overhead:
    table, original = Table.of(demand), demanded(demand)
    chance = Chance(given.seed, f"RND {name} {subscribers}")
    draws = [plan(table, "random", chance) for _ in range(given.draws)]
    paper = plan(table, "lcs_mmcs")
    draft = search(table)
    ours = draft.outcome("search")
    return Overhead(
        condition=name,
        subscribers=subscribers,
        original=original,
        mean_original=original / len(demand.members),
        active=_active(demand, paper),
        active_random=_active(demand, draws[0]),
        random=Chosen(
            statistics.fmean(each.overhead_total for each in draws),
            statistics.fmean(each.remote_max for each in draws),
            statistics.fmean(len(each.shortfalls) for each in draws),
        ),
        paper=Chosen(paper.overhead_total, paper.remote_max, len(paper.shortfalls)),
        ours=Chosen(ours.overhead_total, ours.remote_max, len(ours.shortfalls)),
        bound=least_sum(draft, SOLVE_S).value,
        largest_bound=least_largest(draft, SOLVE_S).value if ours.remote_max else 0,
    )
