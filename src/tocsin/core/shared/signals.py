"""Events and effects of ``core.shared.machine``.

Beside these it uses the kernel's: timers, the requests of one table's keys, and what a watch of that table says.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from tocsin.core.channels.channel_filter import Bound
from tocsin.core.machine import Effect, Event, Stored, StoreFailed, TimerFired, Watched
from tocsin.core.shared.stored_group import Claim, ResultsSource
from tocsin.errors import TocsinError
from tocsin.model.publication import Publication
from tocsin.ports import Entry

CANNOT: Final = (
    -1
)  # what ``MemberPorts.takes`` says of a member that may not receive a message, or takes none so large


class SharingState(StrEnum):
    """Where a group is at one broker."""

    NEW = "new"
    HERE = "here"
    VANISHED = "vanished"


class SharingTimer(StrEnum):
    """The timers of a group."""

    CELL_AGAIN = "cell again"  # a request for the cell has failed, or cannot be read
    GRACE = "grace"  # the broker whose turn it is has not claimed
    SETTLE_SOON = "settle soon"  # what nobody waits for is written
    READ_AGAIN = "read again"  # a part of the log could not be read
    LOOK = "look"  # at incarnations that may have ended, and at the age of the cell


class Matched(msgspec.Struct, frozen=True):
    """An entry of the group's source: of the message log, or a result."""

    entry: Entry
    publication: Publication

    @property
    def position(self) -> int:
        return self.entry.position


class MemberPorts(Protocol):
    """The shell's knowledge of local members and of the world, for decisions that cannot wait for an event."""

    @property
    def tail(self) -> int:
        """The newest position that was dispatched here, or is being."""
        ...

    @property
    def horizon(self) -> int:
        """Whatever matches behind this position will arrive: the tail, unless the log is not read for the group yet."""
        ...

    @property
    def done(self) -> int:
        """Everything up to here was dispatched, and has arrived. Results of one notice are dispatched bit by bit."""
        ...

    def alive(self, incarnation: str) -> bool:
        """Whether a broker's incarnation seems to go on. A hint: the machine asks the store before it acts."""
        ...

    def room(self, client: str) -> bool:
        """Whether a member takes something at QoS 0 now."""
        ...

    def takes(self, client: str, matched: Matched) -> int:
        """The QoS at which a member gets a message, or CANNOT."""
        ...

    def reserve(self, client: str) -> int:
        """A packet id of a member's; 0 or less if it has no room."""
        ...

    def give_back(self, client: str, packet_id: int) -> None:
        """A reserved packet id is not needed."""
        ...

    def send_again(self, client: str, packet_id: int, qos: int) -> bool:
        """Whether a member has room for what it was sent on an earlier connection."""
        ...

    def keep(self, size: int) -> bool:
        """Take so many bytes of this broker's memory for an entry, if there is room for them."""
        ...

    def let_go(self, size: int) -> None:
        """Give back what was taken for one entry."""
        ...


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class Join(Event, frozen=True, kw_only=True):
    """A client here subscribed, or came back → ``Joined`` or ``Turned``."""

    client: str
    user: str = ""  # the client's user; empty: no user
    entitled: bool = False  # a rule lets it into the group, whichever user owns the group
    session: str
    epoch: int
    expiry_s: int


class Leave(Event, frozen=True, kw_only=True):
    """A member's connection is over; its session is kept for so long (0: not at all)."""

    client: str
    session: str
    expiry_s: int


class Quit(Event, frozen=True, kw_only=True):
    """A member unsubscribed."""

    client: str
    session: str


class SessionOver(Event, frozen=True, kw_only=True):
    """A session ended that was perhaps a member, here or elsewhere."""

    client: str
    session: str


class Settle(Event, frozen=True, kw_only=True):
    """A member is done with a message: acknowledged or refused, and at QoS 2 that is stored."""

    client: str
    position: int


class RoomMade(Event, frozen=True, kw_only=True):
    """A member may have room again."""


class Crowded(Event, frozen=True, kw_only=True):
    """Other groups need the room of this group's entries; the group drops them if no member here can take any."""


class Arrived(Event, frozen=True, kw_only=True):
    """The source has just brought an entry; they come in order."""

    matched: Matched


class PartRead(Event, frozen=True, kw_only=True):
    """Everything that matches from where ``ReadPart`` began up to ``next``; ``tail`` as in ``MemberPorts``."""

    matched: Sequence[Matched]
    next: int
    tail: int


class PartFailed(Event, frozen=True, kw_only=True):
    error: TocsinError


class EndFound(Event, frozen=True, kw_only=True):
    """The log ended here at some time after ``FindEnd`` asked."""

    revision: int
    position: int


class EndUnknown(Event, frozen=True, kw_only=True):
    """The log did not say where it ends."""

    revision: int


class Held(Event, frozen=True, kw_only=True):
    """This broker's cell of the group's backend subscription is stored; again, after the channel was altered."""

    bound: Bound


class NotHeld(Event, frozen=True, kw_only=True):
    """This broker cannot hold the group's backend subscription. ``full``: the store has no room."""

    reason: str
    full: bool = False


class OutOfSight(Event, frozen=True, kw_only=True):
    """The watch may have missed something."""


# Events that may still come when the group has nothing here any more.
AFTERWARDS: Final[list[tuple[SharingState, type[Event]]]] = [
    (SharingState.VANISHED, kind)
    for kind in (
        *(Leave, Quit, Settle, RoomMade, Arrived, PartRead, PartFailed),
        *(EndFound, EndUnknown, OutOfSight, Held, NotHeld),
        *(Watched, Stored, StoreFailed, TimerFired),
    )
]

# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class Joined(Effect, frozen=True, kw_only=True):
    """It is durable that a client is a member; with what it has from earlier connections."""

    client: str
    session: str
    claims: tuple[Claim, ...]


class Turned(Effect, frozen=True, kw_only=True):
    """A client cannot be a member: there are too many, a later connection of its has joined elsewhere, the group is
    another user's, or the store has no room."""

    client: str
    session: str
    reason: str
    foreign: bool = False  # it is another user's
    full: bool = False  # the store has no room; what there is of the member stays


class Give(Effect, frozen=True, kw_only=True):
    """Send a message to a member."""

    client: str
    matched: Matched
    packet_id: int
    qos: int
    repeat: bool


class Forget(Effect, frozen=True, kw_only=True):
    """These packet ids of a member stand for nothing of this group any more."""

    client: str
    packet_ids: tuple[int, ...]


class ReadPart(Effect, frozen=True, kw_only=True):
    """Read the group's source → ``PartRead`` or ``PartFailed``."""

    start: int
    limit: int
    least: int = 0  # the bytes that there has to be room for, as far as that is known


class FindEnd(Effect, frozen=True, kw_only=True):
    """Ask the source itself, not what was heard of it, where it ends → ``EndFound`` or ``EndUnknown``."""

    revision: int


class Hold(Effect, frozen=True, kw_only=True):
    """Hold the group's backend subscription under this broker's name, until ``LetGo`` → ``Held`` or ``NotHeld``; and
    ``Held`` again whenever the group's filter means another."""


class LetGo(Effect, frozen=True, kw_only=True):
    """Hold it no longer, unless the group's cell still names this broker."""


class LookAgain(Effect, frozen=True, kw_only=True):
    """Tell a broker that it may be the group's holder no longer."""

    broker: str


class Follow(Effect, frozen=True, kw_only=True):
    """From now on have these results arrive, and read them; None: no results."""

    source: ResultsSource | None


class Bereft(Effect, frozen=True, kw_only=True):
    """A member's group is over, and later messages of the log belong to no member: its connection has to end."""

    client: str
    session: str


class Unwanted(Effect, frozen=True, kw_only=True):
    """So many messages were settled because nobody can take them."""

    messages: int


class Vanished(Effect, frozen=True, kw_only=True):
    """There is nothing of the group here any more, and nothing left to store."""
