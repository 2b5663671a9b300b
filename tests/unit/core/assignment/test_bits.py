"""Sets in bits against sets."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.assignment import bits
from tocsin.core.assignment.bits import Matrix


@settings(max_examples=80)
@given(
    st.lists(st.sets(st.integers(0, 149)), min_size=1, max_size=6),
    st.lists(st.integers(1, 70), min_size=150, max_size=150),
    st.lists(st.sets(st.integers(0, 149)), max_size=5),
    st.sampled_from([1, 20, 1 << 16]),
)
def test_the_weights_of_sets_are_counted_exactly_however_many_at_once(
    rows: list[set[int]], weights: list[int], asked: list[set[int]], at_once: int
) -> None:
    pairs = [(broker, column) for broker, row in enumerate(rows) for column in sorted(row)]
    holders, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    matrix = Matrix(len(rows), holders, columns, np.array(weights))
    sets = np.zeros((len(asked), matrix.held.shape[1]), dtype=np.uint64)
    for row, each in enumerate(asked):
        sets[row] = matrix.bits(np.array(sorted(each), dtype=np.int64))
        assert set(matrix.columns(sets[row]).tolist()) == each
    with patch.object(bits, "WORDS_AT_ONCE", at_once):
        found = matrix.spread(sets)
    for row, each in enumerate(asked):
        assert found[row].tolist() == [sum(weights[k] for k in each & held) for held in rows]
        assert matrix.spread(sets[row]).tolist() == found[row].tolist()
    assert matrix.weigh(sets).tolist() == [sum(weights[k] for k in each) for each in asked]
    for broker, held in enumerate(rows):
        assert set(matrix.columns(matrix.held[broker]).tolist()) == held


def test_a_matrix_is_made_where_it_is_small_or_dense() -> None:
    def made(count: int, each: int, columns: int) -> bool:
        holders = np.repeat(np.arange(count), each)
        held = (np.arange(count * each) * 7) % columns
        return Matrix.of(count, holders, held, np.ones(columns, dtype=np.int64)) is not None

    assert made(100, 10, 10_000)
    assert not made(1_000, 10, 10_000)
    assert made(1_000, 1_000, 10_000)
    assert not made(1_000, 10_000, 100_000)
