"""Samples of a known type as JSON, and the other way round.

A type is a class as cyclonedds builds it from what an endpoint tells: a dataclass with annotations. JSON objects have
its fields by name; enumerations are their names, bytes are numbers, and a field that is left out has its zero.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from tocsin.errors import TocsinError

DEPTH_MAX: Final = 32
STAND_IN: Final = "StandIn"  # the name of a class that is no type


class NotTyped(TocsinError):
    """A sample whose type is not known, or that does not fit it. ``final``: asking again does not help."""

    fault = "peer"

    def __init__(self, problem: str, *, final: bool = True) -> None:
        self.final = final
        super().__init__(problem)


def to_json(kind: Any, data: bytes, *, key: bool = False) -> bytes:
    """CDR with its header as JSON. ``NotTyped`` if it is not of this type."""
    _know(kind)
    try:
        value = kind.deserialize_key(data) if key else kind.deserialize(data)
    except Exception as error:  # the decoder is another project's, and raises what it likes
        raise NotTyped(f"a sample is not of its type {kind.__name__}: {error}") from None
    return json.dumps(_plain(value, 0), ensure_ascii=False, separators=(",", ":")).encode()


def from_json(kind: Any, data: bytes, *, key: bool = False) -> bytes:
    """JSON as CDR with its header. ``NotTyped`` if it does not fit."""
    _know(kind)
    try:
        told = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotTyped(f"a message is no JSON: {error}") from None
    if not isinstance(told, dict):
        raise NotTyped("a message is JSON, but no object")
    try:
        value = _built(kind, told, 0)
        made: bytes = value.serialize_key() if key else value.serialize()
    except NotTyped:
        raise
    except Exception as error:  # the encoder as well
        raise NotTyped(f"a message does not fit the type {kind.__name__}: {error}") from None
    return made


def key_of(kind: Any, data: bytes) -> bytes:
    """The key of a sample, as CDR with its header; empty if its type is not known or has no key."""
    if kind.__name__ == STAND_IN or kind.__idl__.keyless:
        return b""
    key: bytes = kind.deserialize(data).serialize_key()
    return key


def _know(kind: Any) -> None:
    if kind.__name__ == STAND_IN:
        raise NotTyped("its vendor does not tell its type; use payload = cdr")


def _plain(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise NotTyped(f"a sample is nested more than {DEPTH_MAX} deep")
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name), depth + 1) for each in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes | bytearray):
        return list(value)
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise NotTyped(f"a {type(value).__name__} cannot be written as JSON")


def _built(kind: Any, told: dict[str, Any], depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise NotTyped(f"a message is nested more than {DEPTH_MAX} deep")
    fields = {each.name for each in dataclasses.fields(kind)}
    strange = sorted(told.keys() - fields)
    if strange:
        raise NotTyped(f"{kind.__name__} has no field {strange[0]!r}; it has {', '.join(sorted(fields))}")
    hints = get_type_hints(kind, include_extras=True)
    made = {name: _field(hints[name], told.get(name), depth, f"{kind.__name__}.{name}") for name in fields}
    return kind(**made)


def _field(hint: Any, told: Any, depth: int, where: str) -> Any:
    """A field's value as its type wants it; what is not told (None) is zero."""
    length: int | None = None  # of an array
    while get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        for note in notes:
            subtype = getattr(note, "subtype", None)
            if subtype is not None and hasattr(note, "length"):
                length = note.length
        hint = inner
    if get_origin(hint) is Union:
        if told is None:
            return None
        hint = next(each for each in get_args(hint) if each is not type(None))
        return _field(hint, told, depth, where)
    origin = get_origin(hint)
    if origin is not None and get_args(hint):
        if told is None:
            told = [None] * (length or 0)
        if not isinstance(told, list) or (length is not None and len(told) != length):
            raise NotTyped(f"{where} is no list" + (f" of {length}" if length is not None else ""))
        return [_field(get_args(hint)[0], each, depth + 1, where) for each in told]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _member(hint, told, where)
    if dataclasses.is_dataclass(hint):
        if told is not None and not isinstance(told, dict):
            raise NotTyped(f"{where} is no object")
        return _built(hint, told or {}, depth + 1)
    return _simple(hint, told, where)


def _member(kind: Any, told: Any, where: str) -> Any:
    if told is None:
        return next(iter(kind))
    if isinstance(told, str) and told in kind.__members__:
        return kind[told]
    raise NotTyped(f"{where} is none of {', '.join(kind.__members__)}")


def _simple(kind: Any, told: Any, where: str) -> Any:
    if kind not in (bool, int, float, str):
        raise NotTyped(f"{where} is of a kind that JSON has no form for here: use payload = cdr")
    if told is None:
        return kind()
    if kind is float and isinstance(told, int) and not isinstance(told, bool):
        return float(told)
    if type(told) is not kind:
        raise NotTyped(f"{where} is {json.dumps(told)[:40]}, and no {kind.__name__}")
    return told
