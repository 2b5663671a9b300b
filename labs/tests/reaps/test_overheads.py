"""The costs of plans, as the figures have them."""

from __future__ import annotations

from labs.tests.reaps.small import SMALL, quiet
from tocsin.core.assignment.planning import plan
from tocsin_labs.reaps import overheads
from tocsin_labs.reaps.workload import Workload


def test_ours_is_never_worse_than_the_papers_and_no_bound_is_beaten() -> None:
    rows = [*overheads.sweep(Workload(SMALL), SMALL, quiet), *overheads.conditions(SMALL, quiet)]
    assert [row.condition for row in rows] == ["uniform", "uniform", "uniform", "tight", "regional"]
    for row in rows:
        if row.ours.short == row.paper.short:
            assert row.ours.overhead <= row.paper.overhead
            assert row.ours.largest <= row.paper.largest
        if row.ours.short == row.paper.short == 0:
            assert row.bound <= row.ours.overhead
            assert row.largest_bound <= row.ours.largest


def test_the_figures_are_those_of_the_plans() -> None:
    workload = Workload(SMALL)
    row = overheads.sweep(workload, SMALL, quiet)[-1]
    chosen = plan(workload.demand(), "lcs_mmcs")
    assert (row.paper.overhead, row.paper.largest) == (chosen.overhead_total, chosen.remote_max)
    assert row.original == len(set(workload.homes))
    assert row.original <= row.active <= row.active_random
