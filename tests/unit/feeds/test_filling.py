"""What a record gets from its message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.feeds.filling import Filling
from tocsin.model.catalogue import Column, Dataset
from tocsin.model.stream import Value

ALL = Dataset(
    "d", (Column("topic", "STRING"), Column("At", "TIMESTAMP"), Column("metadata", "MAP<STRING, STRING>"))
)
AT_US = 1_700_000_000_123_456
METADATA: dict[str, Value] = {"room": "410", "floor": 4, "lit": True}


def test_columns_of_the_dataset_that_a_record_does_not_have_are_filled() -> None:
    record = json.loads(Filling(ALL).record(b'{"value": 1}', "a/b", AT_US, METADATA))
    assert record == {
        "value": 1,
        "topic": "a/b",
        "At": "2023-11-14T22:13:20.123456+00:00",
        "metadata": {"room": "410", "floor": "4", "lit": "true"},
    }


def test_what_a_record_says_itself_stays() -> None:
    record = json.loads(Filling(ALL).record(b'{"topic": null, "At": 5, "x": 1.0}', "a/b", AT_US, None))
    assert record == {"topic": None, "At": 5, "x": 1.0}


def test_each_of_several_records_is_filled() -> None:
    filling = Filling(Dataset("d", (Column("topic", "STRING"),)))
    assert json.loads(filling.record(b'[{"a": 1}, {"topic": "own"}]', "t", AT_US, None)) == [
        {"topic": "t", "a": 1},
        {"topic": "own"},
    ]


@pytest.mark.parametrize("payload", [b"21.5", b"", b"[1, 2]", b"{", b"\xff", b"[" * 100_000])
def test_a_payload_that_is_no_object_stays_as_it_is(payload: bytes) -> None:
    assert Filling(ALL).record(payload, "a/b", AT_US, METADATA) == payload


def test_a_column_of_another_type_is_not_filled() -> None:
    other = Dataset("d", (Column("topic", "BIGINT"), Column("at", "STRING"), Column("metadata", "DOUBLE")))
    filling = Filling(other)
    assert filling.record(b'{ "x":1}', "a", AT_US, METADATA) == b'{ "x":1}'
    assert not filling.wants_metadata


@given(st.dictionaries(st.text(max_size=8), st.integers(-(2**60), 2**60) | st.text() | st.none(), max_size=5))
def test_nothing_that_was_there_changes(said: dict[str, object]) -> None:
    record = json.loads(Filling(ALL).record(json.dumps(said).encode(), "a", AT_US, None))
    assert {key: record[key] for key in said} == said
    assert record.keys() - said.keys() <= {"topic", "At"}
