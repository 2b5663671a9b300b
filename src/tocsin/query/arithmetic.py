"""Arithmetic on 64-bit whole numbers and finite decimals; what leaves them is ``Failure.MATH``.

Whole numbers stay whole: their division drops the fraction (towards 0), and a remainder has the sign of what was
divided, as CloudEvents SQL has it. A decimal on either side makes the result a decimal.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from tocsin.query.values import INTEGER_MAX, INTEGER_MIN, Failure, Number, Value, to_number


def calculate(op: str, left: Value, right: Value) -> Number | Failure:
    """``left op right``, both read as numbers."""
    first, second = to_number(left), to_number(right)
    if isinstance(first, Failure):
        return first
    if isinstance(second, Failure):
        return second
    if second == 0 and op in "/%":
        return Failure.MATH
    return _in_range(_RUN[op](first, second))


def negate(value: Value) -> Number | Failure:
    number = to_number(value)
    return number if isinstance(number, Failure) else _in_range(-number)


def _in_range(number: Number) -> Number | Failure:
    if isinstance(number, float):
        return number if math.isfinite(number) else Failure.MATH
    return number if INTEGER_MIN <= number <= INTEGER_MAX else Failure.MATH


def _divide(left: Number, right: Number) -> Number:
    if isinstance(left, float) or isinstance(right, float):
        try:
            return left / right
        except OverflowError:
            return math.inf
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Number, right: Number) -> Number:
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(left, right)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


_RUN: Final[Mapping[str, Callable[[Any, Any], Number]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}
