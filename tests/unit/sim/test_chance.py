"""Chance is the same everywhere, in range, and each purpose has its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.sim.chance import MILLION, Chance, Chances


def test_the_first_draws_of_a_seed_are_known() -> None:
    chance = Chance(7, "network")
    assert [chance.below(1_000) for _ in range(5)] == GOLDEN


GOLDEN = [835, 795, 553, 695, 501]


@given(st.integers(), st.integers(1, 1 << 40))
def test_a_draw_is_below_its_bound(seed: int, bound: int) -> None:
    chance = Chance(seed, "x")
    assert all(0 <= chance.below(bound) < bound for _ in range(20))


@given(st.integers(), st.integers(-1_000, 1_000), st.integers(0, 1_000))
def test_between_includes_both_ends(seed: int, low: int, more: int) -> None:
    drawn = Chance(seed, "x").between(low, low + more)
    assert low <= drawn <= low + more


def test_a_bound_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Chance(0, "x").below(0)


def test_what_never_happens_never_does_and_what_always_happens_does() -> None:
    chance = Chance(0, "x")
    assert not any(chance.happens(0) for _ in range(100))
    assert all(chance.happens(MILLION) for _ in range(100))


@given(st.integers(), st.lists(st.integers(), unique=True, min_size=1), st.integers(0, 20))
def test_some_of_draws_different_items(seed: int, items: list[int], count: int) -> None:
    drawn = Chance(seed, "x").some_of(items, count)
    assert len(drawn) == len(set(drawn)) == min(count, len(items))
    assert set(drawn) <= set(items)


def test_weights_are_kept() -> None:
    chance = Chance(3, "x")
    drawn = [chance.weighted((("rare", 1), ("never", 0), ("often", 9))) for _ in range(1_000)]
    assert "never" not in drawn
    assert 50 < drawn.count("rare") < 200


def test_a_draw_for_one_purpose_shifts_nothing_for_another() -> None:
    quiet, busy = Chances(5), Chances(5)
    busy.of("store").below(10)
    assert quiet.of("network").below(1 << 50) == busy.of("network").below(1 << 50)


def test_the_fingerprint_shows_every_draw() -> None:
    one, other = Chances(5), Chances(5)
    for chances in (one, other):
        chances.of("a"), chances.of("b")
    other.of("b").below(2)
    assert one.fingerprint() != other.fingerprint()
