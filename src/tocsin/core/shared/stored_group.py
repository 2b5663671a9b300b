"""The stored state of a group (``$share/group/filter``): its members, and which of them has which messages.

One cell of a table for each group, written with compare-and-set by every broker that has members of it. Each position
of the group's **source** that is the group's is in one of four places:

    unclaimed ──► claimed by a member ──► settled                at or beyond ``next`` │ in ``claims`` │ nowhere
        ▲                  │
        └── given back ◄───┘                                     in ``free``, with what a broker could give to nobody

*To take a message is to write one's name on it*: a broker writes the claim before it sends a message to a member. So
the message, its member and its packet id are durable, for the price of one write for many messages.

A group is first *made*, with its members, and then *begun* at a position (``core.shared.start`` says why these are two
writes). Before it has begun nothing is claimed.

The source is the message log, whose matching entries are the group's; or the results of a channel for one set of values
(``ResultsSource``), whose positions are places (``model.results.result_position``). Everything else here holds of both.

A member is **present** at the broker whose **incarnation** it names. An incarnation is one process of a broker, from
start to end; it has a cell of its own in the same table, that expires when the broker does not refresh it. A member
that is not present is **away**, until its session expires.

**It always fits into a record** (1 MiB): 320 KiB of members (further ones are turned away), 150 kB of claims, 384 KiB
of messages that were passed over or given back, and those that are being given back (``core.shared.claims``).

Invariants: a position is claimed by one member, or free, or neither; claimed and free ones are below ``next``, and not
below ``first``; a client with claims is a member.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from tocsin.core.channels.channel_filter import Bound
from tocsin.core.delivery.stored_session import SERVED_S
from tocsin.errors import FormatNewer
from tocsin.model.results import Value
from tocsin.model.versions import Format, Packed

GROUPS: Final = "groups"  # the table
LONG_S: Final = 5 * 365 * 86_400  # a longer session is as good as one that never ends
MEMBERS_MAX_BYTES: Final = 320 << 10  # of all members in one cell
INCARNATION_KEYS: Final = "life."  # the beginning of the keys of incarnations, by the name they once had
GROUP_KEYS: Final = "group."  # … and of those of groups
KEEP_US: Final = (
    SERVED_S * 1_000_000
)  # longer than its members' sessions: members that are there do not expire


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """A message that is a member's."""

    position: int
    packet_id: int  # 0 at QoS 0
    qos: int


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One client in a group."""

    session: str  # the id of its session: of another one, claims mean nothing
    epoch: int  # the connection of the session that joined; the larger is the newer
    incarnation: str  # of the broker where it is present; empty: away
    expiry_s: int  # how long its session is kept when it is away; 0: not at all
    until_s: int = 0  # when it is away: the time at which it is forgotten, by the clock on the wall
    leaving: bool = False  # it has unsubscribed: it keeps what it was sent, and gets no more

    @property
    def taking(self) -> bool:
        return bool(self.incarnation) and not self.leaving


class ResultsSource(msgspec.Struct, frozen=True, array_like=True):
    """The results of one backend subscription, and the broker that holds it for the group."""

    channel: str  # its name, as it was defined
    values: tuple[Value, ...]
    holder: (
        str  # its cell of the backend subscription is stored while this names it, and there is such a channel
    )

    @property
    def bound(self) -> Bound:
        return Bound(self.channel, self.values)


class StoredGroup(msgspec.Struct, frozen=True):
    """The cell of one group."""

    name: str
    next: int  # every match below it is claimed, free or settled; 0: the group has not begun
    members: dict[str, Member] = {}  # by client id
    claims: dict[str, tuple[Claim, ...]] = {}  # by client id, in the order in which they were claimed
    free: dict[int, tuple[str, ...]] = {}  # position → the incarnations that have nobody who could take it
    first: int = 0  # where it began: no other group of its name has had anything from there on
    owner: str | None = (
        None  # the user who created it, empty if anonymous; None: it was created before groups had owners
    )
    source: ResultsSource | None = None  # None: the message log

    @property
    def begun(self) -> bool:
        return self.next > 0

    def incarnations(self) -> list[str]:
        """The brokers with a member that takes messages, in an order that all brokers agree on."""
        return sorted({member.incarnation for member in self.members.values() if member.taking})

    @property
    def oldest(self) -> int:
        """The oldest position of its source that it may still need."""
        claimed = (claim.position for claims in self.claims.values() for claim in claims)
        return min((self.next, *self.free, *claimed))


INCARNATION: Final = Format("the incarnation of a broker")
UNKNOWN_INCARNATION: Final = "?"  # no incarnation is called so
GROUP: Final = Packed("a stored group", msgspec.msgpack.Decoder(StoredGroup))


def group_key(name: str) -> str:
    """The cell's key: names are long and of any alphabet, keys are not."""
    return GROUP_KEYS + hashlib.blake2b(name.encode(), digest_size=20).hexdigest()


def incarnation_key(incarnation: str) -> str:
    """Where an incarnation is kept: one for each broker, so that its next incarnation replaces the last."""
    return INCARNATION_KEYS + broker_of(incarnation)


def broker_of(incarnation: str) -> str:
    """The broker whose incarnation it is."""
    return incarnation.rpartition(".")[0]


def encode_incarnation(incarnation: str) -> bytes:
    return INCARNATION.seal(incarnation.encode())


def decode_incarnation(value: bytes) -> str:
    """The incarnation that a cell names; UNKNOWN_INCARNATION, which counts as alive, if only a newer process can
    tell."""
    try:
        return INCARNATION.open(value).decode(errors="replace")
    except FormatNewer:
        return UNKNOWN_INCARNATION


def ttl_us(group: StoredGroup | None) -> int | None:
    """How long a cell is kept that nobody writes any more: as long as a session of its members can come back."""
    longest_s = 0 if group is None else max(member.expiry_s for member in group.members.values())
    if longest_s > LONG_S:
        return None
    half_s = (longest_s + 1) // 2  # written after a third of it at the latest, so that two thirds are left
    return (longest_s + half_s) * 1_000_000 + KEEP_US


def encode_group(group: StoredGroup) -> bytes:
    return GROUP.write(group)


def decode_group(data: bytes) -> StoredGroup:
    """Decode a group; anything else raises ``Malformed``."""
    return GROUP.read(data)
