"""What is read, how operators bind, and what is said about text that is no query."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tocsin.errors import QueryInvalid
from tocsin.query import QueryLimits, parse
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
    height_of,
)
from tocsin.query.grammar import read
from tocsin.query.limits import DEFAULT

a, b, c = Key("a"), Key("b"), Key("c")
one, two = Literal(1), Literal(2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", a),
        ("Location/Room = '410'", Compare("=", Key("Location/Room"), Literal("410"))),
        ('Location/Room = "410"', Compare("=", Key("Location/Room"), Literal("410"))),
        ("a<>1", Compare("!=", a, one)),
        ("has a AND HAS(b)", And((Has("a"), Has("b")))),
        ("exists a And not Exists `b`", And((Has("a"), Not(Has("b"))))),
        ("has = 1 AND has has", And((Compare("=", Key("has"), one), Has("has")))),
        ("has", Key("has")),
        ("a in (1, 'x', b)", In(a, (one, Literal("x"), b))),
        ("a NOT IN (1)", Not(In(a, (one,)))),
        ("a like 'x%'", Like(a, "x%")),
        ("a NOT LIKE 'x%'", Not(Like(a, "x%"))),
        (r"a =~ '^\d+\.x$'", Match(a, r"^\d+\.x$")),
        ("a !~ 'x'", Not(Match(a, "x"))),
        ("a OR b AND c", Or((a, And((b, c))))),
        ("a OR b XOR c", Or((a, Xor((b, c))))),
        ("a XOR b AND c", Xor((a, And((b, c))))),
        ("(a OR b) AND c", And((Or((a, b)), c))),
        ("a AND (b AND c)", And((a, b, c))),
        ("NOT a AND b", And((Not(a), b))),
        ("NOT a = 1", Not(Compare("=", a, one))),
        ("NOT a LIKE 'x'", Not(Like(a, "x"))),
        ("a = NOT b", Compare("=", a, Not(b))),
        ("a = 1 = TRUE", Compare("=", Compare("=", a, one), Literal(True))),
        ("a + 1 < b * 2", Compare("<", Arithmetic("+", a, one), Arithmetic("*", b, two))),
        ("a - b - c", Arithmetic("-", Arithmetic("-", a, b), c)),
        ("a + b IN (1)", In(Arithmetic("+", a, b), (one,))),
        ("a / b", Arithmetic("/", a, b)),
        ("a/b", Key("a/b")),
        ("a/ b", Arithmetic("/", a, b)),
        ("a/(b)", Arithmetic("/", a, b)),
        ("1/2", Arithmetic("/", one, two)),
        ("a/2", Key("a/2")),
        ("a%2", Arithmetic("%", a, two)),
        ("a-1", Arithmetic("-", a, one)),
        ("4 -1", Arithmetic("-", Literal(4), one)),
        ("-a", Negate(a)),
        ("--1", Negate(Literal(-1))),
        ("+1", one),
        ("-9223372036854775808", Literal(-(2**63))),
        ("1.5e3", Literal(1500.0)),
        ("0010", Literal(10)),
        ("1a = 1", Compare("=", Key("1a"), one)),
        ("x.y:z/w_1", Key("x.y:z/w_1")),
        ("Größe", Key("Größe")),
        ("`a b``c` = 1", Compare("=", Key("a b`c"), one)),
        ("`1` = `AND`", Compare("=", Key("1"), Key("AND"))),
        (r"'it\'s' = 'it''s'", Compare("=", Literal("it's"), Literal("it's"))),
        (r'"\\ \d \" "" ' + "'\"", Literal('\\ \\d " " \'')),
        ("''", Literal("")),
        ("left(a, 1)", Call("LEFT", (a, one))),
        ("CONCAT ()", Call("CONCAT", ())),
        ("\t a\r\n=1 ", Compare("=", a, one)),
        ("tRuE", Literal(True)),
    ],
)
def test_text_is_read_as(text: str, expected: Expression) -> None:
    assert read(text, DEFAULT) == expected


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", 0, "expected a value, a key or NOT, found the end"),
        ("  ", 2, "found the end"),
        ("a =", 3, "expected a value, a key or NOT, found the end"),
        ("a = = 1", 4, "found ="),
        ("a AND", 5, "found the end"),
        ("a b", 2, "expected an operator (such as AND) or the end, found b"),
        ("(a = 1", 6, "expected ) to close the bracket at character 1, found the end"),
        ("a = 1)", 5, "expected an operator (such as AND) or the end, found )"),
        ("a LIKE b", 7, "expected the pattern of LIKE, in quotes, found b"),
        ("a =~ 5", 5, "expected a regular expression, in quotes, found 5"),
        ("a =~ 'x('", 5, "not a regular expression that RE2 takes: missing )"),
        (r"a =~ '(x)\1'", 5, "not a regular expression that RE2 takes: invalid escape sequence"),
        ("a =~ '(x{1000}){1000}'", 5, "not a regular expression that RE2 takes"),
        ("a =~ '(x{1000}){100}'", 5, "not a regular expression that RE2 takes"),
        ("a NOT b", 6, "expected LIKE or IN after NOT, found b"),
        ("a IN 1", 5, "expected ( before the values of IN, found 1"),
        ("a IN ()", 6, "expected a value, found )"),
        ("a IN (1,)", 8, "expected a value, found )"),
        ("a IN (1 2)", 8, "expected , or ) in the list, found 2"),
        ("EXISTS 5", 7, "expected a key, found 5"),
        ("EXISTS (a", 9, "expected ) after the key, found the end"),
        ("has and", 7, "found the end"),
        ("exists and", 7, "a key of that name is written `and`"),
        ("in = 1", 0, "a key of that name is written `in`"),
        ("foo(1)", 0, "there is no function foo; there are ABS"),
        ("LEFT(a)", 0, "LEFT takes 2 arguments, not 1"),
        ("SUBSTRING(a)", 0, "SUBSTRING takes 2 or 3 arguments, not 1"),
        ("CONCAT_WS()", 0, "CONCAT_WS takes at least 1 arguments, not 0"),
        ("CONCAT(1,", 9, "found the end"),
        ("a == 1", 2, "== is not an operator here; write ="),
        ("a && b", 2, "write AND"),
        ("a || b", 2, "write OR"),
        ("!a", 0, "write NOT"),
        ("+a", 1, "expected a number after the sign +, found a"),
        ("a = 'x", 4, "this string is not closed; end it with another '"),
        ("a = 'x\\'", 4, "this string is not closed"),
        ("`a = 1", 0, "this key is not closed; end it with another `"),
        ("`` = 1", 0, "a key cannot be empty"),
        ("a ~ 1", 2, "the character '~' has no meaning here"),
        ("a = 1;", 5, "the character ';' has no meaning here"),
        ("a = .5", 4, "the character '.' has no meaning here"),
        ("9223372036854775808 = a", 0, "whole numbers have 64 bits; write a decimal"),
        ("-9223372036854775809 = a", 1, "whole numbers have 64 bits"),
        ("1e999 = a", 0, "the number is too large"),
        ("a = '\0'", 5, "the character U+0000 is not allowed"),
        ("a = '\ud800'", 5, "the character U+D800 is not allowed"),
    ],
)
def test_an_error_points_at_the_character_and_says_what_was_expected(text: str, at: int, said: str) -> None:
    with pytest.raises(QueryInvalid) as caught:
        read(text, DEFAULT)
    assert caught.value.at == at
    assert caught.value.text == text
    assert said in caught.value.problem


def test_an_error_shows_the_place_in_the_line() -> None:
    with pytest.raises(QueryInvalid) as caught:
        parse("Location/Room = AND type = 'x'")
    assert str(caught.value).splitlines() == [
        "query, character 17: expected a value, a key or NOT, found AND; a key of that name is written `AND`",
        "    Location/Room = AND type = 'x'",
        "                    ^",
    ]


def test_an_error_in_a_long_text_shows_what_is_around_it() -> None:
    with pytest.raises(QueryInvalid) as caught:
        parse("a = 1 AND\n" * 100 + "?" + " AND b = 2" * 100)
    _, line, mark = str(caught.value).splitlines()
    assert line[mark.index("^")] == "?"
    assert len(line) < 130


BEYOND: list[tuple[str, dict[str, int], str]] = [
    ("a = 1", {"length": 4}, "a query of 5 characters is too long; at most 4 are allowed"),
    ("((((((a))))))", {"depth": 2}, "nested more than 2 deep"),
    ("NOT NOT a", {"depth": 2}, "nested more than 2 deep"),
    ("a - b - c = 1", {"depth": 3}, "nested more than 3 deep"),
    ("a = b = c", {"depth": 2}, "nested more than 2 deep"),
    ("a AND b", {"terms": 2}, "more than 2 terms"),
    ("a IN (1, 2, 3)", {"options": 2}, "more than 2 values"),
    ("CONCAT(1, 2, 3) = a", {"options": 2}, "more than 2 values"),
    ("a = 'abc'", {"string_length": 2}, "a string of 3 characters is too long; at most 2 are allowed"),
    ("abc = 1", {"key_length": 2}, "a key of 3 characters is too long; at most 2 are allowed"),
    ("`abc` = 1", {"key_length": 2}, "a key of 3 characters is too long; at most 2 are allowed"),
    (
        "a =~ 'abc'",
        {"regex_length": 2},
        "a regular expression of 3 characters is too long; at most 2 are allowed",
    ),
]


@pytest.mark.parametrize(("text", "limits", "said"), BEYOND)
def test_every_limit_is_kept_and_named(text: str, limits: dict[str, int], said: str) -> None:
    parse(text)
    with pytest.raises(QueryInvalid, match=said):
        parse(text, QueryLimits(**limits))


def test_no_limit_is_without_a_case_above() -> None:
    assert {name for _, limits, _ in BEYOND for name in limits} == set(QueryLimits.__struct_fields__)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 4_000,
        "NOT " * 1_000 + "a",
        "-" * 4_000 + "a",
        "a" + "-a" * 2_000,
        "a" + "=a" * 2_000,
        "ABS(" * 1_000,
        "a IN (" * 650,
        "a LIKE 'x' = " * 300 + "a",
        "(a OR b AND " * 300,
        "a XOR (NOT " * 350,
    ],
)
def test_no_nesting_exhausts_the_stack(text: str) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_depth_here() + 500)
    try:
        with pytest.raises(QueryInvalid, match="nested more than 32 deep"):
            parse(text)
    finally:
        sys.setrecursionlimit(limit)


def _depth_here() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back:
        frame, depth = frame.f_back, depth + 1
    return depth


@pytest.mark.parametrize(
    "shape", ["(NOT ({}) OR x{} = 1)", "({}) = (x{} = 'a')", "ABS({}) + x{}", "x{1} IN (1, {0}, 2)"]
)
def test_the_deepest_query_that_is_read_can_be_worked_with(shape: str) -> None:
    text, deepest = "a", None
    for number in range(40):
        text = shape.format(text, number)
        try:
            deepest = parse(f"({text}) = 1")
        except QueryInvalid:
            break
    else:
        pytest.fail("nothing was refused")
    assert deepest is not None
    assert height_of(deepest.expression) <= DEFAULT.depth
    assert parse(deepest.text) == deepest
    deepest.matches({"a": 1})


WORDS = "a b/c has exists in like and or xor not true LEFT( CONCAT( INT( 1 2.5 1e9 'x' \"y\" `k` ü 99999999999999999999"
SYMBOLS = "( ) ( ) , = != <> < <= =~ !~ + - * / % ' \" ` \\ _ . : ; \0 \n"
pieces = st.sampled_from([*WORDS.split(" "), *SYMBOLS.split(" ")])


@settings(deadline=None, max_examples=1_500)
@given(
    st.text(max_size=40)
    | st.lists(pieces, max_size=25).map(" ".join)
    | st.lists(pieces, max_size=15).map("".join)
)
@example("𝟓 = 1")
@example("٣ = 1")
def test_any_text_is_either_parsed_or_refused(text: str) -> None:
    try:
        query = parse(text)
    except QueryInvalid as error:
        assert error.text == text
        assert 0 <= error.at <= len(text)
        assert str(error)
    else:
        assert parse(query.text) == query
        query.matches({"a": 1, "b/c": "x"})
