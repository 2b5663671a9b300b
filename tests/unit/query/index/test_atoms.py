"""Covers and watches: what must hold when a query does, and what can change it."""

from __future__ import annotations

from math import inf, nextafter

import pytest
from hypothesis import given, settings

from tests.unit.query.standing import METADATA, QUERIES
from tocsin.query import Metadata, Query, changed_keys, parse
from tocsin.query.evaluate import compile_truth
from tocsin.query.expression import Not
from tocsin.query.index.atoms import (
    NEVER,
    AllOf,
    AnyOf,
    Cover,
    Range,
    Tokens,
    Watch,
    Watched,
    cover_of,
    regex_prefix,
    watches_of,
)
from tocsin.query.index.tokens import AS_TRUE, HERE, IS_TRUE, Beginning, Token, View
from tocsin.query.index.watch import KeyWatch


def holds(cover: Cover | None, view: View) -> bool:
    match cover:
        case None:
            return True
        case AllOf(parts):
            return all(holds(part, view) for part in parts)
        case AnyOf(parts):
            return any(holds(part, view) for part in parts)
    reading = view.read(cover.key)
    if reading is None:
        return False
    if isinstance(cover, Range):
        return reading.number is not None and cover.low <= reading.number <= cover.high
    return any(
        reading.text.startswith(token.text) if isinstance(token, Beginning) else token in reading.tokens
        for token in cover.tokens
    )


@given(QUERIES, METADATA)
@settings(max_examples=200, deadline=None)
def test_a_cover_holds_whenever_its_query_does(query: Query, metadata: Metadata) -> None:
    truth = compile_truth(query.expression)(metadata)
    view = View(metadata)
    if truth is True:
        assert holds(cover_of(query.expression), view)
    if truth is False:  # a form that a query does not have, but a cover must be right for
        assert holds(cover_of(Not(query.expression)), view)


@given(QUERIES, METADATA, METADATA)
@settings(max_examples=200, deadline=None)
def test_the_outcome_stays_while_no_watch_is_concerned(
    query: Query, before: Metadata, after: Metadata
) -> None:
    watches = watches_of(query.expression)
    assert watches.keys() == query.keys
    old, new = View(before), View(after)
    concerned = False
    for key in changed_keys(before, after) & query.keys:
        watch: KeyWatch[str] = KeyWatch()
        watch.add("query", watches[key])
        concerned |= "query" in watch.concerned(old.read(key), new.read(key))
        watch.remove("query", watches[key])
        assert not watch
    if not concerned:
        assert query.matches(before) == query.matches(after)


@pytest.mark.parametrize(
    ("text", "cover"),
    [
        ("a = 'x'", Tokens("a", ("x",))),
        ("a = TRUE", Tokens("a", (AS_TRUE,))),
        ("a", Tokens("a", (AS_TRUE,))),
        ("a IN ('x', 2)", Tokens("a", (2, "2", IS_TRUE, "x"))),
        ("a > 2 AND a <= 5", Range("a", nextafter(2.0, inf), 5.0)),
        ("NOT a < 2", Range("a", 2.0, inf)),
        ("a > 5 AND a < 2", NEVER),
        ("a != 'x'", Tokens("a", (HERE,), implied=True)),
        ("EXISTS a", Tokens("a", (HERE,))),
        ("NOT EXISTS a", None),
        ("a LIKE 'x%y'", Tokens("a", (Beginning("x"),))),
        ("a LIKE 'x'", Tokens("a", ("x",))),
        ("a =~ '^x/y'", Tokens("a", (Beginning("x/y"),))),
        ("a = 'x' OR NOT EXISTS b", None),
        ("a = 'x' OR b = 'y'", AnyOf((Tokens("a", ("x",)), Tokens("b", ("y",))))),
        ("a > 9007199254740992", Tokens("a", (HERE,), implied=True)),
    ],
)
def test_the_cover(text: str, cover: Cover | None) -> None:
    found = cover_of(parse(text).expression)
    assert _sorted(found) == _sorted(cover)


@pytest.mark.parametrize(
    ("text", "watches"),
    [
        ("a = 1 AND b != 'x'", {"a": {Tokens("a", (1,))}, "b": {Tokens("b", ("x",))}}),
        ("a >= 1 AND a <= 2", {"a": {Range("a", 1.0, 2.0)}}),
        ("a >= 1 OR a <= 0", {"a": {Range("a", 1.0, inf), Range("a", -inf, 0.0)}}),
        ("(a > 5 AND a < 2) OR b = 1", {"a": {Watch.FORM}, "b": {Tokens("b", (1,))}}),
        ("NOT EXISTS a", {"a": {Watch.FORM}}),
        ("a LIKE 'x%' AND a >= 1", {"a": {Watch.EVERY}}),
        ("a = b", {"a": {Watch.EVERY}, "b": {Watch.EVERY}}),
    ],
)
def test_the_watches(text: str, watches: dict[str, set[Watched]]) -> None:
    assert watches_of(parse(text).expression) == watches


def _sorted(cover: Cover | None) -> object:
    def order(token: Token) -> str:
        return repr(token)

    if isinstance(cover, Tokens):
        return cover.key, sorted(cover.tokens, key=order), cover.implied
    return cover


@pytest.mark.parametrize(
    ("regex", "beginning"),
    [
        ("^abc", "abc"),
        ("^abc$", "abc"),
        ("^ab?c", "a"),
        ("^ab*", "a"),
        ("^ab{0,2}", "a"),
        ("^ab+", "ab"),
        (r"^a\.b/", "a.b/"),
        (r"^a\.?b", "a"),
        (r"^a\d", "a"),
        ("^a(b|c)", ""),
        ("^a|b", ""),
        ("(?i)^abc", ""),
        ("abc", ""),
        ("^", ""),
        ("^.x", ""),
    ],
)
def test_the_beginning_of_a_regular_expression(regex: str, beginning: str) -> None:
    assert regex_prefix(regex) == beginning
