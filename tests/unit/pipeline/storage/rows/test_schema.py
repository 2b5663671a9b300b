from __future__ import annotations

import pytest

from tests.unit.pipeline.storage.stored_tables import MOVES, PLACES, REPORTS
from tocsin.errors import SchemaInvalid
from tocsin.model.catalogue import Column, Dataset
from tocsin.pipeline.storage.rows.schema import required, schema_of

ONE = (Column("a", "INT"),)


def test_rows_carry_their_version_and_arrival_and_keyed_ones_whether_they_delete() -> None:
    assert schema_of(REPORTS).stored.names == ["id", "text", "at", "_version", "_arrived"]
    assert schema_of(PLACES).stored.names == ["user", "x", "_version", "_arrived", "_deleted"]
    assert schema_of(REPORTS).ddl.startswith("`id` BIGINT, `text` STRING, `at` TIMESTAMP, _version BIGINT")


def test_rows_of_one_key_are_ordered_by_event_time_then_version() -> None:
    assert schema_of(PLACES).order == ["_version"]
    assert schema_of(MOVES).order == ["at", "_version"]


def test_key_and_event_time_are_needed_even_if_nobody_said_so() -> None:
    assert required(MOVES) == {"user", "at"}
    assert not schema_of(MOVES).stored.field("user").nullable
    assert schema_of(MOVES).stored.field("x").nullable


def test_what_must_not_be_null_may_be_in_a_row_that_deletes() -> None:
    dataset = Dataset("D", (Column("k", "INT"), Column("v", "INT", nullable=False)), key=("k",))
    assert schema_of(dataset).stored.field("v").nullable
    assert "v" in required(dataset)


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Dataset("9lives", ONE), "cannot be called '9lives'"),
        (Dataset("D", ()), "has no columns"),
        (Dataset("D", tuple(Column(f"c{n}", "INT") for n in range(300))), "at most 256"),
        (Dataset("D", (Column("a`b", "INT"),)), "cannot be called"),
        (Dataset("D", (Column("_Version", "INT"),)), "is ours"),
        (Dataset("D", (Column("a", "INT"), Column("A", "INT"))), "two columns"),
        (Dataset("D", (Column("a", "TEXT"),)), "column D.a, the type 'TEXT'"),
        (Dataset("D", ONE, key=("b",)), "which is no column"),
        (Dataset("D", ONE, key=("a", "a")), "twice"),
        (Dataset("D", (Column("a", "DOUBLE"),), key=("a",)), "cannot be a key"),
        (Dataset("D", ONE, event_time="b"), "which is no column"),
        (Dataset("D", ONE, key=("a",), event_time="a"), "part of its key"),
        (Dataset("D", (Column("a", "STRING"),), event_time="a"), "cannot be an event time"),
    ],
)
def test_a_definition_that_cannot_be_stored_is_refused_in_words(dataset: Dataset, said: str) -> None:
    with pytest.raises(SchemaInvalid, match=said):
        schema_of(dataset)
