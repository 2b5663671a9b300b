"""What AMQP peers say to each other: the performatives of connections, sessions and links, SASL, and outcomes.

Each is a described list. A class here names its fields in the order of the list, with the type of each; ``encode`` and
``decode`` follow the classes. Absent fields are None. Capabilities and properties at the end of a list, which nobody
here reads, are left out.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeVar

import msgspec

from tocsin.errors import Malformed
from tocsin.wire.amqp import values
from tocsin.wire.amqp.values import Described, Symbol, Ubyte, Uint, Ulong, Ushort

Made = TypeVar("Made", bound="Composite")


class Composite(msgspec.Struct, kw_only=True, frozen=True):
    """A described list."""

    CODE: ClassVar[int]
    NAME: ClassVar[str]
    # By field: the type that it is written as, and read as; ``object`` for anything.
    TYPES: ClassVar[dict[str, Any]]
    NEEDED: ClassVar[frozenset[str]] = frozenset()


class Error(Composite, frozen=True):
    """Why a peer ends something, or rejects a message."""

    CODE = 0x1D
    NAME = "amqp:error:list"
    TYPES: ClassVar = {"condition": Symbol, "description": str, "info": object}
    NEEDED = frozenset({"condition"})
    condition: str = ""
    description: str | None = None
    info: Any = None

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}" if self.description else self.condition


# ── outcomes and states of a delivery ────────────────────────────────────────────────────────────────────────


class Received(Composite, frozen=True):
    """A part of a delivery has arrived; no outcome."""

    CODE = 0x23
    NAME = "amqp:received:list"
    TYPES: ClassVar = {"section_number": Uint, "section_offset": Ulong}
    section_number: int | None = None
    section_offset: int | None = None


class Accepted(Composite, frozen=True):
    """The receiver has taken charge of the message."""

    CODE = 0x24
    NAME = "amqp:accepted:list"
    TYPES: ClassVar = {}


class Rejected(Composite, frozen=True):
    """The message cannot be processed."""

    CODE = 0x25
    NAME = "amqp:rejected:list"
    TYPES: ClassVar = {"error": Error}
    error: Error | None = None


class Released(Composite, frozen=True):
    """The message was not, and will not be, processed here."""

    CODE = 0x26
    NAME = "amqp:released:list"
    TYPES: ClassVar = {}


class Modified(Composite, frozen=True):
    """Like Released; it may count as a failure, or be of no use here ever again."""

    CODE = 0x27
    NAME = "amqp:modified:list"
    TYPES: ClassVar = {"delivery_failed": bool, "undeliverable_here": bool, "message_annotations": object}
    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: Any = None


Outcome = Accepted | Rejected | Released | Modified


# ── the ends of a link ───────────────────────────────────────────────────────────────────────────────────────


class Source(Composite, frozen=True):
    """Where a link's messages come from."""

    CODE = 0x28
    NAME = "amqp:source:list"
    TYPES: ClassVar = {
        "address": object,
        "durable": Uint,
        "expiry_policy": Symbol,
        "timeout": Uint,
        "dynamic": bool,
        "dynamic_node_properties": object,
        "distribution_mode": Symbol,
        "filter": object,
        "default_outcome": object,
        "outcomes": object,
        "capabilities": object,
    }
    address: Any = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Any = None
    distribution_mode: str | None = None
    filter: Any = None
    default_outcome: Any = None
    outcomes: Any = None
    capabilities: Any = None


class Target(Composite, frozen=True):
    """Where a link's messages go."""

    CODE = 0x29
    NAME = "amqp:target:list"
    TYPES: ClassVar = {
        "address": object,
        "durable": Uint,
        "expiry_policy": Symbol,
        "timeout": Uint,
        "dynamic": bool,
        "dynamic_node_properties": object,
        "capabilities": object,
    }
    address: Any = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Any = None
    capabilities: Any = None


# ── performatives ────────────────────────────────────────────────────────────────────────────────────────────


class Open(Composite, frozen=True):
    """Begins a connection."""

    CODE = 0x10
    NAME = "amqp:open:list"
    TYPES: ClassVar = {
        "container_id": str,
        "hostname": str,
        "max_frame_size": Uint,
        "channel_max": Ushort,
        "idle_time_out": Uint,
        "outgoing_locales": object,
        "incoming_locales": object,
        "offered_capabilities": object,
        "desired_capabilities": object,
        "properties": object,
    }
    NEEDED = frozenset({"container_id"})
    container_id: str = ""
    hostname: str | None = None
    max_frame_size: int | None = None
    channel_max: int | None = None
    idle_time_out: int | None = None  # milliseconds
    outgoing_locales: Any = None
    incoming_locales: Any = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Any = None


class Begin(Composite, frozen=True):
    """Begins a session."""

    CODE = 0x11
    NAME = "amqp:begin:list"
    TYPES: ClassVar = {
        "remote_channel": Ushort,
        "next_outgoing_id": Uint,
        "incoming_window": Uint,
        "outgoing_window": Uint,
        "handle_max": Uint,
    }
    NEEDED = frozenset({"next_outgoing_id", "incoming_window", "outgoing_window"})
    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int | None = None


class Attach(Composite, frozen=True):
    """Begins a link."""

    CODE = 0x12
    NAME = "amqp:attach:list"
    TYPES: ClassVar = {
        "name": str,
        "handle": Uint,
        "role": bool,
        "snd_settle_mode": Ubyte,
        "rcv_settle_mode": Ubyte,
        "source": Source,
        "target": Target,
        "unsettled": object,
        "incomplete_unsettled": bool,
        "initial_delivery_count": Uint,
        "max_message_size": Ulong,
    }
    NEEDED = frozenset({"name", "handle", "role"})
    name: str = ""
    handle: int = 0
    role: bool = False  # True: who says it receives
    snd_settle_mode: int | None = None
    rcv_settle_mode: int | None = None
    source: Source | None = None
    target: Target | None = None
    unsettled: Any = None
    incomplete_unsettled: bool | None = None
    initial_delivery_count: int | None = None
    max_message_size: int | None = None


class Flow(Composite, frozen=True):
    """How much a session or a link may send."""

    CODE = 0x13
    NAME = "amqp:flow:list"
    TYPES: ClassVar = {
        "next_incoming_id": Uint,
        "incoming_window": Uint,
        "next_outgoing_id": Uint,
        "outgoing_window": Uint,
        "handle": Uint,
        "delivery_count": Uint,
        "link_credit": Uint,
        "available": Uint,
        "drain": bool,
        "echo": bool,
    }
    NEEDED = frozenset({"incoming_window", "next_outgoing_id", "outgoing_window"})
    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool | None = None
    echo: bool | None = None


class Transfer(Composite, frozen=True):
    """A message, or a part of one."""

    CODE = 0x14
    NAME = "amqp:transfer:list"
    TYPES: ClassVar = {
        "handle": Uint,
        "delivery_id": Uint,
        "delivery_tag": bytes,
        "message_format": Uint,
        "settled": bool,
        "more": bool,
        "rcv_settle_mode": Ubyte,
        "state": object,
        "resume": bool,
        "aborted": bool,
        "batchable": bool,
    }
    NEEDED = frozenset({"handle"})
    handle: int = 0
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool | None = None
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool | None = None
    aborted: bool | None = None
    batchable: bool | None = None


class Disposition(Composite, frozen=True):
    """What became of deliveries."""

    CODE = 0x15
    NAME = "amqp:disposition:list"
    TYPES: ClassVar = {
        "role": bool,
        "first": Uint,
        "last": Uint,
        "settled": bool,
        "state": object,
        "batchable": bool,
    }
    NEEDED = frozenset({"role", "first"})
    role: bool = False
    first: int = 0
    last: int | None = None
    settled: bool | None = None
    state: Any = None
    batchable: bool | None = None


class Detach(Composite, frozen=True):
    """Ends a link."""

    CODE = 0x16
    NAME = "amqp:detach:list"
    TYPES: ClassVar = {"handle": Uint, "closed": bool, "error": Error}
    NEEDED = frozenset({"handle"})
    handle: int = 0
    closed: bool | None = None
    error: Error | None = None


class End(Composite, frozen=True):
    """Ends a session."""

    CODE = 0x17
    NAME = "amqp:end:list"
    TYPES: ClassVar = {"error": Error}
    error: Error | None = None


class Close(Composite, frozen=True):
    """Ends a connection."""

    CODE = 0x18
    NAME = "amqp:close:list"
    TYPES: ClassVar = {"error": Error}
    error: Error | None = None


# ── SASL ─────────────────────────────────────────────────────────────────────────────────────────────────────


class SaslMechanisms(Composite, frozen=True):
    """The ways to log in that a server offers."""

    CODE = 0x40
    NAME = "amqp:sasl-mechanisms:list"
    TYPES: ClassVar = {"mechanisms": object}
    NEEDED = frozenset({"mechanisms"})
    mechanisms: Any = None  # a symbol, or an array of them


class SaslInit(Composite, frozen=True):
    """The way that a client chooses, and its credentials."""

    CODE = 0x41
    NAME = "amqp:sasl-init:list"
    TYPES: ClassVar = {"mechanism": Symbol, "initial_response": bytes, "hostname": str}
    NEEDED = frozenset({"mechanism"})
    mechanism: str = ""
    initial_response: bytes | None = None
    hostname: str | None = None


class SaslChallenge(Composite, frozen=True):
    """A question of the server."""

    CODE = 0x42
    NAME = "amqp:sasl-challenge:list"
    TYPES: ClassVar = {"challenge": bytes}
    challenge: bytes | None = None


class SaslOutcome(Composite, frozen=True):
    """Whether the server lets the client in."""

    CODE = 0x44
    NAME = "amqp:sasl-outcome:list"
    TYPES: ClassVar = {"code": Ubyte, "additional_data": bytes}
    NEEDED = frozenset({"code"})
    code: int = 0
    additional_data: bytes | None = None


KINDS: Final = (
    Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close, Error, Received, Accepted, Rejected,
    Released, Modified, Source, Target, SaslMechanisms, SaslInit, SaslChallenge, SaslOutcome,
)  # fmt: skip
_BY_DESCRIPTOR: Final[dict[Any, type[Composite]]] = {
    **{each.CODE: each for each in KINDS},
    **{each.NAME: each for each in KINDS},
}


def encode(composite: Composite) -> bytes:
    """As bytes; absent fields at the end are left out."""
    return values.write(_described(composite))


def _described(composite: Composite) -> Described:
    fields = [_typed(getattr(composite, name), kind) for name, kind in composite.TYPES.items()]
    while fields and fields[-1] is None:
        fields.pop()
    return Described(Ulong(composite.CODE), fields)


def _typed(value: Any, kind: Any) -> Any:
    if isinstance(value, Composite):
        return _described(value)
    if value is None or kind is object:
        return value
    return kind(value)


def decode(data: bytes) -> tuple[Composite, int]:
    """What the bytes begin with, and where it ends. Raises ``Malformed``."""
    value, end = values.read(data)
    return composite_of(value), end


def composite_of(value: object) -> Composite:
    """A described list as what it is. Raises ``Malformed`` for what is none that we know."""
    kind = _kind(value)
    if kind is None:
        raise Malformed(f"not a performative of AMQP 1.0: {_shown(value)}")
    assert isinstance(value, Described)
    return _filled(kind, value.value)


def outcome_of(value: object) -> Outcome | None:
    """The outcome in a delivery's state; None if it is none, or one that we do not know."""
    if _kind(value) not in (Accepted, Rejected, Released, Modified):
        return None
    made = composite_of(value)
    assert isinstance(made, Accepted | Rejected | Released | Modified)
    return made


def _kind(value: object) -> type[Composite] | None:
    if not isinstance(value, Described) or not isinstance(value.descriptor, int | str):
        return None
    return _BY_DESCRIPTOR.get(value.descriptor)


def _filled(kind: type[Made], fields: object) -> Made:
    if not isinstance(fields, list):
        raise Malformed(f"{kind.NAME} is not a list")
    given: dict[str, Any] = {}
    for (name, wanted), value in zip(kind.TYPES.items(), fields, strict=False):
        if value is not None:
            given[name] = _checked(kind, name, wanted, value)
    if missing := kind.NEEDED - given.keys():
        raise Malformed(f"{kind.NAME} has no {sorted(missing)[0].replace('_', '-')}")
    return kind(**given)


def _checked(kind: type[Composite], name: str, wanted: Any, value: Any) -> Any:
    if wanted is object:
        return value
    if issubclass(wanted, Composite):
        return _composite_field(kind, name, wanted, value)
    if not isinstance(value, wanted):
        raise Malformed(f"{name.replace('_', '-')} of {kind.NAME} is {_shown(value)}")
    return value


def _composite_field(kind: type[Composite], name: str, wanted: type[Composite], value: Any) -> Any:
    found = _kind(value)
    if found is wanted:
        return _filled(wanted, value.value)
    if wanted in (Source, Target):  # other kinds of ends, such as a transaction's coordinator
        return wanted()
    raise Malformed(f"{name} of {kind.NAME} is {_shown(value)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
