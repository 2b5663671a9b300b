"""The measurement of detection measures what it says."""

from __future__ import annotations

import math

import pytest

from bench.detection.figures import Figures
from bench.detection.peer import CONTENDERS, Contender
from bench.detection.virtual import CONDITIONS, measure

UNTIL_US = 100_000_000  # two kills


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda each: each.name)
def test_each_detector_misses_only_killed_brokers_on_a_good_network(
    contender: Contender,
) -> None:
    figures = measure(contender, CONDITIONS["calm"], UNTIL_US)
    assert (len(figures.times_s), figures.missed, figures.false) == (2, 0, 0)
    assert max(figures.times_s) <= contender.membership.suspect_after_ms / 1_000


def test_an_equally_fast_timeout_accuses_more_at_a_slow_coordinator() -> None:
    ours, fixed = CONTENDERS[1], CONTENDERS[4]
    slow = CONDITIONS["coordinators pause 0.3-1.5 s"]
    assert measure(ours, slow, UNTIL_US).false < measure(fixed, slow, UNTIL_US).false


def test_rates_are_of_one_broker_and_hour() -> None:
    figures = Figures(brokers=10, seconds=360.0, times_s=[1.0, 3.0, 2.0], false=5)
    assert (figures.median_s, figures.longest_s, figures.false_per_hour) == (2.0, 3.0, 5.0)
    assert math.isnan(Figures(brokers=1, seconds=1.0).median_s)
