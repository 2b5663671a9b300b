"""The measurement of plans, small: every network is planned by every strategy and held against its bounds."""

from __future__ import annotations

import pytest

from bench.assignment import rates
from bench.assignment.networks import SUBSCRIBERS, Network, adversarial, networks
from bench.assignment.run import compare, grow, growth_of
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.planning import plan


@pytest.mark.parametrize("network", networks(9), ids=lambda each: each.name)
def test_on_each_network_the_bound_holds_and_the_search_is_no_worse(network: Network) -> None:
    row = compare(network, 1.0)
    drawn, paper, ours = row.reached
    assert [each.strategy for each in row.reached] == ["random", "lcs_mmcs", "search"]
    assert ours.short <= paper.short
    if ours.short == paper.short == 0:
        assert row.bound <= ours.overhead <= paper.overhead
        assert row.largest_bound <= ours.largest <= paper.largest
        assert ours.overhead <= drawn.overhead


def test_the_adversarial_network_misleads_whoever_takes_brokers_in_turn() -> None:
    demand = adversarial(60, 1)
    assert plan(demand).overhead_total <= plan(demand, "lcs_mmcs").overhead_total / 2


@pytest.mark.parametrize(
    ("kind", "sizes", "brokers"),
    [("dense", (6, 12), [6, 12]), ("sparse", (6, 12), [6, 12]), ("wide", (5, 10), [100, 100])],
)
def test_growth_is_measured_and_a_lost_broker_moves_few(
    kind: str, sizes: tuple[int, ...], brokers: list[int]
) -> None:
    points = [grow(kind, size) for size in sizes]
    assert [each.brokers for each in points] == brokers
    assert points[0].pairs < points[1].pairs
    assert all(each.orphaned <= each.moved for each in points)
    assert {each.what for each in growth_of(points)} == {"read", "random", "paper", "search", "replan"}


def test_a_plan_by_data_keeps_capacities_that_one_by_pairs_breaks() -> None:
    by_data, by_pairs = rates.rated(24, 6.0)
    assert {each.capacity for each in by_pairs.members} == {6.0 * SUBSCRIBERS}
    found = {
        demand is by_data: rates.loaded(plan(demand), by_data, 6.0, "search", by_data=demand is by_data)
        for demand in (by_data, by_pairs)
    }
    assert found[True].over == 0 and found[True].fullest < 1
    assert found[False].over > 0 and found[False].fullest > 1
    assert "planned by pairs" in rates.words(found[False])


def test_a_plans_load_is_a_brokers_own_and_what_it_backs() -> None:
    members = tuple(Member(name, name[0], 100.0) for name in ("a1", "a2", "b1"))
    truth = Demand(members, {"a1": {"k": 2}, "a2": {"l": 1}, "b1": {}}, {"k": 5.0, "l": 40.0})
    made = plan(truth)
    found = rates.loaded(made, truth, 1.0, "search", by_data=True)
    carried = {"a1": 10.0, "a2": 40.0, "b1": 0.0}
    for name, own in (("a1", 10.0), ("a2", 40.0)):
        for backup in (made.backups[name].local, made.backups[name].remote):
            if backup is not None:
                carried[backup] += own
    assert found.fullest == max(carried.values()) / 100
