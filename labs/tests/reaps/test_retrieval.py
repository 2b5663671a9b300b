"""What brokers fetch, against what the planner's own equations say that it must be."""

from __future__ import annotations

import msgspec
import pytest

from labs.tests.reaps.small import SMALL, quiet
from tocsin.core.assignment.costs import costs
from tocsin.core.assignment.planning import plan
from tocsin_labs.reaps import retrieval
from tocsin_labs.reaps.retrieval import MB, REAPS
from tocsin_labs.reaps.workload import SECOND_US, Workload


def test_over_whole_periods_a_broker_fetches_exactly_what_the_equations_say() -> None:
    given = msgspec.structs.replace(SMALL, period_s=(10, 12), steps_percent=(100,), retrieval_s=660)
    workload = Workload(given)
    assert all(660 * SECOND_US % period == 0 for period in workload.periods_us)
    found = {each.scheme: each for each in retrieval.run(workload, given, quiet)}
    demand = workload.demand()
    expected = costs(demand, plan(demand, "lcs_mmcs")).values()
    own = sum(each.quasi_active_rate for each in expected) / len(workload.brokers)
    active = sum(each.active_rate for each in expected) / len(workload.brokers)
    assert found[REAPS].mean_mb_s == pytest.approx(own / MB)
    assert found["AR, LCS/MMCS"].mean_mb_s == pytest.approx(active / MB)
    assert found["AR, LCS/MMCS"].largest_mb_s == pytest.approx(
        max(each.active_rate for each in expected) / MB
    )


def test_active_replication_fetches_more_and_quasi_active_only_hears_more() -> None:
    found = retrieval.run(Workload(SMALL), SMALL, quiet)
    last = {each.scheme: each for each in found if each.subscribers == SMALL.subscribers}
    assert len(found) == 2 * len(last) == 8
    assert last["AR, RND"].mean_mb_s > last[REAPS].mean_mb_s
    own = sum(len(held) for held in Workload(SMALL).holdings().values())
    assert last[REAPS].heard_s > 0 and own > 0
    assert last["AR, RND"].heard_s >= last[REAPS].heard_s
