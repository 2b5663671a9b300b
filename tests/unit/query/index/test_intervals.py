"""Intervals and ordered maps against lists that are searched from end to end."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.query.index import bag, intervals, ordered
from tocsin.query.index.intervals import IntervalIndex
from tocsin.query.index.ordered import OrderedMap

NUMBERS = st.one_of(
    st.integers(-9, 9).map(float),
    st.sampled_from([-0.0, 0.5, 20.5, -inf, inf, 2.0**53, -1e300, 5e-324]),
    st.floats(allow_nan=False),
)
ENDS = st.tuples(NUMBERS, NUMBERS).map(lambda ends: (min(ends), max(ends)))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few intervals do what takes many: blocks divide, nodes are sorted, lists become dictionaries."""
    monkeypatch.setattr(ordered, "BLOCK", 2)
    monkeypatch.setattr(intervals, "WIDE", 3)
    monkeypatch.setattr(bag, "FEW", 2)


@given(
    st.lists(st.tuples(ENDS, st.integers(0, 3)), max_size=60, unique=True),
    st.lists(st.integers(0, 59), max_size=60),
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8),
)
@settings(max_examples=300)
def test_intervals_are_found_as_by_looking_at_each(
    added: list[tuple[tuple[float, float], int]], removed: list[int], moves: list[tuple[float, float]]
) -> None:
    index: IntervalIndex[int] = IntervalIndex()
    for (low, high), member in added:
        index.add(low, high, member)
    model = dict.fromkeys(added)
    for place in removed:
        if place < len(added) and added[place] in model:
            (low, high), member = added[place]
            index.remove(low, high, member)
            del model[added[place]]
    assert sorted(index.members()) == sorted(member for _, member in model)
    for old, new in moves:
        hold = {x: {each for each in model if each[0][0] <= x <= each[0][1]} for x in (old, new)}
        assert sorted(index.holding(old)) == sorted(member for _, member in hold[old])
        assert set(index.crossing(old, new)) == {member for _, member in hold[old] ^ hold[new]}


def test_every_interval_of_a_grid_is_found_at_every_value_and_move() -> None:
    grid = [number / 2 for number in range(-9, 10)]
    index: IntervalIndex[tuple[float, float]] = IntervalIndex()
    ends = [(low, high) for low in grid for high in grid if low <= high]
    for low, high in ends:
        index.add(low, high, (low, high))
    hold = {value: {each for each in ends if each[0] <= value <= each[1]} for value in grid}
    for old in grid:
        assert sorted(index.holding(old)) == sorted(hold[old])
        for new in grid:
            assert set(index.crossing(old, new)) == hold[old] ^ hold[new]


def test_an_index_that_was_emptied_holds_nothing() -> None:
    index: IntervalIndex[str] = IntervalIndex()
    ends = [(float(low), float(low + width)) for low in range(-9, 9) for width in (0, 1, 40)]
    for low, high in ends:
        index.add(low, high, "a")
        index.add(low, high, "b")
    for low, high in ends:
        index.remove(low, high, "b")
        index.remove(low, high, "a")
    assert len(index) == 0
    assert list(index.holding(0.0)) == []
    assert not index._nodes
    assert index._used == ()


def test_a_move_does_not_look_at_intervals_that_hold_both_values(monkeypatch: pytest.MonkeyPatch) -> None:
    index: IntervalIndex[int] = IntervalIndex()
    for number in range(1_000):
        index.add(float(number), inf, number)
        index.add(-inf, float(number), -number)
    seen: list[float] = []
    holds = intervals._Interval.holds

    def count(interval: intervals._Interval[int], value: float) -> bool:
        seen.append(value)
        return holds(interval, value)

    monkeypatch.setattr(intervals._Interval, "holds", count)
    assert sorted(index.crossing(500.5, 502.5)) == [-502, -501, 501, 502]
    assert len(seen) <= 20


@given(
    st.lists(st.tuples(st.booleans(), NUMBERS), max_size=80),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5),
)
def test_an_ordered_map_is_a_dictionary_with_ranges(
    steps: list[tuple[bool, float]], ranges: list[tuple[float, float]]
) -> None:
    tested: OrderedMap[float, int] = OrderedMap()
    model: dict[float, int] = {}
    for turn, (put, number) in enumerate(steps):
        if put:
            tested.put(number, turn)
            model[number] = turn
        elif number in model:
            assert tested.pop(number) == model.pop(number)
        assert tested.get(number) == model.get(number)
    assert len(tested) == len(model)
    for low, high in [*ranges, (-inf, inf)]:
        expected = [model[number] for number in sorted(model) if low <= number <= high]
        assert list(tested.between(low, high)) == expected
        assert (tested.estimate(low, high) > 0) == bool(expected)


def test_an_estimate_is_near_the_truth() -> None:
    tested: OrderedMap[float, None] = OrderedMap()
    for number in range(1_000):
        tested.put(float(number * 7 % 1_000), None)
    assert tested.estimate(10.0, 19.0) == pytest.approx(10, abs=4)
    assert tested.estimate(0.0, 499.0) == pytest.approx(500, rel=0.3)
    assert tested.estimate(5.0, 4.0) == 0
