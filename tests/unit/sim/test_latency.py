"""Latencies are tables of quantiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.sim.chance import Chance
from tocsin.sim.latency import LATENCY_MAX_US, LOCAL_NETWORK, QUANTILES, WIDE_AREA, Latency


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 1_000))
def test_a_uniform_latency_stays_within_its_ends(low: int, more: int, seed: int) -> None:
    latency = Latency.uniform(low, low + more)
    assert (latency.least_us, latency.most_us) == (low, low + more)
    assert low <= latency.draw(Chance(seed, "x").bits) <= low + more


@given(st.lists(st.integers(0, 1_000_000), min_size=2, max_size=6).map(sorted))
def test_points_are_hit_and_the_table_rises(values: list[int]) -> None:
    steps = [place * 1_000 // (len(values) - 1) for place in range(len(values))]
    table = Latency.from_points(list(zip(steps, values, strict=True))).quantiles
    assert (table[0], table[-1]) == (values[0], values[-1])
    assert list(table) == sorted(table)


def test_a_constant_latency_is_constant() -> None:
    assert set(Latency.constant(7).quantiles) == {7}


def test_half_of_a_long_tail_is_within_the_median() -> None:
    assert LOCAL_NETWORK.quantiles[QUANTILES // 2] in range(295, 320)
    assert WIDE_AREA.most_us == 400_000
    assert repr(LOCAL_NETWORK).startswith("Latency(150…")


@pytest.mark.parametrize(
    "quantiles",
    [(1,) * 3, (-1,) * QUANTILES, (LATENCY_MAX_US + 1,) * QUANTILES, (2, *(1,) * (QUANTILES - 1))],
)
def test_a_table_that_is_none_is_refused(quantiles: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="quantiles"):
        Latency(quantiles)


@pytest.mark.parametrize(
    "points", [((0, 1),), ((1, 1), (1_000, 2)), ((0, 1), (500, 2), (500, 3), (1_000, 4))]
)
def test_points_that_are_none_are_refused(points: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="points"):
        Latency.from_points(points)
