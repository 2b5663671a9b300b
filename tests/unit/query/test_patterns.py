"""LIKE and regular expressions against definitions that need no cleverness."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.query import model
from tocsin.query.patterns import (
    SEARCHED_MAX_BYTES,
    RegexInvalid,
    compile_like,
    compile_regex,
    like_pieces,
    like_prefix,
    like_text,
)

texts = st.text("ab%_\\.\nü", max_size=7)


@settings(deadline=None, max_examples=1_000)
@given(texts | st.text("ab%", max_size=6), texts | st.text("ab", max_size=6))
@example("a%a", "a")
@example("a%b%b", "ab")
def test_like_matches_as_its_definition_does(pattern: str, text: str) -> None:
    expected = model.like(text, list(model.wildcards(pattern)))
    assert compile_like(pattern)(text) is expected
    assert compile_like(like_text(like_pieces(pattern)))(text) is expected
    prefix, whole = like_prefix(pattern)
    if expected:
        assert text.startswith(prefix)
    if whole:
        assert expected is (text == prefix)


@settings(deadline=None)
@given(texts)
def test_the_pieces_of_a_pattern_alternate_and_write_it(pattern: str) -> None:
    pieces = like_pieces(pattern)
    assert like_pieces(like_text(pieces)) == pieces
    assert all(one[1] != other[1] for one, other in pairwise(pieces))


@pytest.mark.parametrize(
    ("regex", "text", "expected"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^a.c$", "aüc", True),
        ("(?i)ABC", "xabcx", True),
        ("a.b", "a\nb", False),
        ("", "", True),
        (r"\pL", "ü", True),
    ],
)
def test_a_regular_expression_is_found_anywhere_unless_anchored(
    regex: str, text: str, expected: bool
) -> None:
    assert compile_regex(regex)(text) is expected


def test_an_expression_that_would_backtrack_elsewhere_takes_linear_time() -> None:
    assert not compile_regex("^(a+)+$")("a" * 4_000 + "b")
    assert not compile_like("%a" * 10 + "_c")("a" * 400 + "b")


def test_a_large_expression_is_not_searched_in_a_long_string() -> None:
    large = compile_regex("(.{1,900})x")
    assert large("..x") and not large("." * 4_000 + "x")
    unicode = compile_regex(r"^\pL+$")
    assert unicode("ü" * 20) and not unicode("ü" * 100)


def test_a_small_expression_is_searched_in_strings_up_to_the_bound() -> None:
    small = compile_regex("b$")
    assert small("a" * (SEARCHED_MAX_BYTES - 1) + "b")
    assert not small("a" * SEARCHED_MAX_BYTES + "b")


@pytest.mark.parametrize("regex", ["(", "a{2000}", r"(a)\1", "(?=a)", "((a{100}){100}){100}"])
def test_what_re2_does_not_take_is_refused_with_its_reason(regex: str) -> None:
    with pytest.raises(RegexInvalid, match=r"\w+"):
        compile_regex(regex)


def test_a_string_that_utf_8_cannot_say_does_not_stop_a_match() -> None:
    assert compile_regex("^a")("a\ud800")
