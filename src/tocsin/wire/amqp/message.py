"""An AMQP 1.0 message: sections one behind the other.

    header · delivery-annotations · message-annotations · properties · application-properties · body · footer

Annotations and footers are for the peers on the way, and are not kept. The body is one or more parts of data, one
value, or sequences (``Body``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from tocsin.errors import Malformed
from tocsin.wire.amqp import values
from tocsin.wire.amqp.values import Described, Symbol, Timestamp, Ubyte, Uint, Ulong

HEADER, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE = 0x70, 0x73, 0x74, 0x75, 0x76, 0x77
IGNORED: Final = {0x71, 0x72, 0x78}  # annotations and the footer
CODES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": 0x72,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": 0x78,
}
# By position; the types that a field may have.
HEADER_FIELDS: Final[tuple[tuple[str, Any], ...]] = (
    ("durable", bool), ("priority", Ubyte), ("ttl_ms", Uint), ("first_acquirer", bool), ("delivery_count", Uint),
)  # fmt: skip
PROPERTY_FIELDS: Final[tuple[tuple[str, Any], ...]] = (
    ("message_id", object), ("user_id", bytes), ("to", object), ("subject", str), ("reply_to", object),
    ("correlation_id", object), ("content_type", Symbol), ("content_encoding", Symbol),
    ("absolute_expiry_time", Timestamp), ("creation_time", Timestamp), ("group_id", str), ("group_sequence", Uint),
    ("reply_to_group_id", str),
)  # fmt: skip
ID_TYPES: Final = (Ulong, values.Uuid, bytes, str)


class Body(StrEnum):
    """The kinds of bodies."""

    DATA = "data"
    SEQUENCE = "sequence"
    VALUE = "value"


class AmqpMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message, with what the sections say; None is absent."""

    body: Any = b""  # bytes of data, a value, or a list of sequences
    kind: Body = Body.DATA
    durable: bool = False
    priority: int | None = None
    ttl_ms: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0  # unsuccessful attempts before
    message_id: Any = None  # Ulong, Uuid, bytes or str
    user_id: bytes | None = None
    to: Any = None
    subject: str | None = None
    reply_to: Any = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None
    application: dict[str, Any] = {}


def write_message(message: AmqpMessage) -> bytes:
    """As bytes. Raises ``TypeError``, ``ValueError`` for what AMQP cannot say."""
    sections = [
        _list_section(HEADER, HEADER_FIELDS, message),
        _list_section(PROPERTIES, PROPERTY_FIELDS, message),
    ]
    if message.application:
        sections.append(values.write(Described(Ulong(APPLICATION), message.application)))
    match message.kind:
        case Body.DATA:
            sections.append(values.write(Described(Ulong(DATA), message.body)))
        case Body.VALUE:
            sections.append(values.write(Described(Ulong(VALUE), message.body)))
        case Body.SEQUENCE:
            sections.extend(values.write(Described(Ulong(SEQUENCE), each)) for each in message.body)
    return b"".join(sections)


def _list_section(code: int, fields: tuple[tuple[str, Any], ...], message: AmqpMessage) -> bytes:
    items: list[Any] = []
    for name, kind in fields:
        value = getattr(message, name)
        if value is None or (not value and name in ("durable", "first_acquirer", "delivery_count")):
            items.append(None)
        else:
            items.append(value if kind is object else kind(value))
    while items and items[-1] is None:
        items.pop()
    return values.write(Described(Ulong(code), items)) if items else b""


def read_message(data: bytes) -> AmqpMessage:
    """Raises ``Malformed``."""
    given: dict[str, Any] = {}
    bodies: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        section, at = values.read(data, at)
        code = _code(section)
        if code == HEADER:
            _read_list(given, "the header", HEADER_FIELDS, section.value)
        elif code == PROPERTIES:
            _read_list(given, "the properties", PROPERTY_FIELDS, section.value)
        elif code == APPLICATION:
            given["application"] = _application(section.value)
        elif code not in IGNORED:
            bodies.append((code, section.value))
    return AmqpMessage(**given, **_body(bodies))


def _code(section: object) -> int:
    if isinstance(section, Described):
        descriptor = section.descriptor
        code = CODES.get(descriptor) if isinstance(descriptor, str) else descriptor
        if isinstance(code, int) and code in CODES.values():
            return code
    raise Malformed("a message has something that is no section of AMQP 1.0")


def _read_list(
    given: dict[str, Any], section: str, fields: tuple[tuple[str, Any], ...], items: object
) -> None:
    if not isinstance(items, list) or len(items) > len(fields):
        raise Malformed(f"{section} of a message is not a list of at most {len(fields)} fields")
    for (name, kind), value in zip(fields, items, strict=False):
        if value is None:
            continue
        fits = isinstance(value, kind)
        if name in ("message_id", "correlation_id"):
            fits = type(value) in ID_TYPES
        if not fits:
            raise Malformed(f"{name.replace('_', '-')} of a message is of a wrong type")
        given[name] = value


def _application(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Malformed("the application properties of a message are not a map with names")
    return value


def _body(bodies: list[tuple[int, Any]]) -> dict[str, Any]:
    if not bodies:
        return {}  # some peers send an empty message without a body
    kinds = {code for code, _ in bodies}
    if kinds == {DATA}:
        if not all(isinstance(each, bytes) for _, each in bodies):
            raise Malformed("a data section of a message is not binary")
        return {"kind": Body.DATA, "body": b"".join(each for _, each in bodies)}
    if kinds == {SEQUENCE}:
        return {"kind": Body.SEQUENCE, "body": [each for _, each in bodies]}
    if kinds == {VALUE} and len(bodies) == 1:
        return {"kind": Body.VALUE, "body": bodies[0][1]}
    raise Malformed("the body of a message has sections of several kinds, or several values")
