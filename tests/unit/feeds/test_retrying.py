"""When a feed that failed is tried again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.feeds.retrying import FIRST_S, LONGEST_S, Retrying


def test_pauses_double_up_to_the_longest() -> None:
    retrying = Retrying()
    pauses = [retrying.failed(0.0) for _ in range(10)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses[-1] == LONGEST_S


def test_who_went_well_for_long_begins_anew() -> None:
    retrying = Retrying()
    for _ in range(5):
        retrying.failed(0.0)
    assert retrying.failed(LONGEST_S) == FIRST_S


@given(st.lists(st.floats(0, 200), max_size=2_000))
def test_pauses_are_never_shorter_than_the_first_nor_longer_than_the_longest(runs: list[float]) -> None:
    retrying = Retrying()
    assert all(FIRST_S <= retrying.failed(each) <= LONGEST_S for each in runs)
