"""Turns a dataset's definition into the schema of a table.

A stored row has the dataset's columns, and those that are ours:

- ``_version``: the number of the append that brought it, 1, 2, 3 …; what is new since version v is what has a
  larger one;
- ``_arrived``: when that append was;
- ``_deleted`` (keyed datasets): the row says that its key is gone; its other columns are NULL, but for key and
  event time.

In a keyed dataset (key, ``_version``) is unique, and the row of a key that counts is the greatest by event time, then
by ``_version``: a late row never wins, and among rows of the same time the later arrival does.
"""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

from tocsin.errors import SchemaInvalid
from tocsin.model.catalogue import COLUMNS_MAX, Column, Dataset, is_name
from tocsin.pipeline.storage.rows.types import Type, parse_type

VERSION: Final = "_version"
ARRIVED: Final = "_arrived"
DELETED: Final = "_deleted"
OURS: Final = (VERSION, ARRIVED, DELETED)
COLUMN_NAME_MAX: Final = 255

KEY_TYPES: Final = frozenset(
    ("STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "BOOLEAN", "DATE", "TIMESTAMP")
)
TIME_TYPES: Final = frozenset(("TIMESTAMP", "DATE", "BIGINT", "INT"))


class Schema(msgspec.Struct, frozen=True):
    """A dataset, with its types read and checked."""

    dataset: Dataset
    types: tuple[Type, ...]  # of the dataset's columns, in their order
    arrow: pa.Schema  # of the dataset's columns alone
    stored: pa.Schema  # with our own

    @property
    def keyed(self) -> bool:
        return bool(self.dataset.key)

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.dataset.columns]

    @property
    def key(self) -> list[str]:
        return list(self.dataset.key)

    @property
    def order(self) -> list[str]:
        """The columns that decide which of two rows of a key counts; ascending."""
        return [VERSION] if self.dataset.event_time is None else [self.dataset.event_time, VERSION]

    @property
    def age(self) -> str:
        """The column by which rows are forgotten: the event time if it is a time, else when they came."""
        event_time = self.dataset.event_time
        if event_time is not None and self.type_of(event_time).name == "TIMESTAMP":
            return event_time
        return ARRIVED

    @property
    def measured(self) -> list[str]:
        """Columns of which the log of the table has the least and the greatest value of each file."""
        return list(dict.fromkeys((VERSION, ARRIVED, *self.order)))

    def type_of(self, name: str) -> Type:
        return self.types[self.columns.index(name)]

    @property
    def ddl(self) -> str:
        """The stored columns, as Spark reads a schema."""
        parts = [
            f"`{column.name}` {kind.text}"
            for column, kind in zip(self.dataset.columns, self.types, strict=True)
        ]
        parts += [f"{VERSION} BIGINT", f"{ARRIVED} TIMESTAMP"]
        return ", ".join([*parts, f"{DELETED} BOOLEAN"] if self.keyed else parts)


def schema_of(dataset: Dataset) -> Schema:
    """Check a definition, and read its types; ``SchemaInvalid`` says what is wrong with it."""
    if not is_name(dataset.name):
        raise SchemaInvalid(
            f"a dataset cannot be called {dataset.name!r}",
            "Begin with a letter; then letters, digits and _, 64 at most",
        )
    _check_columns(dataset)
    types = tuple(_type_of(dataset, column) for column in dataset.columns)
    _check_key(dataset, types)
    arrow = pa.schema(
        [
            pa.field(column.name, kind.arrow, _nullable(dataset, column))
            for column, kind in zip(dataset.columns, types, strict=True)
        ]
    )
    ours = [pa.field(VERSION, pa.int64(), False), pa.field(ARRIVED, pa.timestamp("us", "UTC"), False)]
    if dataset.key:
        ours.append(pa.field(DELETED, pa.bool_(), False))
    return Schema(dataset, types, arrow, pa.schema([*arrow, *ours]))


def required(dataset: Dataset) -> frozenset[str]:
    """Columns that every row has: those declared so, the key, and the event time."""
    names = {column.name for column in dataset.columns if not column.nullable}
    return frozenset(names | set(dataset.key) | ({dataset.event_time} if dataset.event_time else set()))


def _nullable(dataset: Dataset, column: Column) -> bool:
    """As stored: a row that deletes a key has nothing but key and event time."""
    if dataset.key:
        return column.name not in dataset.key and column.name != dataset.event_time
    return column.name not in required(dataset)


def _check_columns(dataset: Dataset) -> None:
    if not dataset.columns:
        raise SchemaInvalid(f"dataset {dataset.name} has no columns", "Give it at least one")
    if len(dataset.columns) > COLUMNS_MAX:
        raise SchemaInvalid(
            f"dataset {dataset.name} has {len(dataset.columns)} columns; at most {COLUMNS_MAX}",
            "Put some of them into a STRUCT",
        )
    seen: set[str] = set()
    for column in dataset.columns:
        name = column.name
        if (
            not name
            or len(name) > COLUMN_NAME_MAX
            or set(name) & set("`,;{}()\n\t=")
            or not name.isprintable()
        ):
            raise SchemaInvalid(f"a column cannot be called {name!r}", "Use letters, digits and _")
        if name.lower() in OURS:
            raise SchemaInvalid(f"the column name {name} is ours", "Choose another one")
        if name.lower() in seen:
            raise SchemaInvalid(
                f"dataset {dataset.name} has two columns {name}", "Name them apart, in more than case"
            )
        seen.add(name.lower())


def _type_of(dataset: Dataset, column: Column) -> Type:
    try:
        return parse_type(column.type)
    except SchemaInvalid as error:
        raise SchemaInvalid(f"column {dataset.name}.{column.name}, {error.problem}", error.remedy) from None


def _check_key(dataset: Dataset, types: tuple[Type, ...]) -> None:
    named = {column.name: kind for column, kind in zip(dataset.columns, types, strict=True)}
    if len(set(dataset.key)) < len(dataset.key):
        raise SchemaInvalid(f"the key of dataset {dataset.name} names a column twice", "Name each once")
    for name in dataset.key:
        if name not in named:
            raise SchemaInvalid(
                f"the key of dataset {dataset.name} names {name}, which is no column of it", "Add it"
            )
        if named[name].name not in KEY_TYPES:
            raise SchemaInvalid(
                f"column {dataset.name}.{name} is of type {named[name].text}, which cannot be a key",
                f"Use one of {', '.join(sorted(KEY_TYPES))}",
            )
    event_time = dataset.event_time
    if event_time is None:
        return
    if event_time not in named:
        raise SchemaInvalid(
            f"the event time of dataset {dataset.name} is {event_time}, which is no column of it", "Add it"
        )
    if event_time in dataset.key:
        raise SchemaInvalid(
            f"the event time of dataset {dataset.name} is part of its key", "Take it out of the key"
        )
    if named[event_time].name not in TIME_TYPES:
        raise SchemaInvalid(
            f"column {dataset.name}.{event_time} is of type {named[event_time].text}, which cannot be an event time",
            f"Use one of {', '.join(sorted(TIME_TYPES))}",
        )
