from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pipeline.storage.rows.test_types import types
from tests.unit.pipeline.storage.stored_tables import MOVES, REPORTS
from tocsin.model.catalogue import Column, Dataset
from tocsin.pipeline.storage.rows.fitting import RECORD_MAX_BYTES, Fitter
from tocsin.pipeline.storage.rows.schema import schema_of
from tocsin.pipeline.storage.rows.types import Type
from tocsin.pipeline.storage.rows.values import Unfit

texts = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        [
            "2024-05-01T12:00:00.1234567Z",
            "2024-05-01",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59Z",
            "2024-05-01T12:00:00+02:00",
            "aGk=",
            "1.5",
            "NaN",
            "1_0",
            "1e5000",
        ]
    ),
)
numbers = st.one_of(
    st.integers(-(1 << 70), 1 << 70),
    st.integers(-200, 200),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1.5, 2.0, 1_700_000_000_000, 1e39]),
)
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=5,
)


def value_for(kind: Type) -> st.SearchStrategy[Any]:
    """Mostly what may fit."""
    some = {
        "BOOLEAN": st.booleans(),
        "STRING": st.one_of(texts, documents),
        "BINARY": st.sampled_from(["aGk=", "", "x"]),
        "DATE": st.dates().map(str),
        "TIMESTAMP": st.one_of(st.datetimes().map(lambda at: at.isoformat() + "Z"), numbers, texts),
    }.get(kind.name, numbers)
    if kind.name == "ARRAY" and kind.element:
        some = st.lists(value_for(kind.element), max_size=3)
    elif kind.name == "MAP" and kind.element:
        some = st.dictionaries(st.text(max_size=3), value_for(kind.element), max_size=3)
    elif kind.name == "STRUCT":
        some = st.fixed_dictionaries(
            {}, optional={field.name: value_for(field.type) for field in kind.fields}
        )
    return st.one_of(some, some, some, documents)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Dataset, list[bytes]]:
    kinds = draw(st.lists(types, min_size=1, max_size=3))
    columns = tuple(Column(f"c {n}", kind.text, draw(st.booleans())) for n, kind in enumerate(kinds))
    row = st.fixed_dictionaries(
        {}, optional={**{f"c {n}": value_for(kind) for n, kind in enumerate(kinds)}, "more": documents}
    )
    records = draw(st.lists(st.one_of(row.map(msgspec.json.encode), st.binary(max_size=8)), max_size=6))
    return Dataset("D", columns), records


@settings(max_examples=120)
@given(batches())
def test_the_quick_way_and_the_rules_agree(batch: tuple[Dataset, list[bytes]]) -> None:
    agree(batch)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=3_000)
@given(batches())
def test_the_quick_way_and_the_rules_agree_at_length(batch: tuple[Dataset, list[bytes]]) -> None:
    agree(batch)


def agree(batch: tuple[Dataset, list[bytes]]) -> None:
    dataset, records = batch
    fitter = Fitter(schema_of(dataset))
    fitted = fitter.fit(records)
    rows: list[dict[str, Any]] = []
    rejected: dict[int, str] = {}
    for index, record in enumerate(records):
        try:
            rows.append(fitter._look(record))
        except Unfit as error:
            rejected[index] = str(error)
    assert {each.index: each.reason for each in fitted.rejected} == rejected
    assert fitted.rows.equals(fitter.table_of(rows))


def test_rows_keep_the_order_of_their_records() -> None:
    fitter = Fitter(schema_of(REPORTS))
    records = [b'{"id": 1}', b'{"id": 2.0, "at": "2024-05-01"}', b'{"id": "3"}', b'{"id": 4}']
    fitted = fitter.fit(records)
    assert fitted.rows["id"].to_pylist() == [1, 2, 4]
    assert [(each.index, each.record) for each in fitted.rejected] == [(2, b'{"id": "3"}')]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"{}", "id: is missing"),
        (b'{"id": null}', "id: is missing"),
        (b'{"id": "1"}', "id: expected a whole number (BIGINT), got the text '1'"),
        (b'{"id": 1, "text": 5}', "text: expected text (STRING), got 5"),
        (b"[1]", "the record is no JSON object"),
        (b"", "the record is not JSON: Input data was truncated"),
        (b'{"id": 1', "the record is not JSON: Input data was truncated"),
        (b'{"id": 1}{"id": 2}', "the record is not JSON: JSON is malformed: trailing characters (byte 10)"),
        (b"[" * 100_000, "the record is nested too deeply"),
        (
            b" " * (RECORD_MAX_BYTES + 1),
            f"the record has {RECORD_MAX_BYTES + 1} bytes; at most {RECORD_MAX_BYTES}",
        ),
    ],
)
def test_a_record_that_does_not_fit_has_a_reason(record: bytes, reason: str) -> None:
    fitted = Fitter(schema_of(REPORTS)).fit([record])
    assert [each.reason for each in fitted.rejected] == [reason]
    assert not fitted.rows.num_rows


def test_text_that_is_not_utf_8_is_a_reason() -> None:
    (rejected,) = Fitter(schema_of(REPORTS)).fit([b'{"id": 1, "text": "\xff"}']).rejected
    assert "not JSON" in rejected.reason


def test_fields_that_the_dataset_does_not_have_are_ignored_and_named() -> None:
    fitted = Fitter(schema_of(REPORTS)).fit([b'{"id": 1, "colour": "red", "deep": [[[]]]}'])
    assert fitted.rows.num_rows == 1
    assert fitted.ignored == {"colour", "deep"}


def test_a_deletion_record_needs_its_key_and_event_time() -> None:
    fitter = Fitter(schema_of(MOVES))
    fitted = fitter.fit(
        [
            b'{"user": "a", "x": 1, "at": 1}',
            b'{"user": "a", "at": 2, "_deleted": true}',
            b'{"user": "b", "at": 2, "_deleted": false, "x": 3}',
            b'{"user": "a", "_deleted": true}',
            b'{"user": "a", "at": 3, "_deleted": "yes"}',
        ]
    )
    assert fitted.rows["_deleted"].to_pylist() == [False, True, False]
    assert fitted.rows["x"].to_pylist() == [1.0, None, 3.0]
    assert [each.reason for each in fitted.rejected] == ["at: is missing", "_deleted: expected true or false"]


def test_a_dataset_without_a_key_may_not_delete_and_ignores_the_field() -> None:
    fitted = Fitter(schema_of(REPORTS)).fit([b'{"id": 1, "_deleted": true}'])
    assert fitted.rows["id"].to_pylist() == [1]
    assert fitted.ignored == {"_deleted"}


def test_a_field_of_a_struct_may_have_any_letters() -> None:
    dataset = Dataset("D", (Column("größe", "STRUCT<`länge`: DOUBLE NOT NULL>"),))
    fitted = Fitter(schema_of(dataset)).fit(['{"größe": {"länge": 2}}'.encode(), '{"größe": {}}'.encode()])
    assert fitted.rows.to_pylist() == [{"größe": {"länge": 2.0}}]
    assert [each.reason for each in fitted.rejected] == ["größe.länge: is missing"]
