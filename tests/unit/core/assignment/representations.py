"""The same demand as a table with a matrix and as one with lists."""

from __future__ import annotations

from unittest.mock import patch

from tocsin.core.assignment import bits
from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.table import Table


def dense(demand: Demand) -> Table:
    table = Table.of(demand)
    assert table.matrix is not None
    return table


def sparse(demand: Demand) -> Table:
    """As a large network has it: no matrix, and none for its parts."""
    with patch.object(bits, "WORDS_SMALL", -1), patch.object(bits, "WORDS_MAX", -1):
        table = Table.of(demand)
    assert table.matrix is None
    setattr(table, "part", lambda brokers: None)  # noqa: B010
    return table


BOTH = {"dense": dense, "sparse": sparse}
