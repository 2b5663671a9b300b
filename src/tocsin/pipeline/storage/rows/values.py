"""Fits values to types: the rules, one value at a time.

- Numbers are numbers: ``"5"`` is no BIGINT, ``5.0`` is one, ``5.5`` is not, and what is out of range does not fit.
- BOOLEAN is ``true`` or ``false``. STRING is text; an object or array is taken as its JSON text (so GeoJSON may be
  a STRING).
- TIMESTAMP is ISO 8601, in UTC if it names no offset, or a date alone, or a number since 1970: of seconds if it is
  below 10¹¹, of milliseconds below 10¹⁴, else of microseconds (by its absolute value). DATE is ``YYYY-MM-DD``.
- DECIMAL is a number, or text that is one, and fits without rounding. BINARY is base64.
- ARRAY, MAP and STRUCT are an array, an object, an object; fields that a STRUCT does not have are ignored.
- ``null`` fits whatever need not be there.

``convert`` gives a value that Arrow takes for the type, or raises ``Unfit``. Values of the types themselves (a
``datetime`` for TIMESTAMP) fit too: Parquet files have such.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import math
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tocsin.pipeline.storage.rows.types import INTEGERS, Type

SECONDS_BELOW: Final = 10**11  # the year 5138, in seconds; March 1973, in milliseconds
MILLISECONDS_BELOW: Final = 10**14
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FIRST_US: Final = (datetime.datetime.min.replace(tzinfo=datetime.UTC) - _EPOCH) // datetime.timedelta(
    microseconds=1
)
_LAST_US: Final = (datetime.datetime.max.replace(tzinfo=datetime.UTC) - _EPOCH) // datetime.timedelta(
    microseconds=1
)
FLOAT_MAX: Final = 3.4028234663852886e38
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[Tt ](\d{2}:\d{2}(?::\d{2})?)(?:\.(\d{1,9}))?\s?([Zz]|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_as_text: Final = msgspec.json.Encoder(decimal_format="number")


class Unfit(ValueError):
    """A value does not fit. ``path`` says where it is, from the record down."""

    def __init__(self, problem: str, path: str = "") -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{path}: {problem}" if path else problem)

    def under(self, name: str) -> Unfit:
        rest = self.path if self.path.startswith("[") or not self.path else f".{self.path}"
        return Unfit(self.problem, f"{name}{rest}")


def convert(kind: Type, value: Any) -> Any:
    """``value`` as Arrow takes it for the type; None stays None."""
    return None if value is None else _CONVERT[kind.name](kind, value)


def parse(kind: Type, text: str) -> Any:
    """A cell of a CSV file, as ``convert`` gives it: numbers are written out; arrays, maps and structs are JSON."""
    text = text if kind.name == "STRING" else text.strip()
    if kind.name in ("STRING", "TIMESTAMP", "DATE", "BINARY", "DECIMAL"):
        if kind.name == "TIMESTAMP" and _NUMBER.fullmatch(text):
            return convert(kind, float(text) if not _INTEGER.fullmatch(text) else int(text))
        return convert(kind, text)
    if kind.name == "BOOLEAN":
        if text.lower() not in ("true", "false"):
            raise Unfit(f"{_shown(text)} is neither true nor false")
        return text.lower() == "true"
    if kind.name in INTEGERS and _INTEGER.fullmatch(text):
        return convert(kind, int(text))
    if kind.name in INTEGERS or kind.name in ("DOUBLE", "FLOAT"):
        if not _NUMBER.fullmatch(text):
            raise Unfit(f"{_shown(text)} is no number")
        return convert(kind, float(text))
    try:
        return convert(kind, msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unfit(f"{kind.text} is written as JSON: {error}") from None


def _boolean(kind: Type, value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Unfit(f"expected true or false, got {_shown(value)}")


def _integer(kind: Type, value: Any) -> int:
    if isinstance(value, float | decimal.Decimal):
        value = _whole(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unfit(f"expected a whole number ({kind.name}), got {_shown(value)}")
    bits = INTEGERS[kind.name]
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Unfit(f"{_shown(value)} is out of the range of {kind.name}")
    return value


def _whole(value: float | decimal.Decimal) -> float | decimal.Decimal:
    """The same number, as an int if it could fit."""
    small = math.isfinite(value) and -1e20 < value < 1e20
    return int(value) if small and value == int(value) else value


def _double(kind: Type, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise Unfit(f"expected a number ({kind.name}), got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or (kind.name == "FLOAT" and abs(number) > FLOAT_MAX):
        raise Unfit(f"{_shown(value)} is out of the range of {kind.name}")
    return number


def _decimal(kind: Type, value: Any) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | decimal.Decimal):
        raise Unfit(f"expected a number ({kind.text}), got {_shown(value)}")
    try:
        number = decimal.Decimal(repr(value) if isinstance(value, float) else value)
    except decimal.InvalidOperation:
        raise Unfit(f"expected a number ({kind.text}), got {_shown(value)}") from None
    if not number.is_finite():
        raise Unfit(f"{_shown(value)} is no number")
    try:
        return number.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_exact(kind.precision))
    except decimal.DecimalException:
        raise Unfit(f"{_shown(value)} does not fit {kind.text} without loss") from None


def _exact(precision: int) -> decimal.Context:
    """Arithmetic that fails rather than rounds."""
    return decimal.Context(prec=precision, traps=[decimal.InvalidOperation, decimal.Inexact])


def _string(kind: Type, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return _as_text.encode(value).decode()
    raise Unfit(f"expected text (STRING), got {_shown(value)}")


def _binary(kind: Type, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise Unfit(f"expected base64 (BINARY), got {_shown(value)}")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Unfit(f"{_shown(value)} is not base64") from None


def _date(kind: Type, value: Any) -> datetime.date:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise Unfit(f"expected a date (YYYY-MM-DD), got {_shown(value)}")
    try:
        return datetime.date.fromisoformat(value)
    except ValueError:
        raise Unfit(f"there is no date {value}") from None


def _timestamp(kind: Type, value: Any) -> int:
    """In microseconds since 1970."""
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return _in_range((aware - _EPOCH) // datetime.timedelta(microseconds=1), value)
    if isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
        return _in_range(since_1970_us(value), value)
    if not isinstance(value, str):
        raise Unfit(f"expected a time (ISO 8601, or a number since 1970), got {_shown(value)}")
    match = _TIME.fullmatch(value.strip())
    if match is None:
        raise Unfit(f"{_shown(value)} is no time; write it as 2024-05-01T12:00:00Z")
    date, time, fraction, zone = match.groups()
    offset = "+00:00" if zone in (None, "Z", "z") else zone
    try:
        whole = datetime.datetime.fromisoformat(f"{date}T{time or '00:00:00'}{offset}")
    except ValueError:
        raise Unfit(f"there is no time {_shown(value)}") from None
    us = (whole - _EPOCH) // datetime.timedelta(microseconds=1)
    return _in_range(us + (int((fraction or "0").ljust(9, "0")) + 500) // 1_000, value)


def since_1970_us(value: Any) -> int:
    """A number since 1970, of which its size tells the unit, in microseconds."""
    if not math.isfinite(value):
        raise Unfit(f"{_shown(value)} is no time")
    size = abs(value)
    scale = 1_000_000 if size < SECONDS_BELOW else 1_000 if size < MILLISECONDS_BELOW else 1
    us: int = round(value * scale)
    return us


def _in_range(us: int, value: Any) -> int:
    if not _FIRST_US <= us <= _LAST_US:
        raise Unfit(f"{_shown(value)} is outside the years 1 to 9999")
    return us


def _array(kind: Type, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Unfit(f"expected an array ({kind.text}), got {_shown(value)}")
    assert kind.element is not None
    found = []
    for index, each in enumerate(value):
        try:
            found.append(convert(kind.element, each))
        except Unfit as error:
            raise error.under(f"[{index}]") from None
    return found


def _map(kind: Type, value: Any) -> dict[str, Any]:
    pairs = (
        dict(value) if isinstance(value, list) and all(isinstance(each, tuple) for each in value) else value
    )
    if not isinstance(pairs, dict):
        raise Unfit(f"expected an object ({kind.text}), got {_shown(value)}")
    assert kind.element is not None
    found = {}
    for name, each in pairs.items():
        try:
            found[name] = convert(kind.element, each)
        except Unfit as error:
            raise error.under(name) from None
    return found


def _struct(kind: Type, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unfit(f"expected an object ({kind.text}), got {_shown(value)}")
    found = {}
    for field in kind.fields:
        each = value.get(field.name)
        if each is None and not field.nullable:
            raise Unfit("is missing", field.name)
        try:
            found[field.name] = convert(field.type, each)
        except Unfit as error:
            raise error.under(field.name) from None
    return found


def _shown(value: Any) -> str:
    """A value in a message, cut short."""
    try:
        text = value if isinstance(value, str) else _as_text.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    text = text if len(text) <= 40 else f"{text[:40]}…"
    return f"the text {text!r}" if isinstance(value, str) else text


_CONVERT: Final[dict[str, Callable[[Type, Any], Any]]] = {
    "BOOLEAN": _boolean,
    **dict.fromkeys(INTEGERS, _integer),
    "FLOAT": _double,
    "DOUBLE": _double,
    "DECIMAL": _decimal,
    "STRING": _string,
    "BINARY": _binary,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "ARRAY": _array,
    "MAP": _map,
    "STRUCT": _struct,
}
