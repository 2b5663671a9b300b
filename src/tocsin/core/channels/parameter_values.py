"""Values of a channel's parameters: read from text, in one form for each value.

Two texts that mean the same value of a type (``5`` and ``5.0`` of a DOUBLE, ``10:00+02:00`` and ``08:00Z`` of a
TIMESTAMP) give the same ``Value``, so that both are one backend subscription. ``written`` is the shortest text that
gives a value back.

    STRING      any text
    BIGINT      a whole number of 64 bits
    DOUBLE      a finite number
    BOOLEAN     true or false
    DATE        2024-05-31                       kept as that text
    TIMESTAMP   2024-05-31T10:00:00.5+02:00      kept as text, in UTC; without a zone it is UTC already
"""

from __future__ import annotations

import math
import re
from typing import Final

from tocsin.model.catalogue import ParameterType
from tocsin.model.results import Value

TEXT_MAX_BYTES: Final = 1_024  # as a topic has by default
BIGINT_MAX: Final = (1 << 63) - 1
YEAR_MAX: Final = 9_999

_BIGINT: Final = re.compile(r"[+-]?[0-9]{1,30}")
_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]{1,310}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,4})?")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?)?"
    r"(?:([Zz])|([+-])([0-9]{2}):?([0-9]{2}))?"
)
_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class ValueInvalid(ValueError):
    """A text is no value of its type; the message says what one looks like."""


def read_value(kind: ParameterType, text: str) -> Value:
    """The value that a text means. Raises ``ValueInvalid``."""
    if len(text.encode()) > TEXT_MAX_BYTES:
        raise ValueInvalid(f"it has more than {TEXT_MAX_BYTES} bytes")
    match kind:
        case "STRING":
            return text
        case "BIGINT":
            return _bigint(text)
        case "DOUBLE":
            return _double(text)
        case "BOOLEAN":
            return _boolean(text)
        case "DATE":
            return _date(text)
        case "TIMESTAMP":
            return _timestamp(text)


def written(value: Value) -> str:
    """A value as text that ``read_value`` of its type gives back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _bigint(text: str) -> int:
    if _BIGINT.fullmatch(text) is None:
        raise ValueInvalid("a BIGINT is a whole number, such as -42")
    number = int(text)
    if not -BIGINT_MAX - 1 <= number <= BIGINT_MAX:
        raise ValueInvalid("a BIGINT has 64 bits")
    return number


def _double(text: str) -> float:
    if _DOUBLE.fullmatch(text) is None:
        raise ValueInvalid("a DOUBLE is a number, such as 2.5 or 1e-3")
    number = float(text)
    if not math.isfinite(number):
        raise ValueInvalid("a DOUBLE is a finite number")
    return number + 0.0  # of the two zeros, the one without a sign


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueInvalid("a BOOLEAN is true or false")
    return text.lower() == "true"


# ── the calendar ────────────────────────────────────────────────────────────────────────────────────────────


def _date(text: str) -> str:
    found = _DATE.fullmatch(text)
    if found is None or not _is_day(*map(int, found.groups())):
        raise ValueInvalid("a DATE is a day of the calendar, such as 2024-05-31")
    return text


def _timestamp(text: str) -> str:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueInvalid("a TIMESTAMP is written as 2024-05-31T10:00:00Z, or with +02:00 instead of the Z")
    day, hour, minute, second, fraction, _, sign, ahead_hours, ahead_minutes = found.groups()
    clock = [int(each or 0) for each in (hour, minute, second, ahead_hours, ahead_minutes)]
    if any(number > bound for number, bound in zip(clock, (23, 59, 59, 18, 59), strict=True)):
        raise ValueInvalid("a TIMESTAMP has hours to 23, minutes and seconds to 59, and zones to 18 hours")
    ahead = (clock[3] * 60 + clock[4]) * (-1 if sign == "-" else 1)
    of_day = clock[0] * 60 + clock[1] - ahead
    moved = _moved(_date(day), of_day // 1_440)
    parts = f".{fraction.rstrip('0')}".rstrip(".") if fraction else ""
    return f"{moved}T{of_day % 1_440 // 60:02}:{of_day % 60:02}:{clock[2]:02}{parts}Z"


def _moved(day: str, by: int) -> str:
    """A day, or the one before it or after it."""
    year, month, of_month = map(int, day.split("-"))
    of_month += by
    if of_month == 0:
        year, month = (year - 1, 12) if month == 1 else (year, month - 1)
        of_month = _days(year, month)
    elif of_month > _days(year, month):
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
        of_month = 1
    if not 1 <= year <= YEAR_MAX:
        raise ValueInvalid(f"a TIMESTAMP is in the years 1 to {YEAR_MAX}")
    return f"{year:04}-{month:02}-{of_month:02}"


def _is_day(year: int, month: int, day: int) -> bool:
    return year >= 1 and 1 <= month <= 12 and 1 <= day <= _days(year, month)


def _days(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _DAYS[month - 1]
