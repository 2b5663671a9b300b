from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import Schema as DeltaSchema
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import SchemaInvalid
from tocsin.pipeline.storage.rows.types import DEPTH_MAX, Field, Type, parse_type

PLAIN = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
)

scalars = st.one_of(
    st.sampled_from(PLAIN).map(Type),
    st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(
            lambda scale: Type("DECIMAL", precision=precision, scale=scale)
        )
    ),
)


def nested(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    names = st.text("abcXYZ_ 09é-", min_size=1, max_size=6)
    fields = st.lists(
        st.tuples(names, inner, st.booleans()), min_size=1, max_size=3, unique_by=lambda f: f[0].lower()
    )
    return st.one_of(
        inner.map(lambda element: Type("ARRAY", element=element)),
        inner.map(lambda element: Type("MAP", key=Type("STRING"), element=element)),
        fields.map(lambda found: Type("STRUCT", fields=tuple(Field(*each) for each in found))),
    )


types = st.recursive(scalars, nested, max_leaves=4)


@given(types)
def test_a_type_is_read_back_as_it_was_written(kind: Type) -> None:
    assert parse_type(kind.text) == kind
    assert parse_type(f"  {kind.text.replace('<', ' < ').replace(',', ' , ')} ") == kind


@given(types)
def test_delta_keeps_every_type_as_it_is(kind: Type) -> None:
    schema = pa.schema([pa.field("a", kind.arrow)])
    assert pa.schema(DeltaSchema.from_arrow(schema).to_arrow()) == schema


def test_names_are_read_in_any_case_and_synonyms_are_one_type() -> None:
    assert parse_type("long") == parse_type("BIGINT") == Type("BIGINT")
    assert parse_type("Numeric(5,2)").text == "DECIMAL(5, 2)"
    assert parse_type("decimal").text == "DECIMAL(10, 0)"
    assert parse_type("struct<x double, y: int not null>").text == "STRUCT<`x`: DOUBLE, `y`: INT NOT NULL>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "name is missing"),
        ("TEXT", "Write STRING"),
        ("VARCHAR(20)", "Write STRING"),
        ("TIMESTAMP_NTZ", "Write TIMESTAMP"),
        ("VARIANT", "takes any JSON as text"),
        ("NUMBER", "there is no type NUMBER"),
        ("ARRAY", "'<' is missing"),
        ("ARRAY<INT", "'>' is missing"),
        ("INT INT", "one too many"),
        ("INT;DROP", "';' has no place"),
        ("MAP<INT, INT>", "MAP<STRING"),
        ("DECIMAL(40)", "1 to 38"),
        ("DECIMAL(3, 4)", "1 to 38"),
        ("DECIMAL(x)", "a number is missing"),
        ("STRUCT<a INT, A INT>", "one name"),
        ("STRUCT<>", "field's name is missing"),
        ("STRUCT<a: INT NOT>", "NULL is missing"),
        ("ARRAY<" * (DEPTH_MAX + 1) + "INT" + ">" * (DEPTH_MAX + 1), "flatter"),
    ],
)
def test_what_is_no_type_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(SchemaInvalid, match=said.replace("(", r"\(").replace("<", "<")):
        parse_type(text)


@given(st.text("ARYMPSTUCINDELOG<>(),: `0123", max_size=30))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        kind = parse_type(text)
    except SchemaInvalid:
        return
    assert parse_type(kind.text) == kind
