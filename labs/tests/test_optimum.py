"""Bounds of plans against trying every plan there is."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.definitions import (
    assignments,
    feasible,
    matrices,
    nobody,
    objectives,
    workload,
)
from tests.unit.core.assignment.demands import demands, network
from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.paper import least_cost, min_max_cost
from tocsin.core.assignment.search.multistart import search
from tocsin.core.assignment.side import NOBODY
from tocsin.core.assignment.table import Table
from tocsin_labs import optimum
from tocsin_labs.optimum import Bound, least_largest, least_sum

HIGHS = importlib.util.find_spec("highspy") is not None
needs_highs = pytest.mark.skipif(not HIGHS, reason="highspy is not installed: pip install 'tocsin[optimize]'")

ways = st.sampled_from(["counting", *(["groups"] if HIGHS else [])])


@contextmanager
def limited(way: str) -> Iterator[None]:
    """Bounds made in this way alone."""
    with pytest.MonkeyPatch.context() as patched:
        if way == "counting":
            patched.setattr(optimum, "GROUPS_MAX", 0)
        yield


def drafted(demand: Demand) -> Draft:
    draft = Draft(Table.of(demand))
    least_cost(draft)
    min_max_cost(draft)
    return draft


@settings(max_examples=40)
@given(demands(least=2, most=5), ways)
def test_no_locals_have_less_in_sum_than_the_bound(demand: Demand, way: str) -> None:
    m = matrices(demand)
    brokers = range(len(m.names))
    options = [[j for j in brokers if j != i and m.e[i][j]] or [NOBODY] for i in brokers]
    sums = []
    for chosen in product(*options):
        x, y = nobody(m), nobody(m)
        for i, j in enumerate(chosen):
            if j != NOBODY:
                x[i][j] = 1
        if all(workload(m, x, y, j) < m.capacity[j] for j in brokers if any(x[i][j] for i in brokers)):
            sums.append(objectives(m, x, y)[0])
    with limited(way):
        bound = least_sum(drafted(demand))
    if sums:
        assert bound.value <= min(sums)
        event("met" if bound.value == min(sums) else "below")
        if bound.exact:
            assert bound.value == min(sums)


@settings(max_examples=40)
@given(demands(least=2, most=5), ways)
def test_no_remotes_have_less_at_the_largest_than_the_bound(demand: Demand, way: str) -> None:
    m = matrices(demand)
    brokers = range(len(m.names))
    draft = drafted(demand)
    x = nobody(m)
    for i, j in enumerate(draft.local.chosen.tolist()):
        if j != NOBODY:
            x[i][j] = 1
    options = [[j for j in brokers if not m.e[i][j]] or [NOBODY] for i in brokers]
    largest = []
    for chosen in product(*options):
        y = nobody(m)
        for i, j in enumerate(chosen):
            if j != NOBODY:
                y[i][j] = 1
        if all(workload(m, x, y, j) < m.capacity[j] for j in brokers if any(y[i][j] for i in brokers)):
            largest.append(objectives(m, x, y)[1])
    with limited(way):
        bound = least_largest(draft)
    if largest:
        assert bound.value <= min(largest)
        if bound.exact:
            assert bound.value == min(largest)


@needs_highs
@pytest.mark.parametrize("room", [math.inf, 4.0])
def test_small_networks_are_solved_and_the_search_is_close(room: float) -> None:
    demand = network(12, 2, 60, 40, room=room)
    plan = search(Table.of(demand))
    least, largest = least_sum(plan), least_largest(plan)
    assert least.exact
    assert largest.exact
    assert least.value <= plan.local.cost.sum() <= 1.05 * least.value
    assert largest.value <= plan.remote.cost.max() <= 1.2 * largest.value
    m = matrices(demand)
    assert feasible(m, *assignments(m, plan.outcome("search")))  # the bounds have changed nothing in it


def test_larger_networks_have_a_bound_by_counting() -> None:
    demand = network(40, 2, 200, 150, room=12.0)
    draft = drafted(demand)
    least, largest = least_sum(draft), least_largest(draft)
    assert (least.how, least.exact) == ("counting", False)
    assert 0.5 * draft.local.cost.sum() < least.value <= draft.local.cost.sum()
    assert 0 < largest.value <= draft.remote.cost.max()


def test_a_gap_is_the_share_that_a_plan_might_do_without() -> None:
    assert Bound(90, False, "counting").gap(100) == pytest.approx(0.1)
    assert Bound(0, True, "groups").gap(0) == 0
