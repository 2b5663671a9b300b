"""Datasets and rows that several tests use."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tocsin.model.catalogue import Column, Dataset
from tocsin.pipeline.storage.datasets import Snapshot
from tocsin.pipeline.storage.rows.schema import DELETED, Schema, schema_of
from tocsin.pipeline.storage.tables.files import read_parquet

DAY_US = 86_400_000_000
NOW_US = 20_000 * DAY_US

REPORTS = Dataset(
    "Reports", (Column("id", "BIGINT", nullable=False), Column("text", "STRING"), Column("at", "TIMESTAMP"))
)
PLACES = Dataset("Places", (Column("user", "STRING"), Column("x", "DOUBLE")), key=("user",))
MOVES = Dataset(
    "Moves",
    (Column("user", "STRING"), Column("x", "DOUBLE"), Column("at", "BIGINT")),
    key=("user",),
    event_time="at",
)


def rows_of(dataset: Dataset, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows as tuples; of a keyed dataset the last member may say that the row deletes."""
    schema = schema_of(dataset)
    fields = list(schema.arrow)
    if rows and len(rows[0]) > len(fields):
        fields.append(schema.stored.field(DELETED))
    columns = list(zip(*rows, strict=True)) or [() for _ in fields]
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, fields, strict=True)],
        schema=pa.schema(fields),
    )


def stored(snapshot: Snapshot) -> list[dict[str, Any]]:
    """All rows of a snapshot, as they lie in the files."""
    rows = read_parquet(snapshot.root, [file.path for file in snapshot.files], snapshot.schema.stored)
    return list(rows.to_pylist())


def counting(snapshot: Snapshot) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Of a keyed dataset the rows that count, by key, in the dumbest way."""
    schema: Schema = snapshot.schema
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in stored(snapshot):
        key = tuple(row[name] for name in schema.key)
        order = tuple(row[name] for name in schema.order)
        if key not in best or order > tuple(best[key][name] for name in schema.order):
            best[key] = row
    return {
        key: {name: row[name] for name in schema.columns} for key, row in best.items() if not row[DELETED]
    }
