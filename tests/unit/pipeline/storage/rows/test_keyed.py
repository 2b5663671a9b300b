from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tocsin.pipeline.storage.rows import keyed

rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 4)), max_size=12)


def table(found: list[tuple[int, str, int]]) -> pa.Table:
    columns: Any = list(zip(*found, strict=True)) or ((), (), ())
    return pa.table(
        {
            "k": pa.array(columns[0], pa.int64()),
            "l": pa.array(columns[1], pa.string()),
            "t": pa.array(columns[2], pa.int64()),
            "n": pa.array(range(len(found)), pa.int64()),
            "list": pa.array([[n] for n in range(len(found))], pa.list_(pa.int64())),
        }
    )


@given(rows, st.sampled_from([["k"], ["k", "l"]]), st.sampled_from([[], ["t"]]))
def test_each_key_keeps_its_greatest_row_and_of_equals_the_last(
    found: list[tuple[int, str, int]], key: list[str], order: list[str]
) -> None:
    best: dict[Any, tuple[int, int]] = {}
    for index, (k, letter, t) in enumerate(found):
        name = (k,) if key == ["k"] else (k, letter)
        rank = (t if order else 0, index)
        best[name] = max(best.get(name, rank), rank)
    kept = keyed.newest(table(found), key, order)
    assert kept["n"].to_pylist() == sorted(index for _, index in best.values())


@given(rows, rows, st.sampled_from([["k"], ["k", "l"]]))
def test_a_base_is_split_into_what_changes_speak_of_and_the_rest(
    base: list[tuple[int, str, int]], changes: list[tuple[int, str, int]], key: list[str]
) -> None:
    names = {row[: len(key)] for row in changes}
    rest, contested = keyed.split(table(base), table(changes), key)
    assert contested["n"].to_pylist() == [n for n, row in enumerate(base) if row[: len(key)] in names]
    assert rest["n"].to_pylist() == [n for n, row in enumerate(base) if row[: len(key)] not in names]
