"""How many members a tier should have: by a forecast, with patience, and never out of its bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.tiers.elasticity import AHEAD_US, SHRINK_AFTER_US, Elasticity, Forecast, GrowthRules

SECOND = 1_000_000
STEP = 2_500_000
RULES = GrowthRules(least=2, most=8)
SPEED = 1_000.0


def run(
    load: Callable[[int], float], until_us: int, members: int = 2, rules: GrowthRules = RULES
) -> Iterator[tuple[int, int]]:
    """When the tier changed and to how many, if members come and go at once."""
    machine = Elasticity(rules)
    for now_us in range(0, until_us, STEP):
        wanted = machine.look(load(now_us), SPEED, members, now_us)
        if wanted != members:
            yield now_us, wanted
            members = wanted


def test_a_forecast_follows_a_line() -> None:
    forecast = Forecast()
    for at_us in range(0, 200 * SECOND, STEP):
        forecast.see(10 * at_us / SECOND, at_us)
    assert forecast.ahead(AHEAD_US) == pytest.approx(10 * (197.5 + 60), rel=0.02)
    for at_us in range(200 * SECOND, 500 * SECOND, STEP):
        forecast.see(0.0, at_us)
    assert forecast.ahead(AHEAD_US) == pytest.approx(0.0, abs=5)


def test_a_tier_grows_before_a_load_that_rises_is_there() -> None:
    changes = list(run(lambda now_us: 8 * now_us / SECOND, 400 * SECOND))
    assert [count for _, count in changes] == sorted(count for _, count in changes)
    for now_us, count in changes:  # what comes within the minute fits
        assert 8 * now_us / SECOND < 0.7 * SPEED * count
    first_us, _ = changes[0]
    assert 8 * first_us / SECOND < 0.7 * SPEED * 2  # it was not full yet
    assert changes[-1][1] >= 5


def test_a_load_that_jumps_is_met_by_several_members_at_once() -> None:
    changes = list(run(lambda now_us: 300.0 if now_us < 60 * SECOND else 4_000.0, 200 * SECOND))
    assert changes[0][0] <= 80 * SECOND and changes[0][1] >= 4
    assert changes[-1][1] in (7, 8)


def test_a_peak_of_a_moment_changes_nothing() -> None:
    assert list(run(lambda now_us: 1_300.0 if now_us == 60 * SECOND else 900.0, 200 * SECOND)) == []


def test_a_tier_shrinks_one_by_one_after_a_long_quiet() -> None:
    changes = list(run(lambda now_us: 100.0, 1_600 * SECOND, members=5))
    assert [count for _, count in changes] == [4, 3, 2]
    times = [now_us for now_us, _ in changes]
    assert all(later - sooner >= SHRINK_AFTER_US for sooner, later in zip([0, *times], times, strict=False))


def test_after_a_change_nothing_changes_for_the_cooldown() -> None:
    changes = list(run(lambda now_us: min(6_000.0, 30 * now_us / SECOND), 300 * SECOND))
    times = [now_us for now_us, _ in changes]
    assert all(later - sooner >= RULES.cooldown_us for sooner, later in pairwise(times))


def test_nothing_grows_while_nobody_was_ever_busy() -> None:
    machine = Elasticity(RULES)
    assert {machine.look(1e6, 0.0, 3, now_us) for now_us in range(0, 60 * SECOND, STEP)} == {3}


def test_a_tier_without_rules_is_as_large_as_it_is() -> None:
    machine = Elasticity(GrowthRules())
    assert {machine.look(1e6, 1.0, 3, now_us) for now_us in range(0, 600 * SECOND, STEP)} == {3}


@given(st.lists(st.floats(0, 20_000), min_size=1, max_size=200), st.integers(1, 6), st.integers(0, 6))
def test_a_tier_is_never_out_of_its_bounds(loads: list[float], least: int, more: int) -> None:
    rules = GrowthRules(least, least + more, 10 * SECOND, 20 * SECOND)
    machine, members = Elasticity(rules), least
    for step, load in enumerate(loads):
        members = machine.look(load, SPEED, members, step * STEP)
        assert least <= members <= least + more
