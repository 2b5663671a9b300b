"""The coordinator's command log: what changes the network's state, and the bytes of it (MessagePack).

A **command** is a change as a broker says it. Brokers number theirs 1, 2, 3 … in each incarnation; **Said** is a
run of them. Beside them stand the few that the leader says itself. A **batch** is one entry of the log: commands in
the order in which every replica applies them, with all that applying depends on besides the state itself.

What is too large for one command is said in several, and so it is in the notices that follow and in a snapshot:
``split`` cuts it into parts.

An incarnation is a process of a broker as the network counts it: from its start, or from when it joined anew, because
it was counted as lost or moved to another address. Its number grows each time: the position behind the log's end when
it began, and chance. It is never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from tocsin.model.network import BrokerInfo
from tocsin.model.stream import Value
from tocsin.model.versions import LEVEL_0_1_0, Levels, Packed
from tocsin.wire.internal.slots import SlotMoves

CHANCE_BITS: Final = 20  # of an incarnation; the rest is a position
PART_MAX_BYTES: Final = 256 << 10  # of one part of a list: far below the store's and the bus's bound of 1 MiB

Item = TypeVar("Item")


class Command(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all."""


# ── what brokers say ────────────────────────────────────────────────────────────────────────────────────────


class Joined(Command, frozen=True, array_like=True, gc=False):
    """The first command of an incarnation: the state of an earlier one is dropped, and the commands that follow declare
    it again.
    """

    info: BrokerInfo
    speaks: Levels = LEVEL_0_1_0


class Interests(Command, frozen=True, array_like=True, gc=False):
    """Topic filters that the broker's clients want, or no longer want."""

    added: tuple[str, ...]
    removed: tuple[str, ...] = ()


class Queries(Command, frozen=True, array_like=True, gc=False):
    """Queries that the broker's clients ask, as (id, canonical text), or ids that nobody asks any more."""

    added: tuple[tuple[str, str], ...]
    removed: tuple[str, ...] = ()
    # The user of each added query's client; none for redeclared queries.
    users: tuple[str, ...] = ()


class Streams(Command, frozen=True, array_like=True, gc=False):
    """A client publishes on these topics, and says this of them.

    Each change is (topic, keys to set; None takes a key away), or (topic, None): forget its metadata. A
    client of no name ("") says something of streams that it does not publish on. ``after`` is the position of the
    message log that must be delivered before anybody is told that a stream left.
    """

    client: str
    expiry_s: int
    changes: tuple[tuple[str, dict[str, Value | None] | None], ...]
    after: int = 0
    epoch: int = 0
    user: str | None = None  # the client's user; None: a redeclaration


class ClientAway(Command, frozen=True, array_like=True, gc=False):
    """A client's connection ended, and its session is kept so long."""

    client: str
    expiry_s: int
    after: int = 0
    epoch: int = 0


class ClientBack(Command, frozen=True, array_like=True, gc=False):
    """A client with a session is connected here."""

    client: str
    expiry_s: int
    epoch: int = 0


class ClientGone(Command, frozen=True, array_like=True, gc=False):
    """A client's session ended."""

    client: str
    after: int = 0
    epoch: int = 0


class Left(Command, frozen=True, array_like=True, gc=False):
    """The broker stops on purpose."""


BrokerCommand = Joined | Interests | Queries | Streams | ClientAway | ClientBack | ClientGone | Left


# ── what is in the log ──────────────────────────────────────────────────────────────────────────────────────


class Said(Command, frozen=True, array_like=True, gc=False):
    """Commands of one broker; the first has the number ``first``."""

    broker: str
    incarnation: int
    first: int
    commands: tuple[BrokerCommand, ...]


class Limits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The bounds of the state. In the log, because all replicas must agree on it."""

    streams_max: int = 1_000_000
    queries_max: int = 1_000_000
    keep_s: int = 604_800  # for which a stream's metadata outlive its last publisher
    publishers_max: int = 1_000_000  # clients
    # The metadata of one stream, as ``model.stream.size_of`` counts; 0: no bound, as earlier leaders had it.
    metadata_max_bytes: int = 0
    # All streams and their publishers (``presence.cost_of``), and those of one user; 0: no bound, as before.
    streams_max_bytes: int = 0
    streams_user_bytes: int = 0
    queries_max_bytes: int = 0  # of all queries and the streams that satisfy them (``matching``); 0: no bound
    # The bytes of notices that one user's clients may cause at once, and the rate a second at which they are forgiven.
    told_burst_bytes: int = 0
    told_rate_bytes: int = 0  # 0: no bound


class Elected(Command, frozen=True, array_like=True, gc=False):
    """The leader's: a new one leads, from here on."""

    coordinator: str
    limits: Limits
    level: int = 0  # of the network, at least
    speaks: Levels = LEVEL_0_1_0  # the leader


class Lost(Command, frozen=True, array_like=True, gc=False):
    """The leader's: a broker was silent for too long."""

    broker: str
    incarnation: int


class Refreshed(Command, frozen=True, array_like=True, gc=False):
    """The leader's: a broker has to be told everything again. Changes nothing."""

    broker: str
    incarnation: int


class Planned(Command, frozen=True, array_like=True, gc=False):
    """The leader's: the plan of backups, as (broker, local backup, remote backup)."""

    backups: tuple[tuple[str, str | None, str | None], ...]


class Promoted(Command, frozen=True, array_like=True, gc=False):
    """The leader's: a standby is to take the place of a broker that is gone."""

    broker: str
    standby: str


class Rerouted(Command, frozen=True, array_like=True, gc=False):
    """The leader's: these links of a broker are cut, as (peer, the relays over which it is reached instead, in order;
    none if there is no way around). Replaces that broker's last one."""

    broker: str
    around: tuple[tuple[str, tuple[str, ...]], ...]


class Shunned(Command, frozen=True, array_like=True, gc=False):
    """The leader's: these routing brokers are there, and other clusters do not reach them: they carry no slots.
    Replaces the last one."""

    hubs: tuple[str, ...]


class Placed(Command, frozen=True, array_like=True, gc=False):
    """The leader's: members of a tier carry these slots from here on, and these topics apart from their slots (None:
    as before)."""

    tier: str
    moves: SlotMoves
    apart: dict[str, tuple[str, ...]] | None = None


class Raised(Command, frozen=True, array_like=True, gc=False):
    """The leader's: every broker speaks this level, and the network works at it from here on."""

    level: int


Logged = Said | Elected | Lost | Refreshed | Planned | Promoted | Rerouted | Shunned | Raised | Placed


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of the log, the first of an append; the notices that follow from it come behind it."""

    epoch: int  # of the leader; grows with every ``Elected``
    at_us: int  # the network's time: it runs while somebody leads, and never goes back
    previous: int  # position of the batch before: who finds another has missed something
    commands: tuple[Logged, ...]
    notices: tuple[
        tuple[str, int], ...
    ] = ()  # broker → number of its last notice, with those that follow from this


_encoder = msgspec.msgpack.Encoder()
BATCH: Final = Packed("a batch of commands", msgspec.msgpack.Decoder(Batch))


def encode_command(command: Command) -> msgspec.Raw:
    """A command's bytes, to go into a batch as they are."""
    return msgspec.Raw(_encoder.encode(command))


def encode_batch(
    *,
    epoch: int,
    at_us: int,
    previous: int,
    commands: tuple[msgspec.Raw, ...],
    notices: tuple[tuple[str, int], ...],
) -> bytes:
    return BATCH.write((epoch, at_us, previous, commands, notices))


def decode_batch(data: bytes) -> Batch:
    """Decode a batch; anything else raises ``Malformed``."""
    return BATCH.read(data)


def split(items: Sequence[Item], size: Callable[[Item], int]) -> list[tuple[Item, ...]]:
    """Cut a sequence into runs of at most PART_MAX_BYTES, keeping the order; at least one run, if an empty one."""
    runs: list[list[Item]] = [[]]
    room = PART_MAX_BYTES
    for item in items:
        cost = size(item)
        if cost > room and runs[-1]:
            runs.append([])
            room = PART_MAX_BYTES
        runs[-1].append(item)
        room -= cost
    return [tuple(run) for run in runs]
