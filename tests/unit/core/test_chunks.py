"""Sequences are cut into parts that keep to the bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.chunks import PART_MAX_BYTES, split


@given(st.lists(st.integers(1, PART_MAX_BYTES * 2), max_size=40))
def test_runs_keep_every_item_in_order_and_stay_within_the_bound(sizes: list[int]) -> None:
    runs = split(sizes, lambda size: size)
    assert [size for run in runs for size in run] == sizes
    for run in runs:
        assert sum(run) <= PART_MAX_BYTES or len(run) == 1


def test_nothing_is_still_one_run() -> None:
    assert split([], len) == [()]
