"""Regular expressions that could take forever are refused."""

from __future__ import annotations

import pytest

from tocsin.pipeline.language.functions.patterns import pattern_problem


@pytest.mark.parametrize(
    "pattern",
    [
        r"^hue-[0-9]+$",
        "(ab)*",
        r"([0-9]{1,3}\.){3}[0-9]{1,3}",
        "(foo|bar) baz",
        ".*fire.*",
        "(?i)x",
        "",
        r"\p{L}+",
    ],
)
def test_simple_patterns_are_allowed(pattern: str) -> None:
    assert (pattern_problem(pattern) is None) == (r"\p" not in pattern)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(a+)+$", "forever"),
        ("(a|aa)*", "forever"),
        ("((a{0,9}){0,9}){0,9}", "forever"),
        ("(x+x+)+y", "forever"),
        ("(.*)*", "forever"),
        ("a*b*c*d*", "4 repetitions"),
        ("(?=x)", "cannot be read"),
        (r"(a)\1", "cannot be read"),
        ("[", "cannot be read"),
        ("x" * 257, "too long"),
        ("(" * 200, "cannot be read"),
    ],
)
def test_patterns_that_could_take_forever_are_refused(pattern: str, said: str) -> None:
    assert said in (pattern_problem(pattern) or "")
