"""Column types: Spark SQL's names for them, as trees, and what they are in Arrow.

``parse_type`` reads ``ARRAY<STRUCT<x: DOUBLE, y: DOUBLE>>`` and the like in any case and spacing; ``Type.text`` is the
one way in which we write it. Only what Delta, Arrow and Spark all have without an extension is taken.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import pyarrow as pa

from tocsin.errors import SchemaInvalid

DEPTH_MAX: Final = 8  # of types within types
FIELDS_MAX: Final = 256  # of one STRUCT

_PLAIN: Final = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
_SYNONYMS: Final = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_INSTEAD: Final = {
    "VARCHAR": "STRING",
    "CHAR": "STRING",
    "TEXT": "STRING",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "VARIANT": "STRING, which takes any JSON as text, or a STRUCT",
    "GEOMETRY": "STRING, with GeoJSON in it",
    "GEOGRAPHY": "STRING, with GeoJSON in it",
    "INTERVAL": "BIGINT",
}
_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)|`([^`]+)`|([0-9]+)|([<>(),:]))")

INTEGERS: Final = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}  # bits


class Field(msgspec.Struct, frozen=True):
    """A field of a STRUCT."""

    name: str
    type: Type
    nullable: bool = True


class Type(msgspec.Struct, frozen=True):
    """A type. ``name`` is in capitals; the other members are those of ARRAY, MAP, STRUCT and DECIMAL."""

    name: str
    element: Type | None = None  # of an ARRAY, and the values of a MAP
    key: Type | None = None  # of a MAP
    fields: tuple[Field, ...] = ()  # of a STRUCT
    precision: int = 0  # of a DECIMAL
    scale: int = 0

    @property
    def text(self) -> str:
        """As Spark reads it."""
        if self.name == "ARRAY":
            return f"ARRAY<{_of(self.element).text}>"
        if self.name == "MAP":
            return f"MAP<{_of(self.key).text}, {_of(self.element).text}>"
        if self.name == "STRUCT":
            return f"STRUCT<{', '.join(map(_field_text, self.fields))}>"
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision}, {self.scale})"
        return self.name

    @property
    def arrow(self) -> pa.DataType:
        if self.name == "ARRAY":
            return pa.list_(pa.field("element", _of(self.element).arrow))
        if self.name == "MAP":
            return pa.map_(_of(self.key).arrow, _of(self.element).arrow)
        if self.name == "STRUCT":
            return pa.struct([pa.field(each.name, each.type.arrow, each.nullable) for each in self.fields])
        if self.name == "DECIMAL":
            return pa.decimal128(self.precision, self.scale)
        return _PLAIN[self.name]


def parse_type(text: str) -> Type:
    """The type that ``text`` names, or ``SchemaInvalid`` that says what to write instead."""
    reader = _Reader(text)
    found = reader.type(1)
    reader.end()
    return found


def _of(part: Type | None) -> Type:
    assert part is not None
    return part


def _field_text(field: Field) -> str:
    return f"`{field.name}`: {field.type.text}{'' if field.nullable else ' NOT NULL'}"


class _Reader:
    """Recursive descent over a type's text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []  # (kind, text)
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.wrong(f"{text[at:].strip()[0]!r} has no place in a type")
            kind = ("word", "quoted", "number", "mark")[(match.lastindex or 1) - 1]
            self.tokens.append((kind, match.group(match.lastindex or 1)))
            at = match.end()
        self.at = 0

    def wrong(self, problem: str, remedy: str = "") -> SchemaInvalid:
        return SchemaInvalid(
            f"the type {self.text!r}: {problem}",
            remedy
            or "Write a type such as STRING, BIGINT, DOUBLE, TIMESTAMP, ARRAY<DOUBLE> or STRUCT<x: DOUBLE>",
        )

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "its end")

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.at += 1
        return token

    def mark(self, mark: str) -> None:
        if (found := self.take()) != ("mark", mark):
            raise self.wrong(f"{mark!r} is missing before {found[1]!r}")

    def has(self, mark: str) -> bool:
        if self.peek() == ("mark", mark):
            self.at += 1
            return True
        return False

    def end(self) -> None:
        if self.peek()[0] != "end":
            raise self.wrong(f"{self.peek()[1]!r} is one too many")

    def type(self, depth: int) -> Type:
        if depth > DEPTH_MAX:
            raise self.wrong(f"more than {DEPTH_MAX} types within each other", "Make it flatter")
        kind, word = self.take()
        if kind != "word":
            raise self.wrong(f"a type's name is missing before {word!r}")
        name = _SYNONYMS.get(word.upper(), word.upper())
        if name == "ARRAY":
            self.mark("<")
            element = self.type(depth + 1)
            self.mark(">")
            return Type(name, element=element)
        if name == "MAP":
            return self.map(depth)
        if name == "STRUCT":
            return self.struct(depth)
        if name == "DECIMAL":
            return self.decimal()
        if name in _INSTEAD:
            raise self.wrong(f"there is no {name} here", f"Write {_INSTEAD[name]}")
        if name not in _PLAIN:
            raise self.wrong(f"there is no type {word}")
        return Type(name)

    def map(self, depth: int) -> Type:
        self.mark("<")
        key = self.type(depth + 1)
        if key.name != "STRING":
            raise self.wrong("the keys of a MAP are names of JSON", "Write MAP<STRING, …>")
        self.mark(",")
        element = self.type(depth + 1)
        self.mark(">")
        return Type("MAP", key=key, element=element)

    def struct(self, depth: int) -> Type:
        self.mark("<")
        fields: list[Field] = []
        while True:
            kind, name = self.take()
            if kind not in ("word", "quoted"):
                raise self.wrong(f"a field's name is missing before {name!r}")
            self.has(":")
            fields.append(Field(name, self.type(depth + 1), nullable=not self.not_null()))
            if not self.has(","):
                break
        self.mark(">")
        if len(fields) > FIELDS_MAX:
            raise self.wrong(f"a STRUCT of {len(fields)} fields; at most {FIELDS_MAX}", "Make it smaller")
        if len({field.name.lower() for field in fields}) < len(fields):
            raise self.wrong("two fields of a STRUCT have one name", "Name them apart, in more than case")
        return Type("STRUCT", fields=tuple(fields))

    def not_null(self) -> bool:
        if self.peek()[1].upper() != "NOT":
            return False
        self.take()
        if self.take()[1].upper() != "NULL":
            raise self.wrong("NULL is missing after NOT")
        return True

    def decimal(self) -> Type:
        precision, scale = 10, 0
        if self.has("("):
            precision = self.number()
            if self.has(","):
                scale = self.number()
            self.mark(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self.wrong(
                "DECIMAL(precision, scale) has 1 to 38 digits, of which scale are behind the point"
            )
        return Type("DECIMAL", precision=precision, scale=scale)

    def number(self) -> int:
        kind, text = self.take()
        if kind != "number":
            raise self.wrong(f"a number is missing before {text!r}")
        return int(text[:4])
