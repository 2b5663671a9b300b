"""Events and effects of ``core.channels.machine``.

Beside these it uses the kernel's: one timer, and the requests of one table's keys.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from tocsin.core.machine import Effect, Event
from tocsin.model.catalogue import Channel

# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class HoldingsTimer(StrEnum):
    """The timers of backend subscriptions."""

    AGAIN = "again"  # requests for cells have failed
    AGAIN_STANDBY = "again standby"  # … for standby cells
    LATER = "later"  # cells that nobody waits for are written
    SOON = "soon"  # sessions that came prepared are taken up
    SCAN = "scan"  # of the sessions and cells in the store
    EXPIRY = "expiry"  # of a session that is away


class Defined(Event, frozen=True, kw_only=True):
    """There is a channel, new or changed."""

    channel: Channel


class Undefined(Event, frozen=True, kw_only=True):
    """There is no channel of that name any more."""

    name: str


class Wanted(Event, frozen=True, kw_only=True):
    """A session has (also) these subscriptions, and is served here → ``Held`` when their cells are stored.

    ``session`` is nobody else's: the uid of a stored one, or the name of a connection.
    """

    session: str
    client: str
    names: tuple[str, ...]
    all: bool = False  # these are all that it has, whatever was known
    ticket: int = 0  # 0: nobody waits


class Unwanted(Event, frozen=True, kw_only=True):
    """A session has some subscriptions no longer."""

    session: str
    names: tuple[str, ...]


class Left(Event, frozen=True, kw_only=True):
    """The connection of a session is over; the session is kept for so long (0: not at all)."""

    session: str
    expiry_s: int


class Doubted(Event, frozen=True, kw_only=True):
    """Somebody says that a session may be over, or have another home than is known here."""

    session: str
    client: str


class Looked(Event, frozen=True, kw_only=True):
    """The answer to ``LookAt``: where the stored session has its home, and what it is subscribed to."""

    session: str
    client: str
    visits: int  # as it was asked with
    home: Literal["here", "elsewhere", "nowhere"]  # the last: there is no such session
    ready: bool = True  # elsewhere: the new home has the cells of all that it is subscribed to
    names: tuple[str, ...] = ()
    expiry_s: int = 0


class Prepared(Event, frozen=True, kw_only=True):
    """Clients of a broker that this broker backs (also) have these subscriptions → ``Held`` when their standby cells
    are stored, for those without an active cell here.
    """

    primary: str
    names: tuple[str, ...]
    ticket: int = 0  # 0: nobody waits


class Unprepared(Event, frozen=True, kw_only=True):
    """None of them has these any longer."""

    primary: str
    names: tuple[str, ...]


class CellFound(Event, frozen=True, kw_only=True):
    """The scan found a cell of this broker's."""

    key: str
    revision: int


class SessionFound(Event, frozen=True, kw_only=True):
    """The scan found a stored session that this broker was the last to serve."""

    session: str
    client: str
    names: tuple[str, ...]
    expiry_s: int


class Counted(Event, frozen=True, kw_only=True):
    """A leader counts on this process under its name, or does not (any more). Without this event the process is counted
    on.
    """

    counted: bool


class Scanned(Event, frozen=True, kw_only=True):
    """The scan is over; ``whole``: it found all that there is."""

    whole: bool


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class Scan(Effect, frozen=True, kw_only=True):
    """Look through the cells of this broker, then through all stored sessions → what is found, then ``Scanned``."""


class LookAt(Effect, frozen=True, kw_only=True):
    """Look at the stored session of a client, and at the cells of its home, which is told of any that it lacks.

    → ``Looked``.
    """

    session: str
    client: str
    visits: int


class Held(Effect, frozen=True, kw_only=True):
    """The backend subscriptions of these tickets are stored, or nobody wants them any more."""

    tickets: tuple[int, ...]


class Unheld(Effect, frozen=True, kw_only=True):
    """The store has no room for what these tickets stand for. It is tried again, for as long as somebody wants it."""

    tickets: tuple[int, ...]
