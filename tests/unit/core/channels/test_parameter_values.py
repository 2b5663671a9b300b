"""Values of parameters, held against Python's own numbers and calendar."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.channels.parameter_values import (
    BIGINT_MAX,
    TEXT_MAX_BYTES,
    ValueInvalid,
    read_value,
    written,
)
from tocsin.model.catalogue import ParameterType
from tocsin.model.results import k_of


@given(st.text(max_size=100))
def test_a_string_is_itself(text: str) -> None:
    assert read_value("STRING", text) == text
    assert written(read_value("STRING", text)) == text


@given(st.integers(-BIGINT_MAX - 1, BIGINT_MAX), st.booleans(), st.integers(0, 3))
def test_a_bigint_is_one_number_however_it_is_written(number: int, plus: bool, zeros: int) -> None:
    text = f"{'-' if number < 0 else '+' if plus else ''}{'0' * zeros}{abs(number)}"
    assert read_value("BIGINT", text) == number
    assert read_value("BIGINT", written(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_one_number_however_it_is_written(number: float) -> None:
    for text in (repr(number), f"{number:.17e}"):
        value = read_value("DOUBLE", text)
        assert value == number and isinstance(value, float)
        assert math.copysign(1, value) == 1 or value != 0, "one zero"
        assert read_value("DOUBLE", written(value)) == value


@pytest.mark.parametrize(
    "texts", [("5", "5.0", "5.", "+5", "05", "5e0", "0.5E1"), ("0", "-0", "0.0", "-0.0", ".0")]
)
def test_doubles_that_are_equal_are_one_subscription(texts: tuple[str, ...]) -> None:
    assert len({k_of("c", (read_value("DOUBLE", text),)) for text in texts}) == 1


@given(st.dates())
def test_a_date_is_a_day_of_the_calendar(day: date) -> None:
    assert read_value("DATE", day.isoformat()) == day.isoformat()


@given(st.text("0123456789-", max_size=10))
def test_what_the_calendar_does_not_know_is_no_date(text: str) -> None:
    try:
        known = date.fromisoformat(text).isoformat() == text
    except ValueError:
        known = False
    if known:
        assert read_value("DATE", text) == text
    else:
        with pytest.raises(ValueInvalid, match="day of the calendar"):
            read_value("DATE", text)


@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),
    st.integers(-18 * 60, 18 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
    st.sampled_from("T t"),
)
def test_a_timestamp_is_one_moment_whatever_its_zone(moment: datetime, zone: timezone, between: str) -> None:
    there = moment.replace(tzinfo=UTC).astimezone(zone)
    value = read_value("TIMESTAMP", there.isoformat(sep=between))
    assert isinstance(value, str) and value.endswith("Z")
    assert datetime.fromisoformat(value) == there
    assert value == read_value("TIMESTAMP", moment.isoformat()) == read_value("TIMESTAMP", value)


@pytest.mark.parametrize("text", ["2024-05-31T10:00", "2024-05-31 10:00:00", "2024-05-31t12:00:00.000+02:00"])
def test_parts_of_a_timestamp_may_be_left_out(text: str) -> None:
    assert read_value("TIMESTAMP", text) == "2024-05-31T10:00:00Z"


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("BIGINT", "5.0", "whole number"),
        ("BIGINT", "٣", "whole number"),
        ("BIGINT", str(BIGINT_MAX + 1), "64 bits"),
        ("BIGINT", "9" * 31, "whole number"),
        ("DOUBLE", "nan", "a number"),
        ("DOUBLE", "1e999", "finite"),
        ("DOUBLE", "1_0", "a number"),
        ("DOUBLE", ".", "a number"),
        ("BOOLEAN", "1", "true or false"),
        ("DATE", "2023-02-29", "day of the calendar"),
        ("DATE", "0000-01-01", "day of the calendar"),
        ("TIMESTAMP", "2024-02-30T00:00:00Z", "day of the calendar"),
        ("TIMESTAMP", "2024-05-31T24:00:00Z", "hours to 23"),
        ("TIMESTAMP", "2024-05-31T10:00:00+19:00", "zones to 18"),
        ("TIMESTAMP", "0001-01-01T00:00:00+01:00", "years 1 to 9999"),
        ("TIMESTAMP", "9999-12-31T23:59:59-01:00", "years 1 to 9999"),
        ("TIMESTAMP", "noon", "written as"),
        ("STRING", "é" * TEXT_MAX_BYTES, "bytes"),
    ],
)
def test_what_is_no_value_is_refused_in_words(kind: ParameterType, text: str, words: str) -> None:
    with pytest.raises(ValueInvalid, match=words):
        read_value(kind, text)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("FALSE", False)])
def test_a_boolean_is_true_or_false(text: str, value: bool) -> None:
    assert read_value("BOOLEAN", text) is value
    assert read_value("BOOLEAN", written(value)) is value
