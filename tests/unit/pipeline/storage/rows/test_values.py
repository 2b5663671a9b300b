from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from tocsin.pipeline.storage.rows.types import parse_type
from tocsin.pipeline.storage.rows.values import Unfit, convert, parse

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("BIGINT", 5.0, 5),
        ("BIGINT", decimal.Decimal("1e3"), 1_000),
        ("TINYINT", -128, -128),
        ("DOUBLE", 5, 5.0),
        ("BOOLEAN", False, False),
        ("STRING", "a", "a"),
        ("STRING", {"type": "Point", "coordinates": [1, 2.5]}, '{"type":"Point","coordinates":[1,2.5]}'),
        ("BINARY", "aGk=", b"hi"),
        ("DATE", "2024-02-29", datetime.date(2024, 2, 29)),
        ("TIMESTAMP", "1970-01-01T00:00:01Z", SECOND),
        ("TIMESTAMP", "1970-01-01T00:00:01", SECOND),
        ("TIMESTAMP", "1970-01-01T01:00:01+01:00", SECOND),
        ("TIMESTAMP", "1970-01-01 00:00:01.5", SECOND + 500_000),
        ("TIMESTAMP", "1970-01-02", 86_400 * SECOND),
        ("TIMESTAMP", 1, SECOND),
        ("TIMESTAMP", 1.5, SECOND + 500_000),
        ("TIMESTAMP", 1_700_000_000, 1_700_000_000 * SECOND),
        ("TIMESTAMP", 1_700_000_000_000, 1_700_000_000 * SECOND),
        ("TIMESTAMP", 1_700_000_000_000_000, 1_700_000_000 * SECOND),
        ("TIMESTAMP", "9999-12-31T23:59:59.999999Z", 253402300799999999),
        ("DECIMAL(5, 2)", "123.4", decimal.Decimal("123.40")),
        ("DECIMAL(5, 2)", 1.1, decimal.Decimal("1.10")),
        ("ARRAY<INT>", [1, None], [1, None]),
        ("MAP<STRING, INT>", {"a": 1}, {"a": 1}),
        ("STRUCT<a: INT, b: INT>", {"a": 1, "c": 2}, {"a": 1, "b": None}),
        ("INT", None, None),
    ],
)
def test_what_fits_is_taken(kind: str, value: Any, found: Any) -> None:
    assert convert(parse_type(kind), value) == found


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("BIGINT", "5", "expected a whole number .BIGINT., got the text '5'"),
        ("BIGINT", 5.5, "expected a whole number"),
        ("BIGINT", True, "expected a whole number"),
        ("BIGINT", 1 << 63, "out of the range of BIGINT"),
        ("BIGINT", 1e300, "expected a whole number|out of the range"),
        ("TINYINT", 128, "out of the range of TINYINT"),
        ("DOUBLE", "5", "expected a number"),
        ("DOUBLE", 10**400, "out of the range"),
        ("FLOAT", 1e39, "out of the range of FLOAT"),
        ("BOOLEAN", 1, "expected true or false"),
        ("STRING", 5, "expected text"),
        ("BINARY", "§", "is not base64"),
        ("DATE", "2023-02-29", "there is no date"),
        ("DATE", "2023-2-9", "expected a date"),
        ("TIMESTAMP", "yesterday", "is no time"),
        ("TIMESTAMP", "2024-13-01T00:00:00Z", "there is no time"),
        ("TIMESTAMP", "0001-01-01T00:00:00+01:00", "outside the years"),
        ("TIMESTAMP", 1e300, "outside the years"),
        ("TIMESTAMP", True, "expected a time"),
        ("DECIMAL(5, 2)", "1.234", "without loss"),
        ("DECIMAL(5, 2)", 12345, "without loss"),
        ("DECIMAL(5, 2)", "NaN", "is no number"),
        ("DECIMAL(5, 2)", "1e999999999", "without loss"),
        ("ARRAY<INT>", [1, "2"], r"\[1\]: expected a whole number"),
        ("ARRAY<INT>", {}, "expected an array"),
        ("MAP<STRING, INT>", {"a": "b"}, "a: expected a whole number"),
        ("MAP<STRING, INT>", [], "a: |expected an object|$"),
        (
            "STRUCT<a: STRUCT<b: ARRAY<INT>>>",
            {"a": {"b": [None, 1.5]}},
            r"a\.b\[1\]: expected a whole number",
        ),
        ("STRUCT<a: INT NOT NULL>", {}, "a: is missing"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(kind: str, value: Any, said: str) -> None:
    if value == []:
        assert convert(parse_type(kind), value) == {}
        return
    with pytest.raises(Unfit, match=said):
        convert(parse_type(kind), value)


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("BIGINT", " 5 ", 5),
        ("BIGINT", "5.0", 5),
        ("DOUBLE", "1e3", 1_000.0),
        ("BOOLEAN", "TRUE", True),
        ("STRING", " a ", " a "),
        ("TIMESTAMP", "1", SECOND),
        ("TIMESTAMP", "1.5", SECOND + 500_000),
        ("TIMESTAMP", "1970-01-01T00:00:01Z", SECOND),
        ("DECIMAL(5, 2)", "1.50", decimal.Decimal("1.50")),
        ("ARRAY<INT>", "[1, 2]", [1, 2]),
        ("STRUCT<a: INT>", '{"a": 1}', {"a": 1}),
    ],
)
def test_a_cell_of_text_is_read_as_its_type(kind: str, text: str, found: Any) -> None:
    assert parse(parse_type(kind), text) == found


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("BIGINT", "x"),
        ("BIGINT", "1_000"),
        ("DOUBLE", "nan"),
        ("DOUBLE", "1e999"),
        ("BOOLEAN", "1"),
        ("ARRAY<INT>", "[1"),
    ],
)
def test_a_cell_that_is_not_its_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(Unfit):
        parse(parse_type(kind), text)
