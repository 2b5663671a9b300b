"""Delays as distributions."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.links.delay import (
    HALF_US,
    LONGEST_US,
    MILLION,
    Delay,
    DelayHistogram,
    Part,
    convolve,
    miss_of_twins,
    predicted,
)

SAMPLES = st.lists(st.integers(0, LONGEST_US), min_size=1, max_size=200)


def sampled(samples: list[int], lost: int = 0) -> Delay:
    histogram = DelayHistogram()
    for each in samples:
        histogram.add(each, 0)
    histogram.lost(lost, 0)
    delay = histogram.delay(0)
    assert delay is not None
    return delay


def steady(us: int) -> Delay:
    return Delay((Part(us, us, 6_400),), samples=100)


def test_nothing_is_known_without_a_sample() -> None:
    assert DelayHistogram().delay(0) is None


def test_a_steady_way_has_one_delay() -> None:
    delay = sampled([25_000] * 10)
    assert delay.parts == (Part(25_000, 25_000, delay.total),)
    assert delay.miss(25_000) == 0
    assert delay.miss(24_999) == 1


@given(SAMPLES, st.lists(st.integers(0, MILLION), max_size=5))
def test_quantiles_rise_within_what_was_sampled(samples: list[int], levels: list[int]) -> None:
    delay = sampled(samples)
    points = [delay.quantile(each) for each in (0, *sorted(levels), MILLION)]
    assert points == sorted(points)
    assert (points[0], points[-1]) == (min(samples), max(samples))
    assert (delay.floor_us, delay.samples) == (min(samples), len(samples))


@given(SAMPLES, st.integers(0, LONGEST_US), st.integers(0, LONGEST_US))
def test_a_longer_budget_never_misses_more(samples: list[int], one: int, other: int) -> None:
    delay = sampled(samples)
    assert 0 <= delay.miss(max(one, other)) <= delay.miss(min(one, other)) <= 1


def test_one_slow_message_of_a_hundred_is_seen() -> None:
    delay = sampled([20_000 + each for each in range(990)] + [300_000] * 10)
    assert delay.miss(100_000) == pytest.approx(0.01, abs=0.001)


def test_what_is_lost_misses_every_budget() -> None:
    assert sampled([1_000] * 90, lost=10).miss(LONGEST_US) == pytest.approx(0.1)


def test_old_samples_fade() -> None:
    histogram = DelayHistogram()
    for _ in range(100):
        histogram.add(500_000, 0)
    for _ in range(100):
        histogram.add(1_000, 5 * HALF_US)
    delay = histogram.delay(5 * HALF_US)
    assert delay is not None
    assert delay.miss(2_000) == pytest.approx(0.03, abs=0.01)
    assert histogram.delay(100 * HALF_US) is None


def test_what_exceeds_the_least_round_trip_counts_for_the_way_there() -> None:
    there = sampled([20_000, 22_000, 220_000]).one_way()
    assert [each.high_us for each in there.parts] == [10_000, 12_000, 210_000]
    assert there.floor_us == 10_000


def test_repeated_segments_are_a_tail() -> None:
    there = steady(25_000).repeating(20_000, 250_000)
    assert there.miss(100_000) == pytest.approx(0.02, abs=0.001)
    assert there.repeating(20_000, 250_000).miss(100_000) == pytest.approx(there.miss(100_000), abs=0.001)
    assert steady(25_000).repeating(0, 250_000).miss(100_000) == 0


def test_legs_one_behind_the_other_add_up() -> None:
    assert convolve(steady(10_000), steady(15_000)).quantile(MILLION) == 25_000
    assert predicted(steady(1_000), steady(2_000), steady(3_000)).floor_us == 6_000


def test_misses_of_two_legs_are_near_to_those_by_chance() -> None:
    chance = random.Random(1)
    legs = [[int(1_000 * base + chance.expovariate(1 / 5_000)) for _ in range(4_000)] for base in (10, 30)]
    both = convolve(sampled(legs[0]), sampled(legs[1]))
    for budget_us in (45_000, 50_000, 60_000, 70_000):
        found = sum(chance.choice(legs[0]) + chance.choice(legs[1]) > budget_us for _ in range(20_000))
        assert found / 20_000 - 0.01 <= both.miss(budget_us) <= 1.5 * found / 20_000 + 0.01


@given(SAMPLES, SAMPLES)
def test_a_way_of_two_legs_is_no_quicker_than_both(first: list[int], second: list[int]) -> None:
    one, other = sampled(first), sampled(second)
    both = convolve(one, other)
    assert both.floor_us == one.floor_us + other.floor_us
    assert both.quantile(MILLION) == one.quantile(MILLION) + other.quantile(MILLION)


def test_a_twin_helps_against_losses() -> None:
    lossy = steady(25_000).repeating(20_000, 250_000)
    alone = lossy.miss(100_000)
    assert miss_of_twins(lossy, 100_000) <= alone * alone + 1e-9


def test_a_twin_does_not_help_against_a_slow_way() -> None:
    slow = Delay((Part(25_000, 160_000, 100),), repeated_ppm=0)
    assert miss_of_twins(slow, 100_000) == pytest.approx(slow.miss(100_000))


def test_a_twin_does_not_help_where_the_floor_is_beyond_the_budget() -> None:
    assert miss_of_twins(steady(50_000), 40_000) == 1


def test_a_twin_helps_no_more_than_the_kernel_repeats() -> None:
    queue = Delay((Part(5_000, 6_000, 90), Part(300_000, 300_000, 10)), repeated_ppm=1_000)
    assert miss_of_twins(queue, 100_000) >= queue.miss(100_000) - 0.004


def test_a_change_by_a_quarter_is_worth_a_judgement() -> None:
    assert not steady(20_000).differs(steady(24_000))
    assert steady(20_000).differs(steady(28_000))
    assert not steady(400).differs(steady(900))
    assert sampled([1_000] * 9, lost=1).differs(steady(1_000))
