"""The kernel: what a machine is, its events and its effects.

A **machine** is a plain object with one entry, ``handle(event, now_us) -> list[effect]``. Nothing else
changes it. It reads no clock (``now_us`` is an argument), draws no random number (one is in ``Started``), and
does nothing itself: it returns **effects**, and a **shell** carries them out. Three shells exist:
``runtime.machines.shell`` (asyncio and the real store), ``sim.world`` (virtual time, with faults) and a unit test
(which just looks at the list).

Effects that ask the store for something carry a ``request`` name chosen by the machine; the outcome comes
back as ``Stored`` or ``StoreFailed`` with the same name. A machine must expect any answer late, twice (after
a retry of its own) or never, because that is what a real network does. ``Send`` is at most once and
unordered; whatever must arrive is re-sent.

Every event and effect carries ``cause``, the id of the outside happening that led to it, so that the lines of a
log or transcript with one cause read as one story. Machines do not pass causes on: ``TableMachine.handle`` stamps
each effect with the cause of the event that brought it about. An effect that belongs to another story (something that
waited, and is done now) is given its cause by the machine, and keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol

import msgspec
from msgspec.structs import force_setattr

from tocsin.errors import TocsinError
from tocsin.model.network import Address, Message
from tocsin.ports import Change, Entry, Record


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""

    cause: str = ""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do."""

    cause: str = ""


class IllegalEvent(TocsinError):
    """A machine was handed an event that its state does not allow: a bug of ours, never of a peer."""

    def __init__(self, machine: str, state: str, event: str) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        super().__init__(f"{machine} in state '{state}' cannot take {event}")


class Machine(Protocol):
    """A machine, as a shell runs it."""

    def handle(self, event: Event, now_us: int) -> list[Effect]: ...


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class Started(Event, frozen=True, kw_only=True):
    """The machine's first event, also after a restart. ``incarnation`` is random, and differs at every start."""

    incarnation: int


class Received(Event, frozen=True, kw_only=True):
    """A message arrived."""

    sender: Address
    message: Message


class TimerFired(Event, frozen=True, kw_only=True):
    """A timer that this machine set ran out."""

    name: str


class Stored(Event, frozen=True, kw_only=True):
    """The store did what ``request`` asked: positions, a Page, a Cell, a revision or None, as ``ports`` has it."""

    request: str
    value: Any = None


class StoreFailed(Event, frozen=True, kw_only=True):
    """The store did not do what ``request`` asked, or (``OutcomeUnknown``) may have done it."""

    request: str
    error: TocsinError


class Followed(Event, frozen=True, kw_only=True):
    """The next entry of a log that this machine follows."""

    log: str
    entry: Entry


class Watched(Event, frozen=True, kw_only=True):
    """The next change of a table that this machine watches."""

    table: str
    change: Change


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class Send(Effect, frozen=True, kw_only=True):
    """Send a message, once, without a promise that it arrives."""

    to: Address
    message: Message


class Listen(Effect, frozen=True, kw_only=True):
    """Hear what is sent to an address that several share → ``Received``, from about now on."""

    address: Address


class StopListening(Effect, frozen=True, kw_only=True):
    """Hear no more of that address; what is under way may still come."""

    address: Address


class SetTimer(Effect, frozen=True, kw_only=True):
    """Fire ``name`` after ``delay_us``; a timer of that name that runs already is replaced."""

    name: str
    delay_us: int


class CancelTimer(Effect, frozen=True, kw_only=True):
    """Stop a timer; no error if it does not run."""

    name: str


class Append(Effect, frozen=True, kw_only=True):
    """Append to a log → ``Stored(value=positions)``."""

    request: str
    log: str
    records: tuple[Record, ...]
    expected: int | None = None


class ReadLog(Effect, frozen=True, kw_only=True):
    """Read from a log → ``Stored(value=Page)``; ``fresh`` as in ``ports.Log.read``."""

    request: str
    log: str
    subject: str
    start: int
    limit: int
    fresh: bool = False


class FollowLog(Effect, frozen=True, kw_only=True):
    """Follow a log from a position → ``Followed`` for each entry, until the machine stops or follows it again."""

    log: str
    subject: str
    start: int


class TrimLog(Effect, frozen=True, kw_only=True):
    """Forget a log's entries before a position, or (None) all of a subject → ``Stored(value=how many)``."""

    request: str
    log: str
    before: int | None
    subject: str | None = None


class GetKey(Effect, frozen=True, kw_only=True):
    """Read a table's key → ``Stored(value=Cell | None)``; ``fresh`` as in ``ports.Table.get``."""

    request: str
    table: str
    key: str
    fresh: bool = False


class PutKey(Effect, frozen=True, kw_only=True):
    """Write a table's key → ``Stored(value=revision)``; with ``revision``, only if it is that one (0: absent)."""

    request: str
    table: str
    key: str
    value: bytes
    revision: int | None = None
    ttl_us: int | None = None


class DeleteKey(Effect, frozen=True, kw_only=True):
    """Remove a table's key → ``Stored(value=None)``."""

    request: str
    table: str
    key: str
    revision: int | None = None


class WatchTable(Effect, frozen=True, kw_only=True):
    """Watch a table's keys that begin so → ``Watched`` for each change; begins with ``reset``."""

    table: str
    prefix: str = ""


class Say(Effect, frozen=True, kw_only=True):
    """A line for the log: a sentence, and its facts."""

    text: str
    level: str = "info"
    facts: Mapping[str, object] = {}


class Stop(Effect, frozen=True, kw_only=True):
    """The machine is done, or must not go on: the shell stops it and releases what it holds."""

    reason: str


def stamp(effects: list[Effect], cause: str) -> list[Effect]:
    """Give a cause to those of these effects that have none. They are new: nobody else has seen them yet."""
    for effect in effects:
        if not effect.cause:
            force_setattr(effect, "cause", cause)
    return effects


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────

Handler = Callable[[Any, Any, int], list[Effect]]
Table = Mapping[tuple[StrEnum | Literal["*"], type[Event]], Handler]


class OneState(StrEnum):
    """The state of a machine that has no others."""

    ONLY = "only"


class TableMachine:
    """A machine whose legal transitions are one table: (state, event type) → method.

    A pair that is not in the table is illegal: ``handle`` raises ``IllegalEvent`` and changes nothing. ``"*"`` as a
    state stands for every state that has no row of its own for that event. States and timers are enums, so that mypy
    sees a typo. The module's text has the table too, with what follows from each row; a test compares them.
    """

    table: ClassVar[Table]
    timers: ClassVar[type[StrEnum] | None] = None  # the names of the timers that the machine sets and handles

    state: StrEnum

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        kind = type(event)
        handler = self.table.get((self.state, kind)) or self.table.get(("*", kind))
        if handler is None:
            raise IllegalEvent(type(self).__name__, self.state, kind.__name__)
        effects, cause = handler(self, event, now_us), event.cause
        for effect in effects:  # ``stamp``, without the call
            if not effect.cause:
                force_setattr(effect, "cause", cause)
        return effects
