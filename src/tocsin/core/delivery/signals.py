"""Events and effects of ``core.delivery.machine``.

Beside these it uses the kernel's: timers, and the requests of one table's keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket, PubRelPacket

from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, Event, Stored, StoreFailed, TimerFired
from tocsin.core.shared.stored_group import Claim
from tocsin.errors import ProtocolViolation, TocsinError
from tocsin.model.stream import Value
from tocsin.ports import Entry

# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class DeliveryState(StrEnum):
    """Where one client's durable side is."""

    NEW = "new"
    ATTENDING = "attending"
    ENDING = "ending"
    LOST = "lost"
    ENDED = "ended"


class DeliveryTimer(StrEnum):
    """The timers of one client's durable side."""

    SAVE_SOON = "save soon"  # what nobody waits for is written
    SAVE_AGAIN = "save again"  # what the store did not take is tried again
    REFRESH = "refresh"  # the cell is written anew before it expires
    CHECKPOINT = "checkpoint"  # how far results are must not lag far behind
    CONFIRM = "confirm"  # that a new session's client was heard is written, also if nothing else changes
    READ_AGAIN = "read again"  # the log and the results, of which a read has failed


class Began(Event, frozen=True, kw_only=True):
    """The client is accepted, with its stored session and that cell's revision, if it has one."""

    receive_max: int
    prefix: str  # of record ids: never given out before
    session: StoredSession | None = None
    revision: int = 0
    tail: int  # the newest position that was dispatched here
    critical_tail: int = 0  # up to where there may be critical messages among these; 0: nowhere
    results_tail: int = 0  # the same of results: a place
    claims: tuple[
        tuple[str, Claim], ...
    ] = ()  # what it has as a member of groups, each with the group's name


class Subscribed(Event, frozen=True, kw_only=True):
    """The client subscribed; ``since`` of the subscription is where the log was, or, of a channel, the results were."""

    topic_filter: str
    subscription: Subscription
    tail: int = 0  # the newest position that was dispatched here


class Begins(Event, frozen=True, kw_only=True):
    """It is known since when a subscription is one: the log was not read for it when it was made (``before``)."""

    topic_filter: str
    before: Subscription
    subscription: Subscription


class Unsubscribed(Event, frozen=True, kw_only=True):
    topic_filter: str


class AwaitSave(Event, frozen=True, kw_only=True):
    """Somebody waits until everything up to now is durable → ``Durable`` with this ticket; who does not need that
    waits until a write of it has failed, at most."""

    ticket: int
    needed: bool = True


class Kept(Event, frozen=True, kw_only=True):
    """The log has the client's QoS 2 message with this packet id."""

    packet_id: int


class StreamSaid(Event, frozen=True, kw_only=True):
    """The current metadata of a stream that the client publishes on; none, if ``keys`` is empty."""

    topic: str
    keys: Mapping[str, Value]
    kept: bool = True  # by a coordinator


class ReleaseAsked(Event, frozen=True, kw_only=True):
    """The client gives a QoS 2 packet id back, known or not → ``Durable`` with this ticket."""

    packet_id: int
    ticket: int


class Answered(Event, frozen=True, kw_only=True):
    """The client answered a delivery."""

    packet: PubAckPacket | PubRecPacket | PubCompPacket


class ClaimsForgotten(Event, frozen=True, kw_only=True):
    """That these packet ids' claims are settled is durable."""

    packet_ids: tuple[int, ...]


class BatchRead(Event, frozen=True, kw_only=True):
    """The next critical entries that match, or the others, all below ``next``.

    ``tail`` is as in ``Began``, at this moment; of critical ones it may be ``critical_tail``.
    """

    entries: Sequence[MatchedEntry]
    next: int
    tail: int
    critical: bool = False


class ResultsRead(Event, frozen=True, kw_only=True):
    """The same of results, by place: critical ones, or the others."""

    entries: Sequence[MatchedResult]
    next: int
    tail: int
    critical: bool = False


class MatchedEntry(msgspec.Struct, frozen=True):
    """An entry that matches, and at which QoS the client gets it. ``message`` is what the shell has read in it, and is
    handed back with ``Deliver``."""

    entry: Entry
    qos: int
    message: Any = None

    @property
    def position(self) -> int:
        return self.entry.position

    def sent(self, packet_id: int, repeat: bool) -> Effect:
        return Deliver(
            entry=self.entry, packet_id=packet_id, qos=self.qos, repeat=repeat, message=self.message
        )


class MatchedResult(msgspec.Struct, frozen=True):
    """A result, its place, and the subscription that it is for, at QoS 1."""

    position: int
    name: str
    result: Any  # for the shell
    qos: int = 1

    def sent(self, packet_id: int, repeat: bool) -> Effect:
        return DeliverResult(
            position=self.position, name=self.name, result=self.result, packet_id=packet_id, repeat=repeat
        )


class ReadFailed(Event, frozen=True, kw_only=True):
    error: TocsinError
    critical: bool = False


class ResultsFailed(Event, frozen=True, kw_only=True):
    """Results could not be read."""

    error: TocsinError
    critical: bool = False


class Writable(Event, frozen=True, kw_only=True):
    """The connection is congested no more."""


class Ended(Event, frozen=True, kw_only=True):
    """The connection is over; the session is kept for so long (0: not at all). ``settled``: no will of it is left."""

    expiry_s: int
    settled: bool = False


# Events that mean nothing when the connection is over.
OF_THE_CONNECTION: Final[tuple[type[Event], ...]] = (
    *(Subscribed, Begins, Unsubscribed, AwaitSave, Kept, StreamSaid, ReleaseAsked, Answered),
    *(BatchRead, ReadFailed, ResultsRead, ResultsFailed, Writable, ClaimsForgotten),
)
# Events that may still come when the machine has ended.
AFTERWARDS: Final[list[tuple[DeliveryState, type[Event]]]] = [
    *(
        (state, kind)
        for state in (DeliveryState.ENDING, DeliveryState.LOST, DeliveryState.ENDED)
        for kind in OF_THE_CONNECTION
    ),
    *(
        (state, kind)
        for state in (DeliveryState.LOST, DeliveryState.ENDED)
        for kind in (Stored, StoreFailed, TimerFired)
    ),
]

# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class Deliver(Effect, frozen=True, kw_only=True):
    """Send an entry to the client; ``message`` as it was matched."""

    entry: Entry
    packet_id: int
    qos: int
    repeat: bool
    message: Any = None


class DeliverResult(Effect, frozen=True, kw_only=True):
    """Send a result to the client, for the subscription of that name."""

    position: int
    name: str
    result: Any
    packet_id: int
    repeat: bool


class Reply(Effect, frozen=True, kw_only=True):
    """Send PUBREL to the client."""

    packet: PubRelPacket


class ClaimsSettled(Effect, frozen=True, kw_only=True):
    """The client is done with what it got as a member of groups: (group, position, packet id) each."""

    claims: tuple[tuple[str, int, int], ...]


class ReadBatch(Effect, frozen=True, kw_only=True):
    """Read critical messages of the log, or the others, for these filters → ``BatchRead`` or ``ReadFailed``."""

    filters: tuple[str, ...]
    start: int
    critical: bool = False


class ReadResults(Effect, frozen=True, kw_only=True):
    """Read critical results, or the others, for these subscriptions, from a place on → ``ResultsRead`` or
    ``ResultsFailed``."""

    names: tuple[str, ...]
    start: int
    critical: bool = False


class Durable(Effect, frozen=True, kw_only=True):
    """The changes of these tickets are durable, or could not be stored and need not be."""

    tickets: tuple[int, ...]


class Overfull(Effect, frozen=True, kw_only=True):
    """The store has no room for the session as it should be, and its client waits for that: end the connection."""


class Violated(Effect, frozen=True, kw_only=True):
    """The client answered a message in a way that the protocol forbids: end the connection."""

    error: ProtocolViolation


class Usurped(Effect, frozen=True, kw_only=True):
    """Another broker has the client: end the connection."""


class Gone(Effect, frozen=True, kw_only=True):
    """All that the connection left is stored, or (``unstored``) the store does not answer: the cell is as it was."""

    unstored: bool = False
