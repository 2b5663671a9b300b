"""Events and effects of ``participant``: between a broker's shell and its side of coordination.

A **ticket** is a number that the shell gives to a change so as to hear of it again. Tickets grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from tocsin.core.machine import Effect, Event
from tocsin.core.tiers.measuring import Measured
from tocsin.core.tiers.slots import Slots
from tocsin.model.network import BrokerInfo, Role, Route, Scheme
from tocsin.model.stream import Metadata
from tocsin.wire.internal.commands import ClientAway, ClientBack, ClientGone, Streams
from tocsin.wire.internal.control import Moves

# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class ParticipantTimer(StrEnum):
    """The timers of a participant."""

    AGAIN = "again"  # to ask again where the log ends
    BEAT = "beat"  # the next heartbeat
    TELL = "tell"  # what gathered goes to the leader
    RESEND = "resend"  # … and what was not acknowledged
    CLEAR = "clear"  # nobody waits longer for a coordinator
    HOLD = "hold"  # a notice waits no longer for the message log


class InterestsChanged(Event, frozen=True, kw_only=True):
    """The first local subscriber of a filter came, or the last one went."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class QueriesChanged(Event, frozen=True, kw_only=True):
    """The first local subscriber of a query came, or the last one went. Added are (id, canonical text)."""

    added: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()
    user: str = ""  # whose client it was that came


class ClientsChanged(Event, frozen=True, kw_only=True):
    """Something about a client that publishes, or about streams.

    ``ChangesSettled`` says when it is in the log, ``ChangesKnown`` when messages that come after it may be sent on, and
    ``ChangesRouted`` when all routes are here that follow from it.
    """

    ticket: int
    command: Streams | ClientAway | ClientBack | ClientGone


class AllDispatched(Event, frozen=True, kw_only=True):
    """Everything was delivered to local clients that the message log had when ``AwaitAll`` asked with this number."""

    number: int


class Dispatched(Event, frozen=True, kw_only=True):
    """The message log was delivered to local clients up to this position, for which ``AwaitDispatch`` asked."""

    position: int


class MessageRead(Event, frozen=True, kw_only=True):
    """The message log has a message of this stream, of which that was said; its dispatch follows."""

    topic: str
    metadata: Metadata


class Loaded(Event, frozen=True, kw_only=True):
    """How full the broker is, in thousandths of the clients that it takes; told with the next beat."""

    load: int
    clients: int = 0
    refuses: bool = False  # it is being emptied, and takes no new clients


class GuestCame(Event, frozen=True, kw_only=True):
    """A client has come, and says where it is at home: a broker's id, or its address."""

    client: str
    home: str
    scheme: Scheme  # by which it came


class GuestWent(Event, frozen=True, kw_only=True):
    """It is not here any more."""

    client: str


class LinksSeen(Event, frozen=True, kw_only=True):
    """How this broker's links are; told every second or so, and when ``MeasureLinks`` has asked."""

    down: tuple[str, ...] = ()  # peers to which routes lead, or detours, and no connection
    delays: Mapping[str, int] = MappingProxyType({})  # of those to which there is one, in microseconds
    asked: bool = False


class LoadMeasured(Event, frozen=True, kw_only=True):
    """What this member of a tier carried in the last seconds. Told now and then also if it is as before; None: nothing
    was measured since."""

    measured: Measured | None
    busy: float = 0.0  # share of the processor time that the process could have


class LinksEnded(Event, frozen=True, kw_only=True):
    """Peers have ended this broker's links to them without a word, or refuse new ones."""

    closed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class Readdressed(Event, frozen=True, kw_only=True):
    """The broker is reached elsewhere from now on."""

    info: BrokerInfo


class Leaving(Event, frozen=True, kw_only=True):
    """The broker stops on purpose."""


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class BackupsKnown(Effect, frozen=True, kw_only=True):
    """The backups of this broker, and the brokers that it backs, from now on."""

    local: BrokerInfo | None
    remote: BrokerInfo | None
    locally: tuple[str, ...]  # it is their local backup
    remotely: tuple[str, ...]  # it is their remote backup


class StandIn(Effect, frozen=True, kw_only=True):
    """Stand in for a broker that is gone: take what the copy of it says. Repeated with a larger epoch only."""

    broker: str
    epoch: int


class StandDown(Effect, frozen=True, kw_only=True):
    """That broker is back, or another stands in for it."""

    broker: str


class Orphaned(Effect, frozen=True, kw_only=True):
    """No leader has heard this broker for longer than one waits, or (``told``) it said so: it counts as lost.

    After ``told`` it may come once more without: then that leader is not heard any more either.
    """

    told: bool


class Adopted(Effect, frozen=True, kw_only=True):
    """A leader hears this broker, and counts on it: for the first time, or again after ``Orphaned``."""


class Promoted(Effect, frozen=True, kw_only=True):
    """This broker, a standby, is to rejoin under the name of a lost broker."""

    place: BrokerInfo


class Deposed(Effect, frozen=True, kw_only=True):
    """The broker that this standby replaces is back: become a standby again."""


class RoleChanged(Effect, frozen=True, kw_only=True):
    """Start again with another role: stand by, or serve again. Nobody counts on this broker."""

    role: Role


class DestinationsChanged(Effect, frozen=True, kw_only=True):
    """Clients of this broker should go elsewhere than before if it is lost."""


class StandInsChanged(Effect, frozen=True, kw_only=True):
    """Other brokers than before are lost, or others stand in for them."""

    lost: Mapping[str, BrokerInfo | None]  # all that are lost, with their stand-ins


class SendHome(Effect, frozen=True, kw_only=True):
    """A guest's home is back: let it go there."""

    client: str
    server_reference: str


class ClientsToMove(Effect, frozen=True, kw_only=True):
    """The leader wants clients of this broker elsewhere; None: it does not any more."""

    moves: Moves | None


class RoutesChanged(Effect, frozen=True, kw_only=True):
    """Change the forwarding table, and have a link to each peer and to nobody else.

    Peers are the brokers that routes and detours lead to, and those that this broker backs. To the **quiet** ones of
    them nothing leads: their links only show that they end. ``tiers`` are all there are, by the names that routes have
    for them."""

    added: tuple[Route, ...]
    removed: tuple[Route, ...]
    peers: tuple[BrokerInfo, ...]
    quiet: frozenset[str] = frozenset()
    tiers: Mapping[str, Slots] | None = None


class DetoursChanged(Effect, frozen=True, kw_only=True):
    """Peers whose links are cut, and the relays over which messages reach them instead; none: they wait. Told after the
    ``RoutesChanged`` that names the brokers that need a link for it. All others are reached straight.
    """

    around: Mapping[str, tuple[str, ...]]


class MeasureLinks(Effect, frozen=True, kw_only=True):
    """Measure the delay of each link now; say with ``LinksSeen`` what came of it."""


class QuerySetKnown(Effect, frozen=True, kw_only=True):
    """The answer to a query that is new here: its streams, as topic → metadata."""

    query: str
    streams: Mapping[str, Metadata]


class DemandKnown(Effect, frozen=True, kw_only=True):
    """Whether other brokers want topics of a filter that clients here asked about: the answer, or a change of it."""

    query: str  # ``DEMAND`` and the filter
    wanted: bool


class StreamJoined(Effect, frozen=True, kw_only=True):
    """A stream satisfies a query from now on; its messages come after this."""

    query: str
    topic: str
    metadata: Metadata


class StreamChanged(Effect, frozen=True, kw_only=True):
    """A stream of a query has other metadata, and still satisfies it."""

    query: str
    topic: str
    metadata: Metadata


class StreamLeft(Effect, frozen=True, kw_only=True):
    """A stream no longer satisfies a query, or is gone; none of its messages comes after this."""

    query: str
    topic: str
    metadata: Metadata


class StreamsDescribed(Effect, frozen=True, kw_only=True):
    """The metadata of streams on which clients of this broker publish, as topic → keys; only changed ones.

    With ``whole``, all of them: any other stream has no metadata.
    """

    streams: Mapping[str, Metadata]
    whole: bool


class StreamRefused(Effect, frozen=True, kw_only=True):
    """Metadata of a topic, or a query (by its id), were refused; told before ``ChangesSettled`` of the same ticket."""

    subject: str
    problem: str
    ticket: int = 0  # 0 for a query


class AwaitAll(Effect, frozen=True, kw_only=True):
    """Post ``AllDispatched`` once everything that the message log has now was delivered."""

    number: int


class AwaitDispatch(Effect, frozen=True, kw_only=True):
    """Post ``Dispatched`` once the message log was delivered up to this position; at once if it was already."""

    position: int


class ChangesSettled(Effect, frozen=True, kw_only=True):
    """Changes up to this ticket are in the log: whatever fails now, they are not lost."""

    ticket: int


class ChangesKnown(Effect, frozen=True, kw_only=True):
    """Messages that wait for changes up to this ticket may be sent on."""

    ticket: int


class ChangesRouted(Effect, frozen=True, kw_only=True):
    """The routes that changes up to this ticket need are here, as far as the log has it. ``anew``: and those of no
    others any more."""

    ticket: int
    anew: bool = False
