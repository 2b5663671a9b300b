"""Messages between pipeline and brokers about channels: backend subscriptions one way, notices of results the other.

A **backend subscription** ``k`` is a channel with values for its parameters. A broker holds it once, however many of
its clients asked: one cell of the table ``SUBSCRIPTIONS`` for each (k, broker), written before the first one's SUBACK.
A broker that backs another has **standby** cells for the other's clients: they bring rows only while there is no active
cell for k.

A **tick** of the pipeline executes all channels that are due, and commits their results to the results dataset at once:
for each broker the rows of the subscriptions that it holds, in files of its own. Then it appends one **notice** to the
log ``NOTICES``, under an id that follows from the tick's number. Brokers follow that log, and read their files.

Every result of a tick has an **ordinal**, 0 … rows − 1. A result that several brokers are to deliver is in a file of
each, with the same ordinal. Results of one k are delivered in the order of their ordinals, critical ones and the others
each for themselves. ``place`` makes one number of notice and ordinal: how far a subscriber has got is such a number.

A result has a **priority**, 0 … 9; from CRITICAL on it is critical, and overtakes others.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from tocsin.model.versions import Packed, Stated

SUBSCRIPTIONS: Final = "channel-subscriptions"  # the table's name, after the network's and a hyphen
NOTICES: Final = "notices"  # the log's name, likewise; its one subject is ``{network}.notices``
STANDBY: Final = "_standby"  # the last part of a standby cell's key: no broker has such an id
ORDINALS: Final = 1 << 20  # results that one notice can be about; a larger tick has several notices

Value = str | int | float | bool


class BackendSubscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cell of (k, broker): active, or a standby. One of each may be there."""

    channel: str
    values: tuple[
        Value, ...
    ]  # one for each parameter, in their order, of the parameter's type; dates and times as text
    broker: str
    standby: bool = False

    @property
    def k(self) -> str:
        return k_of(self.channel, self.values)

    @property
    def key(self) -> str:
        return f"{self.channel.lower()}.{self.k}.{self.broker}{f'.{STANDBY}' if self.standby else ''}"


def k_of(channel: str, values: tuple[Value, ...]) -> str:
    """The id of a backend subscription: the same for the same channel and values at every broker."""
    canonical = msgspec.json.encode([channel.lower(), *values])
    return hashlib.blake2b(canonical, digest_size=12).hexdigest()


class ResultFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of the results dataset, with rows of one broker."""

    broker: str
    path: str  # within the dataset
    rows: int
    part: int = 0  # of the tick: what one task wrote
    offset: int = 0  # the ordinal, of the tick's, at which the part begins


class Execution(msgspec.Struct, frozen=True, array_like=True):
    """One channel's part of a tick."""

    channel: str
    number: int
    results: int
    critical: int = -1  # of them; -1: not said


class Notice(msgspec.Struct, frozen=True):
    """Results that are committed."""

    tick: int
    at_us: int
    executions: tuple[Execution, ...]  # those with results
    files: tuple[ResultFile, ...]
    first: int = 0  # the ordinals that this notice is about are first … first + rows − 1 of the tick's
    rows: int = 0
    # The newest revision of the table of subscriptions that the tick knew: of a cell that is newer, the broker has no
    # rows of its own, though others may have them. 0: not said.
    seen: int = 0

    @property
    def id(self) -> str:
        return f"tick-{self.tick}-{self.first}"


def result_position(position: int, ordinal: int) -> int:
    """How far: a notice's position in its log, and a result's ordinal from the notice's first."""
    return position * ORDINALS + ordinal


def notice_position(place: int) -> int:
    """The position of the notice that a place is in."""
    return place // ORDINALS


SUBSCRIPTION: Final = Packed("a backend subscription", msgspec.msgpack.Decoder(BackendSubscription))
RESULT: Final = Stated("a result of a channel")  # as clients get it: an attribute of the CloudEvent
RESULT_VERSION: Final = "v"  # that attribute
POSITION: Final = "position"  # another one: the result's place, which a client can ask for the results behind
TABLE: Final = Stated("a Delta table of the pipeline")  # how files, transactions and metadata are meant
OURS: Final = "tocsin"  # the key of our metadata in a commit of such a table
VERSION: Final = "v"  # within it
NOTICE: Final = Packed("a notice of results", msgspec.msgpack.Decoder(Notice))


def encode_subscription(subscription: BackendSubscription) -> bytes:
    return SUBSCRIPTION.write(subscription)


def decode_subscription(data: bytes) -> BackendSubscription:
    return SUBSCRIPTION.read(data)


def encode_notice(notice: Notice) -> bytes:
    return NOTICE.write(notice)


def decode_notice(data: bytes) -> Notice:
    return NOTICE.read(data)
