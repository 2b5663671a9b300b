"""Rows with keys, in Arrow: which of them count.

A keyed dataset is stored as a **base**, in which a key has one row at most, and **changes**, each file of which has a
key at most once. The row of a key that counts is the greatest of all of them by ``Schema.order``.

**Merging** (``upkeep``) makes one file of all changes, and leaves out those that lose against the base, which takes
only a look at the few that happened before the base's latest. Then they are *settled*: a change counts, and of the
base whatever no change speaks of.

**Folding** makes a new base of a base and changes. It reads one file of the base at a time, and holds the changes: rows
of the base whose key is in the changes are *contested*, all others stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_INDEX = "__index"
_RANK = "__rank"
_RIVAL = "__rival"


def newest(rows: pa.Table, key: Sequence[str], order: Sequence[str]) -> pa.Table:
    """The greatest row of each key by ``order``; among equals the last."""
    if rows.num_rows < 2:
        return rows
    index = pa.array(range(rows.num_rows), pa.int64())
    narrow = rows.select(list(dict.fromkeys((*key, *order)))).append_column(_INDEX, index)
    ascending = pc.sort_indices(narrow, [(name, "ascending") for name in (*order, _INDEX)])
    narrow = narrow.take(ascending).append_column(_RANK, index)
    ranks = narrow.group_by(list(key)).aggregate([(_RANK, "max")])[f"{_RANK}_max"]
    if len(ranks) == rows.num_rows:
        return rows
    kept = narrow[_INDEX].take(ranks.combine_chunks())
    return rows.take(kept.take(pc.sort_indices(kept)))  # in the order in which they came


def among(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> pa.Array:
    """For each row whether its key is one of ``keys``."""
    if len(key) == 1:
        values = keys[key[0]].combine_chunks()
        return pc.is_in(rows[key[0]], value_set=values).combine_chunks()
    left = rows.select(list(key)).append_column(_INDEX, pa.array(range(rows.num_rows), pa.int64()))
    found = left.join(keys.select(list(key)), list(key), join_type="left semi")[_INDEX].combine_chunks()
    return pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=found)


def split(rows: pa.Table, changes: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The rows of a base without a change, and the contested ones."""
    mask = among(rows, changes, key)
    return rows.filter(pc.invert(mask)), rows.filter(mask)


def without_losers(rows: pa.Table, rivals: pa.Table, key: Sequence[str], order: Sequence[str]) -> pa.Table:
    """Rows, each key once, without those that are less than the rival of their key. Other rivals do not matter."""
    names = [*key, *order]
    rivals = rivals.filter(among(rivals, rows, key)).select(names)
    if not rivals.num_rows:
        return rows
    mine = rows.select(names).append_column(_RIVAL, pa.repeat(False, rows.num_rows))
    both = pa.concat_tables([mine, rivals.append_column(_RIVAL, pa.repeat(True, rivals.num_rows))])
    best = newest(both, key, order)
    return rows.filter(pc.invert(among(rows, best.filter(best[_RIVAL]), key)))
