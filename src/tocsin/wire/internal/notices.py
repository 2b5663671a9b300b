"""Notices: what follows from commands for one broker, in the log behind them, and the bytes of it (MessagePack).

A broker's notices are numbered 1, 2, 3 … in each of its incarnations. A gap means that some were trimmed, or that a
leader died between two appends: the broker asks for everything, and gets it in a notice that is ``fresh``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tocsin.model.network import BrokerInfo, Route
from tocsin.model.stream import Value, size_of
from tocsin.model.versions import Packed
from tocsin.wire.internal.slots import SlotMoves


class Item(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of what a notice tells."""


class Routes(Item, frozen=True, array_like=True, gc=False):
    """Routes that come and go, and peers as they are now."""

    added: tuple[Route, ...]
    removed: tuple[Route, ...] = ()
    peers: tuple[BrokerInfo, ...] = ()


class QuerySet(Item, frozen=True, array_like=True, gc=False):
    """The streams of a query, as (topic, metadata); with ``more``, the next item has further ones."""

    query: str
    streams: tuple[tuple[str, dict[str, Value]], ...]
    more: bool = False


class Joined(Item, frozen=True, array_like=True, gc=False):
    """A stream satisfies a query from now on."""

    query: str
    topic: str
    metadata: dict[str, Value]


class Changed(Item, frozen=True, array_like=True, gc=False):
    """A stream of a query has other metadata, and still satisfies it."""

    query: str
    topic: str
    metadata: dict[str, Value]


class Left(Item, frozen=True, array_like=True, gc=False):
    """A stream no longer satisfies a query, or is gone; to be told after what the message log has up to ``after``."""

    query: str
    topic: str
    metadata: dict[str, Value]
    after: int


class Wanted(Item, frozen=True, array_like=True, gc=False):
    """Whether other brokers want topics of a filter that clients of this broker asked about."""

    query: str  # as the broker asked: ``DEMAND`` and the filter
    wanted: bool


class Described(Item, frozen=True, array_like=True, gc=False):
    """The metadata of a stream on which a client of this broker publishes."""

    topic: str
    keys: dict[str, Value]


class Refused(Item, frozen=True, array_like=True, gc=False):
    """A command (of this number) about a topic or query was refused, for a bound."""

    subject: str
    problem: str
    number: int = 0


class Backed(Item, frozen=True, array_like=True, gc=False):
    """The backups of this broker, and the brokers that it backs. Replaces the last one."""

    local: BrokerInfo | None = None
    remote: BrokerInfo | None = None
    locally: tuple[str, ...] = ()  # it is their local backup
    remotely: tuple[str, ...] = ()  # it is their remote backup
    watched: tuple[BrokerInfo, ...] = ()  # of those, the ones that are there: it keeps a link to each


class Moved(Item, frozen=True, array_like=True, gc=False):
    """A broker is ``gone``, and ``to`` stands in for it (None: nobody); or it is back: ``to`` is a standby that has its
    name (None: the broker itself)."""

    broker: str
    to: BrokerInfo | None
    epoch: int  # of the place; a smaller one is older news
    gone: bool = False


class TakeOver(Item, frozen=True, array_like=True, gc=False):
    """This broker stands in for a lost broker, from here on."""

    broker: str
    epoch: int


class Promote(Item, frozen=True, array_like=True, gc=False):
    """This broker, a standby, is to replace a lost broker."""

    place: BrokerInfo


class Bypass(Item, frozen=True, array_like=True, gc=False):
    """Links of this broker that are cut, as (peer, relays in order; none: no way is known), and brokers to which it
    carries what others send. ``peers`` are all that it needs a link to for that. Replaces the last one."""

    around: tuple[tuple[str, tuple[str, ...]], ...] = ()
    onward: tuple[str, ...] = ()
    peers: tuple[BrokerInfo, ...] = ()


class Carriers(Item, frozen=True, array_like=True, gc=False):
    """Slots of a tier that others carry from now on, and the brokers named in them that this says something new of; all
    topics that are apart from their slots (None: as before); or the tier is ``gone``."""

    tier: str
    moves: SlotMoves = SlotMoves()
    peers: tuple[BrokerInfo, ...] = ()
    gone: bool = False
    apart: dict[str, tuple[str, ...]] | None = None


AnyItem = (
    Routes
    | QuerySet
    | Joined
    | Changed
    | Left
    | Wanted
    | Described
    | Refused
    | Backed
    | Moved
    | TakeOver
    | Promote
    | Bypass
    | Carriers
)


class Notice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One notice."""

    incarnation: int
    number: int
    epoch: int
    applied: int  # the broker's commands up to this number are in the log
    clear: int  # and all brokers concerned know their consequences up to this one
    fresh: bool  # forget what you know: this tells everything
    more: bool  # what this tells is complete only with the next notice
    ask: bool  # say at once that you have seen it
    items: tuple[AnyItem, ...]


_encoder = msgspec.msgpack.Encoder()
NOTICE: Final = Packed("a notice", msgspec.msgpack.Decoder(Notice))


def encode_item(item: Item) -> msgspec.Raw:
    """An item's bytes, to go into notices as they are."""
    return msgspec.Raw(_encoder.encode(item))


def encode_items(items: Sequence[msgspec.Raw]) -> msgspec.Raw:
    """The items of a notice, to go into one or several."""
    return msgspec.Raw(_encoder.encode(items))


def encode_notice(
    *,
    incarnation: int,
    number: int,
    epoch: int,
    applied: int,
    clear: int,
    fresh: bool,
    more: bool,
    ask: bool,
    items: msgspec.Raw,  # of ``encode_items``
) -> bytes:
    return NOTICE.write((incarnation, number, epoch, applied, clear, fresh, more, ask, items))


def decode_notice(data: bytes) -> Notice:
    """Decode a notice; anything else raises ``Malformed``."""
    return NOTICE.read(data)


# ── how much it is ──────────────────────────────────────────────────────────────────────────────────────────

ITEM_BYTES: Final = 48  # of an item, or a part of one, beside its texts
BROKER_BYTES: Final = 150  # of a broker's address


def told_bytes(item: Item) -> int:
    """The bytes of an item in the log, as they are estimated: replicas count by them, so that they never change."""
    return _SIZES.get(type(item), _other)(item)


def _turn(item: Any) -> int:
    return ITEM_BYTES + len(item.topic) + (size_of(item.metadata) if item.metadata else 0)


def _described(item: Any) -> int:
    return ITEM_BYTES + len(item.topic) + size_of(item.keys)


def _set(item: Any) -> int:
    return ITEM_BYTES + sum(len(topic) + size_of(said) + 4 for topic, said in item.streams)


def _routes(item: Any) -> int:
    texts = sum(len(route.filter) for routes in (item.added, item.removed) for route in routes)
    return ITEM_BYTES * (1 + len(item.added) + len(item.removed)) + texts + BROKER_BYTES * len(item.peers)


def _wanted(item: Any) -> int:
    return ITEM_BYTES + len(item.query)


def _bypass(item: Any) -> int:
    return BROKER_BYTES * (1 + len(item.around) + len(item.peers))


def _carriers(item: Any) -> int:
    return ITEM_BYTES * (1 + len(item.moves.names)) + 5 * len(item.moves) + BROKER_BYTES * len(item.peers)


def _other(item: Any) -> int:
    return BROKER_BYTES


_SIZES: Final[Mapping[type[Item], Callable[[Any], int]]] = {
    Joined: _turn,
    Changed: _turn,
    Left: _turn,
    Described: _described,
    QuerySet: _set,
    Routes: _routes,
    Bypass: _bypass,
    Wanted: _wanted,
    Carriers: _carriers,
}
