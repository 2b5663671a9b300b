"""The canonical form: means the same, is one for all ways to write a query, and stays as it is."""

from __future__ import annotations

import random
import sys
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.query import model, trees
from tocsin.query import parse
from tocsin.query.canonical import canonical, canonical_value
from tocsin.query.expression import (
    And,
    Compare,
    Expression,
    In,
    Key,
    Like,
    Literal,
    Match,
    Not,
    Or,
    Xor,
    walk,
)
from tocsin.query.grammar import print_expression, read
from tocsin.query.limits import DEFAULT
from tocsin.query.values import Metadata, Value

TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


@settings(deadline=None, max_examples=1_000)
@given(trees.expressions, st.lists(trees.metadata, min_size=1, max_size=4))
def test_the_canonical_form_holds_for_the_same_metadata(tree: Expression, everything: list[Metadata]) -> None:
    form = canonical(tree)
    for metadata in everything:
        assert model.holds(form, metadata) is model.holds(tree, metadata), print_expression(form)


@settings(deadline=None, max_examples=500)
@given(trees.expressions, trees.metadata)
def test_a_canonical_value_is_the_same_value_or_fails_likewise(tree: Expression, metadata: Metadata) -> None:
    form = canonical_value(tree)
    try:
        expected = model.run(tree, metadata)
    except model.Failed:
        with pytest.raises(model.Failed):
            model.run(form, metadata)
    else:
        found = model.run(form, metadata)
        assert (found, found.__class__) == (expected, expected.__class__), print_expression(form)


@settings(deadline=None, max_examples=500)
@given(trees.expressions)
def test_the_canonical_form_of_a_canonical_form_is_itself(tree: Expression) -> None:
    form = canonical(tree)
    assert canonical(form) == form
    assert read(print_expression(form), DEFAULT) == form


@settings(deadline=None, max_examples=500)
@given(trees.expressions)
def test_not_stands_only_before_what_has_no_opposite(tree: Expression) -> None:
    for node in walk(canonical(tree)):
        if isinstance(node, Not):
            assert not isinstance(node.of, Not | And | Or | Compare | Literal | Key)
        if isinstance(node, And | Or | Xor):
            assert len(node.parts) > 1
            assert not any(isinstance(part, type(node)) for part in node.parts)


def rewritten(tree: Expression, chance: random.Random) -> Expression:
    """The same condition in other words: only by rules of logic that hold for failures too."""
    match tree:
        case And(parts) | Or(parts) | Xor(parts):
            mixed = [rewritten(part, chance) for part in parts]
            chance.shuffle(mixed)
            if not isinstance(tree, Xor):
                mixed += chance.sample(mixed, chance.randint(0, 1))
            again: Expression = type(tree)(tuple(mixed))
            if not isinstance(tree, Xor) and chance.random() < 0.4:
                other = Or if isinstance(tree, And) else And
                again = Not(other(tuple(Not(part) for part in mixed)))
        case Compare(op, left, right) if op in TURNED and chance.random() < 0.5:
            again = Compare(TURNED[op], right, left)  # type: ignore[arg-type]
        case Compare("!=", left, right) if chance.random() < 0.5:
            again = Not(Compare("=", left, right))
        case In(subject, options):
            again = In(subject, tuple(chance.sample([*options, options[0]], len(options) + 1)))
        case Not(of):
            again = Not(rewritten(of, chance))
        case _:
            again = tree
    return Not(Not(again)) if chance.random() < 0.2 else again


@settings(deadline=None, max_examples=500)
@given(trees.expressions, st.randoms(use_true_random=False))
def test_logical_rewriting_does_not_change_a_querys_canonical_form(
    tree: Expression, chance: random.Random
) -> None:
    assert canonical(rewritten(tree, chance)) == canonical(tree)


@pytest.mark.parametrize(
    "ways",
    [
        ["x > 5", "5 < x", "NOT x <= 5", "NOT 5 >= x", "((x)) > (5)", "x > 5.0", "x > '5'", "x > 2 + 3"],
        ["a = 1 AND b = 2", "b = 2 and a = 1", "a = 1 AND (b = 2 AND a = 1)", "NOT (a != 1 OR b <> 2)"],
        [
            "a = 1 AND b = 2",
            "a = 1 AND b = 2 AND TRUE",
            "(a = 1 AND b = 2) OR FALSE",
            "NOT NOT (a = 1 AND b = 2)",
        ],
        ["a != 1", "NOT a = 1", "a <> 1"],
        ["x = 'a'", "x IN ('a')", "'a' = x", "x LIKE 'a'", "x IN ('a', \"a\")", "x = 'a' OR x = 'a'"],
        ["x IN ('a', 'b')", "x = 'b' OR x = 'a'", "x IN ('b', 'a', 'b')", "x IN ('a') OR 'b' = x"],
        ["x IN (5)", "5 = x", "x IN (5.0)", "NOT 5 != x"],
        ["flag", "flag = TRUE", "flag != FALSE", "BOOL(flag)", "NOT NOT flag", "(flag = TRUE) = TRUE"],
        ["NOT flag", "flag = FALSE", "NOT BOOL(flag)", "(flag) != TRUE"],
        ["has a", "EXISTS a", "exists(a)", "HAS (`a`)", "NOT NOT has a"],
        ["NOT has a", "NOT EXISTS (a)", "(EXISTS a) = FALSE"],
        ["a = 1 OR a = 1 AND b = 2", "a = 1", "(a = 1 OR b = 2) AND a = 1"],
        ["a = 1 AND NOT a = 1", "FALSE", "1 > 2", "a = 1 AND FALSE", "NOT 'x'", "a < 'x'", "1 = 1 / 0"],
        [
            "a = 1 XOR b = 2",
            "b = 2 XOR a = 1",
            "NOT (a != 1 XOR b = 2)",
            "a != 1 XOR b != 2",
            "(a = 1) != (b = 2)",
        ],
        ["NOT (a = 1 XOR b = 2)", "(a = 1) = (b = 2)", "a = 1 XOR b = 2 XOR TRUE", "a != 1 XOR b = 2"],
        ["a = 1", "a = 1 XOR FALSE", "a = 1 XOR a = 1 XOR a = 1"],
        ["hop < ttl", "ttl > hop", "NOT hop >= ttl"],
        ["LENGTH(a) = 3", "3 = LENGTH(a)", "LENGTH(a) IN (3)", "'3' = LENGTH(a)"],
        ["a + b = 3", "b + a = 3", "3 = a + b"],
        ["x LIKE 'a_%'", "x LIKE 'a%_'", "x LIKE 'a%_%'"],
        ["x != 'a%'", "x NOT LIKE 'a\\%'"],
        ["y = x", "x IN (y)"],
    ],
)
def test_ways_to_write_one_query_are_one_query(ways: list[str]) -> None:
    queries = [parse(way) for way in ways]
    assert len(set(queries)) == 1, [query.text for query in queries]
    assert len({query.id for query in queries}) == 1


@pytest.mark.parametrize(
    ("one", "other", "metadata"),
    [
        ("x = 5", "5 = x", {"x": "05"}),
        ("x = 5", "x IN (5)", {"x": True}),
        ("x = 5", "x = '5'", {"x": "05"}),
        ("x = 1", "x = TRUE", {"x": 7}),
        ("x = '05'", "x IN ('05')", {"x": 5}),
        ("x = 'TRUE'", "x IN ('TRUE')", {"x": True}),
        ("x = '1e+16'", "x IN ('1e+16')", {"x": 10**16}),
        ("x != 'a'", "x NOT IN ('a')", {"x": 5}),
        ("x = y", "y = x", {"x": "05", "y": 5}),
        ("NOT has x", "NOT x = 1", {}),
        ("x = 1 OR x != 1", "TRUE", {}),
        ("x XOR x", "FALSE XOR has x", {"x": True}),
        ("x / 2 = 2", "x / 2.0 = 2", {"x": 5}),
        ("x = 2", "x = 2.5", {"x": 2}),
        ("a = 1 AND b = 2", "a = 1 OR b = 2", {"a": 1}),
        ("x LIKE 'a_'", "x LIKE 'a%'", {"x": "a"}),
        ("x LIKE 'a\\%'", "x LIKE 'a%'", {"x": "ab"}),
    ],
)
def test_queries_that_differ_for_some_metadata_stay_two(one: str, other: str, metadata: Metadata) -> None:
    assert parse(one) != parse(other)
    assert parse(one).matches(metadata) is not parse(other).matches(metadata)


@pytest.mark.parametrize(
    "text",
    [
        "(x = 'a' OR x = 'b') XOR has x",
        "('a' = x OR 'b' != x) XOR has missing",
        "CONCAT(x = 'a' OR x = 'b') = 'false'",
        "(x IN ('a') OR has missing) XOR has x",
        "NOT (x IN ('a') AND x = 'b')",
    ],
)
@pytest.mark.parametrize("value", [5, "a", "b", True])
def test_below_xor_and_in_values_false_and_failed_stay_apart(text: str, value: Value) -> None:
    assert parse(text).matches({"x": value}) is model.holds(read(text, DEFAULT), {"x": value})


def test_a_query_knows_the_keys_that_can_change_it_and_no_others() -> None:
    assert parse("a = 1 AND (has b OR c LIKE 'x%')").keys == {"a", "b", "c"}
    assert parse("a = 1 OR a = 1 AND b = 2").keys == {"a"}
    assert parse("TRUE OR a").keys == frozenset()


def test_the_forms_of_patterns_and_expressions_below_them_are_canonical_too() -> None:
    form = canonical(And((Like(Not(Not(Key("a"))), "%%"), Match(Key("b"), "x"))))
    assert form == And((Like(Compare("=", Key("a"), Literal(True)), "%"), Match(Key("b"), "x")))


def calls_to_parse(text: str) -> int:
    """How many functions of ours are called to read a query: a cost that does not depend on the machine."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and "tocsin" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        parse(text)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        ("(NOT (a{0} = 1 AND ", "))"),
        ("(a{0} = 1 OR (b{0} = 2 AND ", "))"),
        ("(b{0} XOR NOT (a{0} = 1 AND ", "))"),
        ("(a{0} = 1) = (", ")"),
        ("NOT (a{0} LIKE 'x%' XOR ", ")"),
        ("('x' = (a{0} AND ", "))"),
        ("CONCAT(a{0} = 1 AND ", ") = TRUE"),
        ("((FALSE XOR a{0} = 1 AND ", "))"),
    ],
)
def test_the_cost_of_a_query_does_not_double_with_each_level(opened: str, closed: str) -> None:
    def nested(levels: int) -> str:
        return "".join(opened.format(level) for level in range(levels)) + "z" + closed * levels

    assert calls_to_parse(nested(10)) < 20 * calls_to_parse(nested(3))  # by doubling it would be 128 times


def test_the_cost_of_a_query_grows_with_its_length() -> None:
    def wide(parts: int) -> str:
        return " OR ".join(f"(a{part} = 1 AND b = 'x')" for part in range(parts))

    assert calls_to_parse(wide(64)) < 12 * calls_to_parse(wide(8))
