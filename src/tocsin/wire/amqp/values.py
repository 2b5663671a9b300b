"""AMQP 1.0 values: the type system of part 1, as Python values.

    null                      None             string         str              list, array    list
    boolean                   bool             symbol         Symbol           map            dict
    byte, short, int, long    int              binary         bytes            described      Described
    ubyte … ulong             Ubyte … Ulong    timestamp      Timestamp        uuid           Uuid
    float, double             float            char           str              decimal        Decimal

A plain ``int`` is written as a long. Widths of signed integers and of floats, and arrays, are not kept: a value that
was read and is written again has the same meaning, not the same bytes. Values nest at most DEPTH_MAX deep.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tocsin.errors import Malformed

DEPTH_MAX: Final = 16  # performatives need four; what applications nest is theirs, and not read further
COUNT_MAX: Final = 65_536  # elements of one list, map or array; some types take no bytes at all


class Symbol(str):
    """A name of the protocol, in ASCII."""


class Ubyte(int):
    """An unsigned integer of one byte."""


class Ushort(int):
    """An unsigned integer of two bytes."""


class Uint(int):
    """An unsigned integer of four bytes."""


class Ulong(int):
    """An unsigned integer of eight bytes."""


class Timestamp(int):
    """Milliseconds since 1970."""


class Uuid(bytes):
    """Sixteen bytes that are an id."""

    def __str__(self) -> str:
        text = self.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Decimal(bytes):
    """A decimal floating-point number as it came; nobody here computes with it."""


class Described(msgspec.Struct, frozen=True):
    """A value with a descriptor, which says what the value is."""

    descriptor: Any
    value: Any


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def read(data: bytes, at: int = 0, end: int | None = None, depth: int = 0) -> tuple[Any, int]:
    """The value at a place, and where the next one begins. Raises ``Malformed``."""
    stop = len(data) if end is None else end
    if depth > DEPTH_MAX:
        raise Malformed(f"values are nested more than {DEPTH_MAX} deep")
    if at >= stop:
        raise Malformed(f"a value is missing at byte {at}")
    code = data[at]
    if code == 0x00:
        descriptor, at = read(data, at + 1, stop, depth + 1)
        value, at = read(data, at, stop, depth + 1)
        return Described(descriptor, value), at
    return _read_coded(code, data, at + 1, stop, depth)


def _read_coded(code: int, data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    """The value of a format code, whose bytes begin here."""
    if (constant := _CONSTANTS.get(code)) is not None:
        return constant(), at
    if (fixed := _FIXED.get(code)) is not None:
        size, made = fixed
        return made(_slice(data, at, size, end)), at + size
    if (variable := _VARIABLE.get(code)) is not None:
        width, text = variable
        size = int.from_bytes(_slice(data, at, width, end))
        raw = _slice(data, at + width, size, end)
        return text(raw), at + width + size
    if code in _COMPOUND:
        return _read_compound(code, data, at, end, depth)
    raise Malformed(f"0x{code:02x} at byte {at - 1} is not a type of AMQP 1.0")


def _read_compound(code: int, data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    width, kind = _COMPOUND[code]
    size = int.from_bytes(_slice(data, at, width, end))
    stop = at + width + size
    if stop > end:
        raise Malformed(f"a {kind} of {size} bytes at byte {at} goes beyond its end")
    count = int.from_bytes(_slice(data, at + width, width, stop))
    at += 2 * width
    if count > COUNT_MAX:
        raise Malformed(f"a {kind} has {count} elements; at most {COUNT_MAX} are read")
    if kind == "array":
        items, at = _read_elements(count, data, at, stop, depth)
    else:
        items = []
        for _ in range(count):
            item, at = read(data, at, stop, depth + 1)
            items.append(item)
    if at != stop:
        raise Malformed(f"a {kind} has {stop - at} bytes more than its elements")
    return (_as_map(items) if kind == "map" else items), stop


def _read_elements(count: int, data: bytes, at: int, end: int, depth: int) -> tuple[list[Any], int]:
    """The elements of an array, which share one constructor."""
    descriptors: list[Any] = []
    while at < end and data[at] == 0x00:
        if len(descriptors) == DEPTH_MAX:
            raise Malformed(f"values are nested more than {DEPTH_MAX} deep")
        descriptor, at = read(data, at + 1, end, depth + 1)
        descriptors.append(descriptor)
    (code,) = _slice(data, at, 1, end)
    at += 1
    items = []
    for _ in range(count):
        if depth >= DEPTH_MAX:
            raise Malformed(f"values are nested more than {DEPTH_MAX} deep")
        item, at = _read_coded(code, data, at, end, depth + 1)
        for descriptor in reversed(descriptors):
            item = Described(descriptor, item)
        items.append(item)
    return items, at


def _as_map(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise Malformed("a map has a key without a value")
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise Malformed("a map has a key that is itself a list, a map or an array") from None


def _slice(data: bytes, at: int, size: int, end: int) -> bytes:
    if at + size > end:
        raise Malformed(f"a value needs {size} bytes at byte {at}, and only {max(end - at, 0)} are left")
    return data[at : at + size]


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


def _symbol(raw: bytes) -> Symbol:
    try:
        return Symbol(raw.decode("ascii"))
    except UnicodeDecodeError:
        raise Malformed("a symbol is not ASCII") from None


def _truth(raw: bytes) -> bool:
    if raw not in (b"\x00", b"\x01"):
        raise Malformed(f"0x{raw.hex()} is not a boolean")
    return raw == b"\x01"


def _char(raw: bytes) -> str:
    try:
        return raw.decode("utf-32-be")
    except UnicodeDecodeError:
        raise Malformed("a char is not a character of Unicode") from None


def _unsigned(kind: Callable[[int], Any]) -> Callable[[bytes], Any]:
    return lambda raw: kind(int.from_bytes(raw))


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, signed=True)


_CONSTANTS: Final[dict[int, Callable[[], Any]]] = {
    0x40: lambda: None,
    0x41: lambda: True,
    0x42: lambda: False,
    0x43: lambda: Uint(0),
    0x44: lambda: Ulong(0),
    0x45: list,
}
_FIXED: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {
    0x50: (1, _unsigned(Ubyte)),
    0x51: (1, _signed),
    0x52: (1, _unsigned(Uint)),
    0x53: (1, _unsigned(Ulong)),
    0x54: (1, _signed),
    0x55: (1, _signed),
    0x56: (1, _truth),
    0x60: (2, _unsigned(Ushort)),
    0x61: (2, _signed),
    0x70: (4, _unsigned(Uint)),
    0x71: (4, _signed),
    0x72: (4, lambda raw: struct.unpack(">f", raw)[0]),
    0x73: (4, _char),
    0x74: (4, Decimal),
    0x80: (8, _unsigned(Ulong)),
    0x81: (8, _signed),
    0x82: (8, lambda raw: struct.unpack(">d", raw)[0]),
    0x83: (8, lambda raw: Timestamp(_signed(raw))),
    0x84: (8, Decimal),
    0x94: (16, Decimal),
    0x98: (16, Uuid),
}
_VARIABLE: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {
    0xA0: (1, bytes),
    0xB0: (4, bytes),
    0xA1: (1, _text),
    0xB1: (4, _text),
    0xA3: (1, _symbol),
    0xB3: (4, _symbol),
}
_COMPOUND: Final = {
    0xC0: (1, "list"),
    0xD0: (4, "list"),
    0xC1: (1, "map"),
    0xD1: (4, "map"),
    0xE0: (1, "array"),
    0xF0: (4, "array"),
}


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────


def write(value: object) -> bytes:
    """A value as bytes. ``TypeError`` for what AMQP has no type for, ``ValueError`` for a number that does not fit."""
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise TypeError(f"AMQP has no type for {type(value).__name__}")
    return writer(value)


def _write_fixed(code: int, size: int, *, signed: bool = False) -> Callable[[Any], bytes]:
    def wrote(value: int) -> bytes:
        try:
            return bytes((code,)) + value.to_bytes(size, signed=signed)
        except OverflowError:
            raise ValueError(f"{value} does not fit into {size} bytes") from None

    return wrote


def _write_variable(short: int, long: int) -> Callable[[bytes], bytes]:
    def wrote(raw: bytes) -> bytes:
        if len(raw) < 256:
            return bytes((short, len(raw))) + raw
        return bytes((long,)) + len(raw).to_bytes(4) + raw

    return wrote


def _write_compound(short: int, long: int, items: list[Any]) -> bytes:
    body = b"".join(map(write, items))
    if len(body) < 255 and len(items) < 256:
        return bytes((short, len(body) + 1, len(items))) + body
    return bytes((long,)) + (len(body) + 4).to_bytes(4) + len(items).to_bytes(4) + body


def _write_small(zero: int, short: int, long: int, size: int) -> Callable[[Any], bytes]:
    wide = _write_fixed(long, size)

    def wrote(value: int) -> bytes:
        if value == 0:
            return bytes((zero,))
        return bytes((short, value)) if 0 < value < 256 else wide(value)

    return wrote


def _write_long(value: int) -> bytes:
    if -128 <= value < 128:
        return b"\x55" + value.to_bytes(1, signed=True)
    return _LONG(value)


def _write_list(value: list[Any]) -> bytes:
    return _write_compound(0xC0, 0xD0, value) if value else b"\x45"


def _write_map(value: dict[Any, Any]) -> bytes:
    return _write_compound(0xC1, 0xD1, [each for pair in value.items() for each in pair])


def _write_described(value: Described) -> bytes:
    return b"\x00" + write(value.descriptor) + write(value.value)


def _write_decimal(value: Decimal) -> bytes:
    code = {4: 0x74, 8: 0x84, 16: 0x94}[len(value)]
    return bytes((code,)) + bytes(value)


_LONG: Final = _write_fixed(0x81, 8, signed=True)
_BINARY: Final = _write_variable(0xA0, 0xB0)
_STRING: Final = _write_variable(0xA1, 0xB1)
_SYMBOL: Final = _write_variable(0xA3, 0xB3)
_WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    int: _write_long,
    Ubyte: _write_fixed(0x50, 1),
    Ushort: _write_fixed(0x60, 2),
    Uint: _write_small(0x43, 0x52, 0x70, 4),
    Ulong: _write_small(0x44, 0x53, 0x80, 8),
    Timestamp: _write_fixed(0x83, 8, signed=True),
    float: lambda value: b"\x82" + struct.pack(">d", value),
    bytes: _BINARY,
    str: lambda value: _STRING(value.encode()),
    Symbol: lambda value: _SYMBOL(value.encode("ascii")),
    Uuid: lambda value: b"\x98" + bytes(value),
    Decimal: _write_decimal,
    list: _write_list,
    dict: _write_map,
    Described: _write_described,
}
