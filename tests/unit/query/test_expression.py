"""Trees: when two are equal, and what can be asked of one."""

from __future__ import annotations

import pytest

from tocsin.query.expression import (
    And,
    Arithmetic,
    Call,
    Compare,
    Expression,
    Has,
    In,
    Key,
    Like,
    Literal,
    Match,
    Negate,
    Not,
    Or,
    Xor,
    children,
    height_of,
    keys_of,
    type_of,
    walk,
)

TREE = And(
    (
        Compare("<", Arithmetic("+", Key("a"), Literal(1)), Negate(Key("b"))),
        Or((Has("c"), Not(In(Key("d"), (Literal("x"), Key("e")))))),
        Xor((Like(Key("f"), "%"), Match(Call("LOWER", (Key("g"),)), "x"))),
    )
)


def test_literals_that_python_has_equal_are_not_the_same() -> None:
    ones = [Literal(1), Literal(1.0), Literal(True), Literal("1")]
    assert len(set(ones)) == 4
    assert len({Compare("=", Key("a"), one) for one in ones}) == 4
    assert Literal(1) == Literal(1)
    assert hash(And((Key("a"), Literal(1)))) == hash(And((Key("a"), Literal(1))))


def test_every_key_is_found_wherever_it_stands() -> None:
    assert keys_of(TREE) == set("abcdefg")
    assert keys_of(Literal("a")) == frozenset()


def test_a_walk_meets_every_node_once_and_each_before_those_below() -> None:
    met = list(walk(TREE))
    assert met[0] is TREE
    assert len(met) == 20
    for node in met:
        for child in children(node):
            assert any(child is later for later in met[met.index(node) + 1 :])


def test_the_height_is_that_of_the_longest_way_down() -> None:
    assert height_of(Key("a")) == 1
    assert height_of(TREE) == 5


@pytest.mark.parametrize(
    ("tree", "kind"),
    [
        (Literal("x"), "string"),
        (Literal(1.5), "number"),
        (Literal(True), "boolean"),
        (Key("a"), None),
        (Negate(Key("a")), "number"),
        (Call("LENGTH", (Key("a"),)), "number"),
        (Call("BOOL", (Key("a"),)), "boolean"),
        (TREE, "boolean"),
    ],
)
def test_the_type_of_an_outcome_is_known_unless_it_is_a_keys(tree: Expression, kind: str | None) -> None:
    assert type_of(tree) == kind
