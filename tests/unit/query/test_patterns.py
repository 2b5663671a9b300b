"""LIKE and regular expressions against definitions that need no cleverness."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.query import model
from tocsin.query.patterns import (
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
    assert not compile_regex("^(a+)+$")("a" * 50_000 + "b")
    assert not compile_like("%a" * 100 + "_c")("a" * 50_000 + "b")


@pytest.mark.parametrize("regex", ["(", "a{2000}", r"(a)\1", "(?=a)", "((a{100}){100}){100}"])
def test_what_re2_does_not_take_is_refused_with_its_reason(regex: str) -> None:
    with pytest.raises(RegexInvalid, match=r"\w+"):
        compile_regex(regex)


def test_a_string_that_utf_8_cannot_say_does_not_stop_a_match() -> None:
    assert compile_regex("^a")("a\ud800")
