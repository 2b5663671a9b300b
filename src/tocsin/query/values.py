"""Values, their types, and how one is read as another: the casts of CloudEvents SQL, with decimals.

| from \\ to | string | number | boolean |
| --- | --- | --- | --- |
| string | itself | the number it writes, else a failure | ``true``/``false`` in any case, else a failure |
| number | its shortest writing; a whole one has no point | itself | whether it is not 0 |
| boolean | ``true`` or ``false`` | 1 or 0 | itself |

Whole numbers have 64 bits, decimals are finite. Code that takes metadata from outside asks ``is_value`` first. Where
something cannot be had, a ``Failure`` stands in the place of the value: nothing here raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias, TypeGuard
from typing import Literal as OneOf

Value: TypeAlias = str | int | float | bool
Metadata: TypeAlias = Mapping[str, Value]
Number: TypeAlias = int | float
Kind = OneOf["string", "number", "boolean"]

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 63) - 1
# A decimal below this and without a fraction is a whole number exactly, and is written as one.
WHOLE_MAX: Final = float(1 << 53)
NUMBER_TEXT_MAX: Final = 64  # characters of a string that is read as a number

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Failure(Enum):
    """Why there is no value. CloudEvents SQL's errors, of which those about the text come from the parser."""

    MISSING = "missing key"
    CAST = "value of another type"
    MATH = "division by zero or a result out of range"
    FUNCTION = "argument out of range"


Outcome: TypeAlias = Value | Failure


def is_value(value: object) -> TypeGuard[Value]:
    """Whether this can be a metadata value: string (without surrogates), boolean, 64-bit integer, decimal."""
    if isinstance(value, str):
        return value.isascii() or not _SURROGATE.search(value)
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return INTEGER_MIN <= value <= INTEGER_MAX
    return isinstance(value, float) and math.isfinite(value)


def kind_of(value: Value) -> Kind:
    """The type of a value."""
    if isinstance(value, str):
        return "string"
    return "boolean" if isinstance(value, bool) else "number"


def to_string(value: Value) -> str:
    """Always possible."""
    if value.__class__ is str:
        return value
    if value.__class__ is bool:
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < WHOLE_MAX else repr(value)
    return str(value)


def to_number(value: Value) -> Number | Failure:
    """A string of digits becomes a whole number if 64 bits hold it, else a decimal."""
    if value.__class__ is int or value.__class__ is float:
        return value
    return _read_number(value) if isinstance(value, str) else int(value)


def to_integer(value: Value) -> int | Failure:
    """The result of ``INT``: decimals lose their fraction, strings must be whole numbers already."""
    if isinstance(value, str):
        if len(value) > NUMBER_TEXT_MAX or not _INTEGER.fullmatch(value):
            return Failure.CAST
        value = int(value)
    integer = int(value)
    return integer if INTEGER_MIN <= integer <= INTEGER_MAX else Failure.CAST


def to_boolean(value: Value) -> bool | Failure:
    if value.__class__ is bool:
        return value
    if isinstance(value, str):
        lowered = value.lower()
        return lowered == "true" if lowered in ("true", "false") else Failure.CAST
    return value != 0


def _read_number(text: str) -> Number | Failure:
    if len(text) > NUMBER_TEXT_MAX or not _NUMBER.fullmatch(text):
        return Failure.CAST
    if _INTEGER.fullmatch(text):
        integer = int(text)
        return integer if INTEGER_MIN <= integer <= INTEGER_MAX else float(integer)
    number = float(text)
    return number if math.isfinite(number) else Failure.CAST


CASTS: Final[Mapping[Kind, Callable[[Value], Outcome]]] = {
    "string": to_string,
    "number": to_number,
    "boolean": to_boolean,
}
# The cast to the type of a value of this class, as ``=`` wants it.
CAST_LIKE: Final[Mapping[type, Callable[[Value], Outcome]]] = {
    str: to_string,
    int: to_number,
    float: to_number,
    bool: to_boolean,
}
