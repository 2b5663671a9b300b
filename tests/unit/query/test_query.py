"""Queries as callers see them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.query import model, trees
from tocsin.query import Query, QueryInvalid, QueryLimits, decode_filter, encode_filter, parse
from tocsin.query.expression import And, Compare, Expression, Has, Key, Literal, type_of
from tocsin.query.grammar import print_expression
from tocsin.query.values import Metadata


@settings(deadline=None, max_examples=400)
@given(
    trees.expressions.filter(lambda tree: type_of(tree) not in ("string", "number")),
    st.lists(trees.metadata, max_size=3),
)
def test_a_query_matches_as_its_text_says_and_round_trips(
    tree: Expression, everything: list[Metadata]
) -> None:
    query = parse(print_expression(tree))
    again = parse(query.text)
    assert (again, again.text, again.expression, again.id) == (query, query.text, query.expression, query.id)
    for metadata in everything:
        assert query.matches(metadata) is model.holds(tree, metadata)
        mentioned = {key: value for key, value in metadata.items() if key in query.keys}
        assert query.matches(mentioned) is query.matches(metadata)


def test_a_query_shows_its_canonical_form() -> None:
    query = parse('has Actuator/Brightness and "410" = Location/Room')
    assert query.text == "EXISTS Actuator/Brightness AND Location/Room = '410'"
    assert query.expression == And(
        (Has("Actuator/Brightness"), Compare("=", Key("Location/Room"), Literal("410")))
    )
    assert query.keys == {"Actuator/Brightness", "Location/Room"}
    assert query.matches({"Location/Room": 410, "Actuator/Brightness": 0})
    assert not query.matches({"Location/Room": "410"})
    assert repr(query) == f"Query({query.text!r})"


def test_an_id_depends_on_the_text_alone() -> None:
    assert parse("x > 5").id == "46016c91a4f65f4c"
    program = "from tocsin.query import parse; print(parse('5 < x').id, parse('b = 1 OR has a').text)"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {"46016c91a4f65f4c EXISTS a OR b = 1\n"}


def test_a_query_cannot_be_changed_and_compares_by_its_form() -> None:
    query = parse("a = 1")
    with pytest.raises(AttributeError):
        query.text = "b = 1"  # type: ignore[misc]
    assert {query: "found"}[parse("(a = 1.0)")] == "found"
    assert query != parse("a = 2")
    assert query != "a = 1"


@pytest.mark.parametrize(
    ("text", "kind"), [("5", "number"), ("'x'", "string"), ("a + 1", "number"), ("LOWER(a)", "string")]
)
def test_a_value_is_no_query(text: str, kind: str) -> None:
    with pytest.raises(QueryInvalid, match=f"this is a {kind}, not a condition"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "limits", "said"),
    [
        ("a=1", QueryLimits(length=4), "has 5 characters, and at most 4 are allowed"),
        ("NOT a", QueryLimits(terms=2), "has 3 terms, and at most 2 are allowed"),
        ("a", QueryLimits(depth=1), "has 2 levels, and at most 1 are allowed"),
        ("a = 'x' OR a = 'y'", QueryLimits(options=1), "has 2 values in a list, and at most 1 are allowed"),
    ],
)
def test_a_query_whose_canonical_form_breaks_a_limit_is_refused(
    text: str, limits: QueryLimits, said: str
) -> None:
    with pytest.raises(QueryInvalid, match=f"written out in canonical form the query {said}"):
        parse(text, limits)


@settings(deadline=None)
@given(
    trees.expressions.filter(lambda tree: type_of(tree) == "boolean"), st.integers(3, 8), st.integers(20, 60)
)
def test_whatever_limits_accept_they_accept_in_canonical_form(
    tree: Expression, depth: int, length: int
) -> None:
    limits = QueryLimits(depth=depth, length=length, terms=12, options=3, string_length=8)
    try:
        query: Query = parse(print_expression(tree), limits)
    except QueryInvalid:
        return
    assert parse(query.text, limits) == query


@given(st.text() | st.text("%2B35Ff+#/", max_size=12))
def test_an_encoded_query_has_no_wildcards_and_is_decoded_to_itself(text: str) -> None:
    encoded = encode_filter(text)
    assert "+" not in encoded
    assert "#" not in encoded
    assert decode_filter(encoded) == text


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Location/Room = '410'", "Location/Room = '410'"),
        ("a %2B 1 > 2", "a + 1 > 2"),
        ("a LIKE '%23%25'", "a LIKE '#%'"),
        ("a %2f b%2F%2b", "a / b/+"),
        ("a LIKE 'x%'", "a LIKE 'x%'"),
        ("a %20 100%", "a %20 100%"),
        ("%252B", "%2B"),
    ],
)
def test_four_escapes_are_decoded_and_nothing_else(written: str, meant: str) -> None:
    assert decode_filter(written) == meant
