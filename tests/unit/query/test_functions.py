"""Functions beyond what the CloudEvents test kit and the model show: their edges."""

from __future__ import annotations

import pytest

from tocsin.query.evaluate import evaluate
from tocsin.query.grammar import read
from tocsin.query.limits import DEFAULT
from tocsin.query.values import INTEGER_MAX, Failure, Value


@pytest.mark.parametrize(
    ("text", "value", "failure"),
    [
        ("ABS(-9223372036854775808)", INTEGER_MAX, Failure.MATH),
        ("ABS(-2.5)", 2.5, None),
        ("ABS('-3')", 3, None),
        ("INT(-2.9)", -2, None),
        ("INT('2.9')", 0, Failure.CAST),
        ("INT(1e30)", 0, Failure.CAST),
        ("INT('9223372036854775808')", 0, Failure.CAST),
        ("FLOAT(7) / 2", 3.5, None),
        ("FLOAT('x')", 0, Failure.CAST),
        ("STRING(2.50)", "2.5", None),
        ("STRING(2.0)", "2", None),
        ("STRING(1e300)", "1e+300", None),
        ("BOOL(0.0)", False, None),
        ("LENGTH('ü€😀')", 3, None),
        ("TRIM('\u2003\t a\u001f \u3000')", "a\u001f", None),
        ("LEFT('abc', 0)", "", None),
        ("RIGHT('abc', 0)", "", None),
        ("RIGHT('abc', 'x')", "", Failure.CAST),
        ("SUBSTRING('abc', 3, 5)", "c", None),
        ("SUBSTRING('abc', 1, -1)", "", Failure.FUNCTION),
        ("SUBSTRING('abc', -3)", "abc", None),
        ("CONCAT_WS('-', 1, TRUE, 2.5)", "1-true-2.5", None),
        ("CONCAT('a', missing)", "", Failure.MISSING),
        ("UPPER('straße')", "STRASSE", None),
    ],
)
def test_a_function_gives(text: str, value: Value, failure: Failure | None) -> None:
    found = evaluate(read(text, DEFAULT), {})
    assert found == (value, failure)
    assert found[0].__class__ is value.__class__
