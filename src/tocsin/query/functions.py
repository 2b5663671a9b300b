"""The functions of queries: those of CloudEvents SQL, and ``FLOAT``.

Arguments are cast to the types that a function wants; a failed cast makes the call fail. Lower and upper case are
Unicode's. A function that cannot do what it is asked gives ``Failure.FUNCTION`` or ``Failure.MATH``; ``fallback`` is
then the value that CloudEvents SQL wants beside the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from tocsin.query.values import (
    INTEGER_MAX,
    Failure,
    Kind,
    Number,
    Outcome,
    Value,
    to_boolean,
    to_integer,
    to_number,
    to_string,
)

# Unicode's White_Space; Python's own strip() takes the control characters U+001C to U+001F too.
WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function: the cast of each argument, of those beyond (``rest``), and of what it gives."""

    casts: tuple[Callable[[Value], Outcome], ...]
    result: Kind
    run: Callable[..., Outcome]
    optional: int = 0  # how many of the last casts' arguments may be left out
    rest: Callable[[Value], Outcome] | None = None
    fallback: Callable[..., Value] | None = None

    def takes(self, count: int) -> bool:
        """Whether it can be called with so many arguments."""
        most = count if self.rest else len(self.casts)
        return len(self.casts) - self.optional <= count <= most

    def arity(self) -> str:
        """How many arguments it takes, as text."""
        least, most = len(self.casts) - self.optional, len(self.casts)
        if self.rest:
            return f"at least {least}" if least else "any number of"
        return str(least) if least == most else f"{least} or {most}"

    def cast_of(self, index: int) -> Callable[[Value], Outcome]:
        """The cast of the argument at ``index``."""
        if index < len(self.casts):
            return self.casts[index]
        assert self.rest is not None
        return self.rest


def _left(text: str, count: int) -> str | Failure:
    return text[:count] if count >= 0 else Failure.FUNCTION


def _right(text: str, count: int) -> str | Failure:
    if count < 0:
        return Failure.FUNCTION
    return text[max(len(text) - count, 0) :]


def _substring(text: str, position: int, length: int | None = None) -> str | Failure:
    if abs(position) > len(text) or (length is not None and length < 0):
        return Failure.FUNCTION
    if position == 0:
        return ""
    start = position - 1 if position > 0 else len(text) + position
    return text[start:] if length is None else text[start : start + length]


def _absolute(number: Number) -> Number | Failure:
    magnitude = abs(number)
    return magnitude if magnitude.__class__ is float or magnitude <= INTEGER_MAX else Failure.MATH


def _to_float(value: Value) -> float | Failure:
    number = to_number(value)
    return number if isinstance(number, Failure) else float(number)


def _first(text: str, *_: Any) -> str:
    return text


def _same(value: Value) -> Value:
    return value


FUNCTIONS: Final[Mapping[str, Function]] = {
    "ABS": Function(casts=(to_number,), result="number", run=_absolute, fallback=lambda _: INTEGER_MAX),
    "BOOL": Function(casts=(to_boolean,), result="boolean", run=_same),
    "CONCAT": Function(casts=(), rest=to_string, result="string", run=lambda *texts: "".join(texts)),
    "CONCAT_WS": Function(
        casts=(to_string,), rest=to_string, result="string", run=lambda between, *texts: between.join(texts)
    ),
    "FLOAT": Function(casts=(_to_float,), result="number", run=_same),
    "INT": Function(casts=(to_integer,), result="number", run=_same),
    "LEFT": Function(casts=(to_string, to_integer), result="string", run=_left, fallback=_first),
    "LENGTH": Function(casts=(to_string,), result="number", run=len),
    "LOWER": Function(casts=(to_string,), result="string", run=str.lower),
    "RIGHT": Function(casts=(to_string, to_integer), result="string", run=_right, fallback=_first),
    "STRING": Function(casts=(to_string,), result="string", run=_same),
    "SUBSTRING": Function(
        casts=(to_string, to_integer, to_integer), optional=1, result="string", run=_substring
    ),
    "TRIM": Function(casts=(to_string,), result="string", run=lambda text: text.strip(WHITE_SPACE)),
    "UPPER": Function(casts=(to_string,), result="string", run=str.upper),
}
