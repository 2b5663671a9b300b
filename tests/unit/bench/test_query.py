"""The measurement of the indexes, small: it compares every answer with the peers' before it times anything."""

from __future__ import annotations

import random

import pytest

from bench.matching.figures import Point, growth_of, slope
from bench.matching.peers import ask_all
from bench.matching.workloads import WORKLOADS, Workload
from bench.query import Plan, measure_changes, measure_queries

SMALL = Plan((60, 600), 3, 0.2, 0.1)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.name)
def test_each_workload_is_measured_at_every_size(workload: Workload) -> None:
    changes, _ = measure_changes(workload, SMALL)
    queries, _ = measure_queries(workload, SMALL)
    assert {(each.how, each.size) for each in changes} == {
        (how, size) for how in ("index", "all", "keys") for size in SMALL.sizes
    }
    assert {(each.how, each.size) for each in queries} == {
        (how, size) for how in ("index", "all") for size in SMALL.sizes
    }
    assert all(0 < each.p50_us <= each.p95_us for each in (*changes, *queries))


@pytest.mark.parametrize(
    ("name", "turned"), [("building", (100, 100)), ("ranges", (99, 101)), ("adversarial", (0, 2))]
)
def test_as_many_queries_turn_as_the_workload_says(name: str, turned: tuple[int, int]) -> None:
    workload = next(each for each in WORKLOADS if each.name == name)
    queries = {i: workload.query(i) for i in range(1_000)}
    before, after = workload.change(random.Random(5), 1_000)
    held = {i for i, query in queries.items() if query.matches(before)}
    entered, left = ask_all(queries, held, after)
    assert turned[0] <= len(entered) + len(left) <= turned[1]


def test_the_slope_is_the_power_of_the_growth() -> None:
    assert slope([(10, 7), (100, 7), (1_000, 7)]) == pytest.approx(0)
    assert slope([(10, 30), (100, 300), (1_000, 3_000)]) == pytest.approx(1)
    assert slope([(10, 100), (100, 10_000)]) == pytest.approx(2)


def test_each_curve_has_its_growth() -> None:
    points = [
        Point(workload="w", task="change", how=how, size=size, answers=1, p50_us=us, p95_us=us)
        for how, size, us in (("index", 10, 5.0), ("index", 100, 5.0), ("all", 10, 5.0), ("all", 100, 50.0))
    ]
    assert [(each.how, round(each.slope, 6)) for each in growth_of(points)] == [("index", 0), ("all", 1)]
