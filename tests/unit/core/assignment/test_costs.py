"""What replication costs, quasi-active and active, against sets."""

from __future__ import annotations

import math

from hypothesis import given

from tests.unit.core.assignment.demands import chance, demands, network
from tocsin.core.assignment.costs import costs
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.outcome import Backups
from tocsin.core.assignment.planning import plan


def test_active_backups_fetch_all_and_quasi_active_ones_only_their_own() -> None:
    members = (Member("a", "n"), Member("b", "n"), Member("c", "s"))
    demand = Demand(members, {"a": {1: 5, 2: 1}, "b": {2: 1, 3: 1}, "c": {4: 0}}, {1: 10.0, 3: 0.5})
    made = plan(demand, "lcs_mmcs")
    assert made.backups["a"] == Backups("b", "c")
    of_b, of_c = costs(demand, made)["b"], costs(demand, made)["c"]
    assert (of_b.own_subscriptions, of_b.quasi_active_subscriptions, of_b.active_subscriptions) == (2, 3, 3)
    assert (of_b.quasi_active_rate, of_b.active_rate) == (1.5, 11.5)
    assert (of_c.own_subscriptions, of_c.quasi_active_subscriptions, of_c.active_subscriptions) == (0, 0, 3)
    assert (of_c.quasi_active_rate, of_c.active_rate) == (0, 11.5)


@given(demands())
def test_active_replication_never_costs_less(demand: Demand) -> None:
    made = plan(demand, "lcs_mmcs")
    found = costs(demand, made)
    for each in found.values():
        assert each.own_subscriptions <= each.quasi_active_subscriptions <= each.active_subscriptions
        assert each.quasi_active_rate <= each.active_rate
    quasi = sum(each.quasi_active_subscriptions - each.own_subscriptions for each in found.values())
    assert quasi == made.overhead_total
    active = sum(each.active_subscriptions - each.own_subscriptions for each in found.values())
    assert active == made.overhead_total + sum(made.remote_overhead.values())


def test_similar_backups_make_active_replication_cheaper_too() -> None:
    demand = network(30, 3, 200, 100, room=4)
    searched, drawn = (
        math.fsum(each.active_rate for each in costs(demand, made).values())
        for made in (plan(demand), plan(demand, "random", chance()))
    )
    assert searched < drawn
