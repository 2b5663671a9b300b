"""Compiled expressions against a walk over the tree, and what the reference says about failures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.unit.query import model, trees
from tocsin.query.evaluate import compile_condition, evaluate
from tocsin.query.expression import Expression
from tocsin.query.grammar import read
from tocsin.query.limits import DEFAULT
from tocsin.query.values import Failure, Metadata, Value


def value(text: str, **metadata: Value) -> tuple[Value, Failure | None]:
    return evaluate(read(text, DEFAULT), metadata)


@settings(deadline=None, max_examples=1_000)
@given(trees.expressions, trees.metadata)
def test_a_compiled_expression_gives_what_a_walk_over_the_tree_gives(
    tree: Expression, metadata: Metadata
) -> None:
    found, failure = evaluate(tree, metadata)
    try:
        expected = model.run(tree, metadata)
    except model.Failed:
        assert failure is not None
    else:
        assert failure is None
        assert (found.__class__, found) == (expected.__class__, expected)
    assert compile_condition(tree)(metadata) is model.holds(tree, metadata)


@settings(deadline=None, max_examples=500)
@given(trees.expressions, trees.metadata)
def test_what_cloudevents_sql_evaluates_without_error_has_the_same_value_here(
    tree: Expression, metadata: Metadata
) -> None:
    try:
        strict = model.run(tree, metadata, strict=True)
    except model.Failed:
        return
    assert evaluate(tree, metadata) == (strict, None)


@pytest.mark.parametrize(
    "text",
    [
        "missing",
        "missing = 1",
        "missing != 1",
        "NOT missing = 1",
        "NOT (missing != 1)",
        "missing < 1 OR b = 2",
        "NOT (missing < 1 AND b = 1)",
        "missing LIKE '%'",
        "missing NOT LIKE 'x'",
        "missing =~ ''",
        "missing !~ 'x'",
        "missing IN (1, 2)",
        "missing NOT IN (1, 2)",
        "b NOT IN (2, missing)",
        "missing XOR TRUE",
        "LENGTH(missing) >= 0",
        "missing + 1 > 0",
        "NOT has b",
    ],
)
def test_neither_a_query_nor_its_negation_matches_without_its_key(text: str) -> None:
    assert not compile_condition(read(text, DEFAULT))({"b": 1})


@pytest.mark.parametrize(
    "text",
    [
        "NOT has missing",
        "missing = 1 OR b = 1",
        "b = 1 OR missing = 1",
        "NOT (missing = 1 AND b = 2)",
        "NOT (b = 2 AND missing = 1)",
        "b IN (missing, 1)",
        "b = 1 AND NOT EXISTS missing",
        "missing = 1 AND b = 1 OR b = 1",
    ],
)
def test_a_missing_key_does_not_matter_where_something_else_decides(text: str) -> None:
    assert compile_condition(read(text, DEFAULT))({"b": 1})


@pytest.mark.parametrize(
    ("text", "metadata", "expected"),
    [
        ("x = 410", {"x": "410"}, True),
        ("x = 410", {"x": "0410"}, True),
        ("x = '410'", {"x": 410}, True),
        ("x = '0410'", {"x": 410}, False),
        ("x = '410'", {"x": 410.0}, True),
        ("x = TRUE", {"x": "True"}, True),
        ("x = TRUE", {"x": 7}, True),
        ("TRUE = x", {"x": 7}, False),
        ("x = 'true'", {"x": True}, True),
        ("x > 3", {"x": "10"}, True),
        ("x > 3", {"x": True}, False),
        ("x > '3'", {"x": "10"}, True),
        ("x > 3", {"x": "3.5"}, True),
        ("x > 0", {"x": "ten"}, False),
        ("NOT x > 0", {"x": "ten"}, False),
        ("x = 0.1", {"x": "1e-1"}, True),
        ("x IN (1, 2)", {"x": "2"}, True),
        ("x IN ('02')", {"x": 2}, True),
        ("x", {"x": "TRUE"}, True),
        ("x", {"x": 0}, False),
        ("x", {"x": "yes"}, False),
    ],
)
def test_values_are_cast_before_they_are_compared(text: str, metadata: Metadata, expected: bool) -> None:
    assert compile_condition(read(text, DEFAULT))(metadata) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 / 2", (3, None)),
        ("-7 / 2", (-3, None)),
        ("-7 % 2", (-1, None)),
        ("7 / 2.0", (3.5, None)),
        ("7.5 % 2", (1.5, None)),
        ("1 / 0", (0, Failure.MATH)),
        ("1.0 % 0", (0, Failure.MATH)),
        ("9223372036854775807 + 1", (0, Failure.MATH)),
        ("-9223372036854775808 / -1", (0, Failure.MATH)),
        ("-(-9223372036854775808)", (0, Failure.MATH)),
        ("1e308 * 10", (0, Failure.MATH)),
        ("1e308 / 1e-308", (0, Failure.MATH)),
        ("'x' + 1", (0, Failure.CAST)),
        ("missing + 1", (0, Failure.MISSING)),
        ("CONCAT(missing)", ("", Failure.MISSING)),
        ("LEFT('abc', -1) = 'abc'", (False, Failure.FUNCTION)),
        ("LEFT(missing, -1)", ("", Failure.MISSING)),
    ],
)
def test_a_failure_comes_with_the_zero_of_its_type(text: str, expected: tuple[Value, Failure | None]) -> None:
    assert value(text) == expected
