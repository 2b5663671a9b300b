"""Records made to fit a dataset: JSON objects in, an Arrow table and the rejected ones out.

The rules are those of ``values``. Most records fit as they are: those are decoded straight into a typed row, and
only the others are looked at value by value, which gives the same rows, or a reason. A reason names the column.

- Fields that the dataset does not have are ignored; ``Fitted.ignored`` names those of the first records of each batch.
- A column that a record does not have is NULL; that is a reason if the column is NOT NULL, in the key, or the event
  time.
- ``"_deleted": true`` in a record for a keyed dataset deletes its key; such a record needs the key and the event
  time alone.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Annotated, Any, Final, NotRequired, Required, TypedDict

import msgspec
import pyarrow as pa

from tocsin.pipeline.storage.rows.schema import DELETED, Schema, required
from tocsin.pipeline.storage.rows.types import INTEGERS, Type
from tocsin.pipeline.storage.rows.values import FLOAT_MAX, Unfit, convert
from tocsin.ports import PAYLOAD_MAX_BYTES

RECORD_MAX_BYTES: Final = PAYLOAD_MAX_BYTES
SAMPLE: Final = 20  # records of a batch whose unknown fields are named


class Rejected(msgspec.Struct, frozen=True):
    """A record that does not fit."""

    index: int  # in the batch
    reason: str
    record: bytes


class Fitted(msgspec.Struct, frozen=True):
    """The outcome of a batch."""

    rows: pa.Table  # the dataset's columns; of a keyed dataset also ``_deleted``
    rejected: tuple[Rejected, ...] = ()
    ignored: frozenset[str] = frozenset()  # fields that the dataset does not have, as far as was looked


class Fitter:
    """Fits records to one dataset."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._required = required(schema.dataset)
        self._names = schema.columns
        self._known = {*schema.columns, DELETED} if schema.keyed else set(schema.columns)
        self._quick: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_row_type(schema, self._required))
        exact = any("DECIMAL" in kind.text for kind in schema.types)
        self._slow = msgspec.json.Decoder(float_hook=decimal.Decimal if exact else None)
        self._attributes = [f"f{index}" for index in range(len(self._names))]

    def fit(self, records: Sequence[bytes]) -> Fitted:
        """Fit a batch. Never raises for what is in a record."""
        decode, keyed = self._quick.decode, self.schema.keyed
        quick: list[Any] = []
        places: list[int] = []  # of each quick row
        slow: list[int] = []
        for index, record in enumerate(records):
            if len(record) > RECORD_MAX_BYTES:
                slow.append(index)
                continue
            try:
                row = decode(record)
            except (msgspec.DecodeError, ValueError, RecursionError):
                slow.append(index)
                continue
            if keyed and row.deleted:
                slow.append(index)
                continue
            quick.append(row)
            places.append(index)
        try:
            table = self._table(quick)
        except (pa.ArrowException, Unfit, ValueError, OverflowError):
            slow, places, table = list(range(len(records))), [], self._table([])
        rejected: list[Rejected] = []
        if slow:
            table = self._mixed(records, table, places, slow, rejected)
        return Fitted(table, tuple(rejected), self._ignored(records))

    def fit_values(self, record: dict[str, Any]) -> dict[str, Any]:
        """One record's columns, by the rules; ``Unfit`` if it does not fit."""
        deletes = self._deletes(record)
        row: dict[str, Any] = {}
        for name, kind in zip(self._names, self.schema.types, strict=True):
            try:
                needed = name in self._required
                if deletes and name not in self.schema.key and name != self.schema.dataset.event_time:
                    row[name] = None
                    continue
                row[name] = convert(kind, record.get(name))
                if needed and row[name] is None:
                    raise Unfit("is missing")
            except Unfit as error:
                raise error.under(name) from None
        if self.schema.keyed:
            row[DELETED] = deletes
        return row

    def table_of(self, rows: Sequence[dict[str, Any]]) -> pa.Table:
        """Rows that ``fit_values`` gave."""
        arrays = [pa.array([row[field.name] for row in rows], field.type) for field in self.arrow]
        return pa.table(arrays, schema=self.arrow)

    @property
    def arrow(self) -> pa.Schema:
        """The schema of ``Fitted.rows``."""
        fields = list(self.schema.arrow)
        return pa.schema([*fields, self.schema.stored.field(DELETED)] if self.schema.keyed else fields)

    def _deletes(self, record: dict[str, Any]) -> bool:
        deleted = record.get(DELETED)
        if deleted is None or DELETED not in self._known:
            return False
        if deleted is not True and deleted is not False:
            raise Unfit("expected true or false", DELETED)
        return bool(deleted)

    def _table(self, rows: Sequence[Any]) -> pa.Table:
        """Typed rows as a table; raises if a column does not take them after all."""
        arrays = []
        for attribute, kind in zip(self._attributes, self.schema.types, strict=True):
            values = [getattr(row, attribute) for row in rows]
            arrays.append(_array(kind, values))
        if self.schema.keyed:
            arrays.append(pa.repeat(False, len(rows)))
        return pa.table(arrays, schema=self.arrow)

    def _mixed(
        self,
        records: Sequence[bytes],
        table: pa.Table,
        places: Sequence[int],
        slow: Sequence[int],
        rejected: list[Rejected],
    ) -> pa.Table:
        """The quick rows, and the slow ones that fit after all, in the order of the records."""
        rows: list[dict[str, Any]] = []
        kept: list[int] = []
        for index in slow:
            try:
                rows.append(self._look(records[index]))
                kept.append(index)
            except Unfit as error:
                rejected.append(Rejected(index, str(error), records[index]))
        if not rows:
            return table
        both = pa.concat_tables([table, self.table_of(rows)])
        order = [*places, *kept]
        return both.take(pa.array(sorted(range(len(order)), key=order.__getitem__), pa.int64()))

    def _look(self, record: bytes) -> dict[str, Any]:
        """One record, value by value."""
        if len(record) > RECORD_MAX_BYTES:
            raise Unfit(f"the record has {len(record)} bytes; at most {RECORD_MAX_BYTES}")
        try:
            found = self._slow.decode(record)
        except RecursionError:
            raise Unfit("the record is nested too deeply") from None
        except (msgspec.DecodeError, ValueError) as error:
            raise Unfit(f"the record is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise Unfit("the record is no JSON object")
        return self.fit_values(found)

    def _ignored(self, records: Sequence[bytes]) -> frozenset[str]:
        ignored: set[str] = set()
        for record in records[:SAMPLE]:
            try:
                found = msgspec.json.decode(record, type=dict[str, msgspec.Raw])
            except (msgspec.DecodeError, ValueError, RecursionError):
                continue
            ignored |= found.keys() - self._known
        return frozenset(ignored)


def _row_type(schema: Schema, needed: frozenset[str]) -> type[msgspec.Struct]:
    """A struct of the dataset's columns, named f0, f1 …, since a column may be called anything."""
    fields: list[Any] = []
    names: dict[str, str] = {}
    for index, (name, kind) in enumerate(zip(schema.columns, schema.types, strict=True)):
        names[f"f{index}"] = name
        annotation = _annotation(kind)
        if name in needed:
            fields.append((f"f{index}", annotation))
        else:
            fields.append((f"f{index}", annotation | None, None))
    if schema.keyed:  # a record that deletes is looked at value by value
        fields.append(("deleted", bool | None, None))
        names["deleted"] = DELETED
    return msgspec.defstruct("Row", fields, rename=names, kw_only=True, gc=False)


def _annotation(kind: Type) -> Any:
    """The type that msgspec decodes: all values that fit in the usual ways, and no others."""
    if kind.name in INTEGERS:
        bits = INTEGERS[kind.name]
        return Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]
    if kind.name == "FLOAT":
        return Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
    if kind.name == "ARRAY":
        assert kind.element is not None
        return list[_annotation(kind.element) | None]  # type: ignore[misc]
    if kind.name == "MAP":
        assert kind.element is not None
        return dict[str, _annotation(kind.element) | None]  # type: ignore[misc]
    if kind.name == "STRUCT" and not kind.text.isascii():
        return dict[
            str, Any
        ]  # msgspec finds no such names in a TypedDict; the column is converted value by value
    if kind.name == "STRUCT":
        members = {
            field.name: NotRequired[_annotation(field.type) | None]
            if field.nullable
            else Required[_annotation(field.type)]
            for field in kind.fields
        }
        return TypedDict("Struct", members)  # type: ignore[operator]
    return _ANNOTATIONS[kind.name]


_ANNOTATIONS: Final[dict[str, Any]] = {
    "BOOLEAN": bool,
    "DOUBLE": float,
    "DECIMAL": decimal.Decimal,
    "STRING": str | dict[str, Any] | list[Any],
    "BINARY": bytes,
    "DATE": datetime.date,
    "TIMESTAMP": datetime.datetime | int | float,
}


def _array(kind: Type, values: list[Any]) -> pa.Array:
    """Decoded values as a column. Times have to be looked at first: Arrow takes a number for microseconds."""
    if "TIMESTAMP" not in kind.text and kind.text.isascii():
        try:
            return pa.array(values, kind.arrow)
        except (pa.ArrowException, TypeError):
            pass  # an object as text, most likely
    elif kind.name == "TIMESTAMP" and all(_plain(value) for value in values):
        return pa.array(values, kind.arrow)
    return pa.array([convert(kind, value) for value in values], kind.arrow)


def _plain(value: Any) -> bool:
    return value is None or (value.__class__ is datetime.datetime and 1 < value.year < 9999)
