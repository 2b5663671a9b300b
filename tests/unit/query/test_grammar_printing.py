"""What is printed is read back as the same expression."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.query import trees
from tocsin.query.expression import Expression, Key, Literal
from tocsin.query.grammar import print_expression, print_key, print_string, read
from tocsin.query.limits import DEFAULT

speakable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@settings(deadline=None, max_examples=1_000)
@given(trees.expressions)
def test_a_printed_expression_is_read_back_as_itself(tree: Expression) -> None:
    assert read(print_expression(tree), DEFAULT) == tree


@settings(deadline=None)
@given(speakable | st.text("'\"\\`a", max_size=6))
def test_any_string_can_be_printed(text: str) -> None:
    assert read(print_string(text), DEFAULT) == Literal(text)


@settings(deadline=None)
@given((speakable | st.text("ab/.:1 `", max_size=5)).filter(bool))
def test_any_key_can_be_printed(name: str) -> None:
    assert read(print_key(name), DEFAULT) == Key(name)


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1) | st.booleans())
def test_any_number_can_be_printed(value: float) -> None:
    assert read(print_expression(Literal(value)), DEFAULT) == Literal(value)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 OR b = 2 AND NOT (c = 3 OR d = 4)",
        "(a = 1 OR b = 2) AND c LIKE 'x\\%%'",
        "a NOT IN (1, 'x') XOR NOT EXISTS Location/Room",
        "a - (b - c) * 2 < -(d + 1) % 3",
        "a =~ '^\\d+\\\\\\\\' AND b !~ 'it\\'s'",
        "(a = b) = c",
        "NOT (a XOR b) = TRUE",
        "`in` = `1` AND `a b` >= 2.5",
    ],
)
def test_no_bracket_is_printed_that_is_not_needed(text: str) -> None:
    assert print_expression(read(text, DEFAULT)) == text.replace("(a = b) = c", "a = b = c")
