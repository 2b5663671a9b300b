"""Messages of replication, between a broker and its backups, and of covering (MessagePack).

Everything here may be lost, repeated or overtaken. A **series** carries the state of one broker to one backup: updates
numbered from 1, each sent until it is answered, and the next one after that. A series' name is (epoch, incarnation,
count): of two series of one broker the larger is the newer, and replaces the other. A series begins with
everything, in slices; the update with ``whole`` is the last of these, and what was not repeated by then is gone.

An update has **deltas**, each of one client: that it came or changed, some of its subscriptions, how far it is, or that
it went. A delta says how things are now, not what happened: so those that wait become one, and none is queued.

A backup's word that it **covers** for a broker goes to all brokers, and is repeated while it holds. What it means is in
``core.survival.covering``.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tocsin.model.network import Address, BrokerInfo, Message, Scheme, broker_address
from tocsin.model.publication import Publication
from tocsin.model.versions import Packed

LOCAL: Final = "local"
REMOTE: Final = "remote"
Role = Literal["local", "remote"]
Series = tuple[int, int, int]  # epoch, incarnation (of the process), count


class Option(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subscription's options, in the order of ``core.forwarding.table.Subscription``."""

    no_local: bool = False
    identifier: int | None = None
    qos: int = 0
    retain_as_published: bool = False
    since: int = 0
    request: str = ""


class Positions(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a client is: everything up to there is settled. 0: it has no such deliveries."""

    messages: int = 0  # in the message log
    results: int = 0  # of channels: places (``model.results.result_position``)
    critical: int = 0  # the same of critical ones
    critical_messages: int = 0  # in the message log; 0: it is as far with these as with the others


EPOCH: Final = "@"  # between a session's uid and its epoch, in the name of a will


class Bequest(msgspec.Struct, frozen=True, array_like=True):
    """A will: of a connected client, or one that waits for its delay."""

    publication: Publication
    delay_s: int = 0
    record_id: str = ""  # under which it goes into the log: so it is there once, whichever broker appends it
    session: str = ""  # the uid of the stored session that it was left with; empty: none
    epoch: int = 0  # of that, then
    owner: str = ""  # the user whose client left it; empty: none was proven
    since: int = (
        0  # if it waits for its delay: the log can have it behind this position only; 0: nobody knows
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which other brokers know whether it is settled: its id, and its session with the epoch."""
        left = (f"{self.session}{EPOCH}{self.epoch}",) if self.session else ()
        return (self.record_id, *left) if self.record_id else left


class Head(msgspec.Struct, frozen=True, array_like=True):
    """A client, but for its subscriptions and positions."""

    connected: bool
    scheme: Scheme = Scheme.MQTT  # how it came
    expiry_s: int = 0  # how long its session outlives the connection
    session: str = ""  # the uid of the stored one; empty if it ends with the connection
    owner: str = ""  # the user that the session belongs to
    will: Bequest | None = None
    epoch: int = 0  # of the stored session, as it was taken here


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """The changes of one client. ``begin``: earlier deltas of it do not count."""

    client: str
    begin: bool = False
    gone: bool = False
    head: Head | None = None  # None: as it was
    subscriptions: tuple[tuple[str, Option | None], ...] = ()  # None: it has it no longer
    positions: Positions | None = None  # None: as they were
    void: str = (
        ""  # the id of its newest will that is settled: its client left in order, or it was told, or dropped
    )


class Update(Message, frozen=True, array_like=True):
    """Broker → backup: the next deltas of a series."""

    primary: str
    role: Role  # of the recipient
    series: Series
    number: int
    deltas: tuple[Delta, ...]
    whole: bool = False  # with this update everything was sent at least once
    sole: bool = False  # the broker has no other backup


class Probe(Message, frozen=True, array_like=True, gc=False):
    """Broker → backup: do you still have the series up to this number?"""

    primary: str
    series: Series
    number: int


class Dismiss(Message, frozen=True, array_like=True, gc=False):
    """Broker → backup: you are my backup no longer."""

    primary: str
    series: Series


class Begun(Message, frozen=True, array_like=True, gc=False):
    """Broker → all: this process of mine began. A former backup with a copy of an earlier process is the last to know
    the wills in it.
    """

    primary: str
    incarnation: int


class Mourned(Message, frozen=True, array_like=True, gc=False):
    """Broker → all: I stand in for a lost broker, and may not have been sent everything. Brokers that know more of its
    wills have to publish them.
    """

    primary: str


class Applied(Message, frozen=True, array_like=True, gc=False):
    """Backup → broker: I have everything of this series up to this number."""

    backup: str
    series: Series
    number: int


class Behind(Message, frozen=True, array_like=True, gc=False):
    """Backup → broker: something is missing before this update; start a new series."""

    backup: str
    series: Series


class Declined(Message, frozen=True, array_like=True, gc=False):
    """Backup → broker: I do not take that series: I have a newer one of you (``known``), or no room (None)."""

    backup: str
    series: Series
    known: Series | None = None


Replication = Update | Probe | Dismiss | Begun | Mourned | Applied | Behind | Declined


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message on the bus: who sent it, and the story that it belongs to."""

    sender: Address
    cause: str
    message: Replication


ENVELOPE: Final = Packed("a message of replication", msgspec.msgpack.Decoder(Envelope), spoken=True)


def subject(network: str, broker: str) -> str:
    """Where a broker hears of replication, its own and that of others."""
    return f"{network}.replication.{broker}"


def encode_replication(sender: Address, cause: str, message: Message) -> bytes:
    return ENVELOPE.write((sender, cause, message))


def speakers(envelope: Envelope) -> frozenset[str]:
    """The brokers for which a message speaks: its sender, and the broker that it names."""
    message, sender = envelope.message, envelope.sender.removeprefix(broker_address(""))
    if isinstance(message, Mourned):  # of a lost broker
        return frozenset({sender})
    named = message.backup if isinstance(message, Applied | Behind | Declined) else message.primary
    return frozenset({sender, named})


def decode_replication(data: bytes) -> Envelope:
    """Decode an envelope; anything else raises ``Malformed``."""
    return ENVELOPE.read(data)


class Covering(Message, frozen=True, array_like=True, tag="C"):
    """Broker → all: send me too what goes to this broker at QoS 0; or (``over``) no longer."""

    primary: str
    by: BrokerInfo
    over: bool = False


COVERING: Final = Packed("a word of a stand-in", msgspec.msgpack.Decoder(Covering), spoken=True)


def covering_subject(network: str) -> str:
    """Where all brokers hear it. No broker can have this name, so that it is nobody's subject of replication."""
    return f"{network}.replication._covering"


def encode_covering(word: Covering) -> bytes:
    return COVERING.write(word)


def decode_covering(data: bytes) -> Covering:
    """The word, or ``Malformed`` for whatever is none."""
    return COVERING.read(data)
