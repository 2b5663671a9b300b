"""Events and effects of a simulated process, beyond the kernel's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocsin.core.machine import Effect, Event
from tocsin.model.network import Address
from tocsin.ports import Begun, Entry, Reached

# ── the bus ──────────────────────────────────────────────────────────────────────────────────────────────────


class Subscribe(Effect, frozen=True, kw_only=True):
    """Hear the messages on matching subjects."""

    pattern: str


class Unsubscribe(Effect, frozen=True, kw_only=True):
    pattern: str


class Publish(Effect, frozen=True, kw_only=True):
    """Say something on a subject; with ``question``, expect ``Answered`` under that number, or ``Unanswered``."""

    subject: str
    payload: bytes
    question: int = 0


class Answer(Effect, frozen=True, kw_only=True):
    """Answer a question of another process."""

    to: Address
    starts: int
    question: int
    payload: bytes


class Said(Event, frozen=True, kw_only=True):
    """A message came on a subject. A question has a number and its asker."""

    subject: str
    payload: bytes
    asker: Address = ""
    starts: int = 0
    question: int = 0


class Answered(Event, frozen=True, kw_only=True):
    """The answer to a question; None: nobody is there to answer it."""

    question: int
    payload: bytes | None


class Do(Event, frozen=True, kw_only=True):
    """Have a process do something of its own, now."""

    act: Callable[[], None]


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────


class Listen(Effect, frozen=True, kw_only=True):
    """Accept connections at a port of this node."""

    port: int


class StopListening(Effect, frozen=True, kw_only=True):
    port: int


class Dial(Effect, frozen=True, kw_only=True):
    """Connect to a port of another node → ``Opened`` or ``Closed``."""

    connection: str
    host: Address
    port: int
    proof: str = ""  # who the caller proves to be, where that is asked for


class Transmit(Effect, frozen=True, kw_only=True):
    """Send bytes over a connection, in order."""

    connection: str
    data: bytes


class HangUp(Effect, frozen=True, kw_only=True):
    """End a connection: what was sent before still arrives."""

    connection: str


class Reset(Effect, frozen=True, kw_only=True):
    """End a connection: what a cut holds up of what was sent before does not arrive any more."""

    connection: str


class Opened(Event, frozen=True, kw_only=True):
    """A connection that was dialled is there."""

    connection: str
    proof: str = ""  # who the listener proves to be


class Accepted(Event, frozen=True, kw_only=True):
    """Another node has connected to a port of this one."""

    connection: str
    port: int
    peer: Address
    proof: str = ""


class Arrived(Event, frozen=True, kw_only=True):
    """Bytes came over a connection."""

    connection: str
    data: bytes


class Closed(Event, frozen=True, kw_only=True):
    """A connection is over, or never came to be."""

    connection: str
    reason: str = ""


class Narrowed(Event, frozen=True, kw_only=True):
    """What is written to a connection now leaves slowly (→ ``Left``), or as fast as it is written again."""

    connection: str
    narrow: bool


class Left(Event, frozen=True, kw_only=True):
    """So many bytes have left over a narrow connection."""

    connection: str
    size: int


# ── the store ────────────────────────────────────────────────────────────────────────────────────────────────


class Look(Effect, frozen=True, kw_only=True):
    """Ask the store for something that no machine asks for → ``Stored``: how much a table holds, its keys."""

    request: str
    what: Any  # called with the state of the log or table and the store's time
    log: str | None = None
    table: str | None = None
    fresh: bool = False
    writes: bool = False  # then nobody answers it with old news


class Select(Effect, frozen=True, kw_only=True):
    """Read a part of a log → ``Selected``, until ``Deselect`` says that it is enough."""

    log: str
    patterns: tuple[str, ...]
    start: int
    number: int


class Hasten(Effect, frozen=True, kw_only=True):
    """Have it told soon how far a selection is."""

    number: int


class Deselect(Effect, frozen=True, kw_only=True):
    number: int


class Selected(Event, frozen=True, kw_only=True):
    """The next item of a selection."""

    number: int
    item: Entry | Begun | Reached
