"""Events and effects of ``core.links.dialler``."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from mqtt5 import ConnAckPacket, DisconnectPacket, Packet

from tocsin.core.machine import Effect, Event
from tocsin.wire.mqtt.reference import Server


class Ending(StrEnum):
    """How a connection ended, as far as that says something about the peer."""

    CLOSED = "closed"  # the peer's machine closed it, or reset it
    REFUSED = "refused"  # nobody listens there, and the peer's machine says so
    OTHER = "other"  # it could not be made, went silent, or we ended it


class Flow(msgspec.Struct, frozen=True):
    """What has become of the bytes that were written to a connection."""

    taken: int  # the bytes that the peer's machine has acknowledged, in all
    waits: bool  # there are others, which could not even be sent yet


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class Dialled(Event, frozen=True, kw_only=True):
    """The connection stands, and nothing has been said."""


class Heard(Event, frozen=True, kw_only=True):
    """A packet arrived."""

    packet: Packet


class Lost(Event, frozen=True, kw_only=True):
    """There is no connection: it could not be made, or it ended."""

    reason: str
    ending: Ending = Ending.OTHER


class Pinging(Event, frozen=True, kw_only=True):
    """Ask the peer for a sign of life now, if it is not asked already, so that the round trip is known."""


class FlowSeen(Event, frozen=True, kw_only=True):
    """The answer to ``LookAtFlow``; None: nobody can tell."""

    flow: Flow | None


class Alarmed(Event, frozen=True, kw_only=True):
    """The network counts a broker as lost."""

    broker: str


class Closing(Event, frozen=True, kw_only=True):
    """We want no connection any more."""

    farewell: DisconnectPacket | None = None  # what to say instead of a plain one


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class Dial(Effect, frozen=True, kw_only=True):
    """Make a connection → ``Dialled`` or ``Lost``. A connection that is still there is given up, silently."""

    server: Server | None = None  # None: the one of the list whose turn it is
    turn: int = 0  # where in the list we are; a server that is named elsewhere is spoken to in the same way


class HangUp(Effect, frozen=True, kw_only=True):
    """End the connection, silently: no ``Lost`` follows."""

    abrupt: bool = (
        False  # what was written and not sent must not arrive any more: it would be out of its time
    )


class LookAtFlow(Effect, frozen=True, kw_only=True):
    """See what has become of what was written → ``FlowSeen``, at once."""


class Up(Effect, frozen=True, kw_only=True):
    """The peer has accepted us."""

    answer: ConnAckPacket


class Down(Effect, frozen=True, kw_only=True):
    """There is no connection now; the next try is in ``retry_us`` (0: at another server), or (None) there is none."""

    reason: str
    reason_code: int | None = None  # the peer's, if it gave one
    retry_us: int | None = None
    own: bool = False  # *session taken over*, and perhaps by a connection of our own, from just before
    ending: Ending = Ending.OTHER  # CLOSED only of a connection that was up
