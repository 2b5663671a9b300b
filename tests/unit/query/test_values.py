"""Which values there are, and how one is read as another."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.query import model
from tocsin.query.values import (
    Failure,
    Value,
    is_value,
    kind_of,
    to_boolean,
    to_integer,
    to_number,
    to_string,
)

numerals = st.text("0159+-.eE_ ", max_size=6)
values: st.SearchStrategy[Value] = st.one_of(
    numerals,
    st.text(max_size=4),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False).filter(is_value),
)


@given(values)
def test_casts_are_those_of_the_model(value: Value) -> None:
    assert to_string(value) == model.string(value)
    for ours, theirs in ((to_number, model.number), (to_boolean, model.boolean), (to_integer, model.integer)):
        try:
            expected = theirs(value)
        except model.Failed:
            assert ours(value) is Failure.CAST
        else:
            found = ours(value)
            assert (found, found.__class__) == (expected, expected.__class__)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("+12", 12),
        ("-012", -12),
        ("9223372036854775808", 9223372036854775808.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("", Failure.CAST),
        (" 1", Failure.CAST),
        ("1_000", Failure.CAST),
        ("٣", Failure.CAST),
        ("nan", Failure.CAST),
        ("inf", Failure.CAST),
        ("1e999", Failure.CAST),
        ("0x1f", Failure.CAST),
        ("1" * 65, Failure.CAST),
    ],
)
def test_a_string_is_a_number_if_it_is_plainly_one(text: str, number: float | Failure) -> None:
    found = to_number(text)
    assert (found, found.__class__) == (number, number.__class__)


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, math.inf, math.nan, None, b"x", [1], "\ud800", {"a": 1}]
)
def test_what_a_query_could_not_work_with_is_no_value(value: object) -> None:
    assert not is_value(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("", "string"),
        ("ü", "string"),
        (1, "number"),
        (1.5, "number"),
        (-(2**63), "number"),
        (True, "boolean"),
    ],
)
def test_a_value_has_one_of_three_types(value: Value, kind: str) -> None:
    assert is_value(value)
    assert kind_of(value) == kind
