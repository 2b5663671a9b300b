"""The measurement of detection measures what it says."""

from __future__ import annotations

import math

import pytest

from bench.detection.figures import Figures
from bench.detection.peer import CONTENDERS, Contender
from bench.detection.virtual import CONDITIONS, measure

UNTIL_US = 100_000_000  # two kills


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda each: each.name)
def test_each_contender_misses_whoever_is_killed_and_nobody_else_where_all_is_well(
    contender: Contender,
) -> None:
    figures = measure(contender, CONDITIONS["calm"], UNTIL_US)
    assert (len(figures.times_s), figures.missed, figures.false) == (2, 0, 0)
    assert max(figures.times_s) <= contender.membership.suspect_after_ms / 1_000


def test_a_time_out_that_is_as_quick_accuses_more_where_a_coordinator_is_slow() -> None:
    ours, fixed = CONTENDERS[1], CONTENDERS[4]
    slow = CONDITIONS["coordinators pause 0.3-1.5 s"]
    assert measure(ours, slow, UNTIL_US).false < measure(fixed, slow, UNTIL_US).false


def test_rates_are_of_one_broker_and_hour() -> None:
    figures = Figures(brokers=10, seconds=360.0, times_s=[1.0, 3.0, 2.0], false=5)
    assert (figures.median_s, figures.longest_s, figures.false_per_hour) == (2.0, 3.0, 5.0)
    assert math.isnan(Figures(brokers=1, seconds=1.0).median_s)
