"""Events and effects of ``core.streams.machine``.

``item`` is whatever the shell keeps of a message, or of a change of metadata; the machine hands it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocsin.core.machine import Effect, Event
from tocsin.model.stream import Diff

# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class SessionResumed(Event, frozen=True, kw_only=True):
    """The client came back to its session: the coordinator may know its streams."""


class MessageTaken(Event, frozen=True, kw_only=True):
    """The client published. ``diff`` is what the message says of its stream, as ``read`` has found it."""

    item: Any
    topic: str
    diff: Diff | None = None
    size: int  # bytes
    commits: bool  # it is made durable, and ``MessageSettled`` follows when it went


class MetadataTaken(Event, frozen=True, kw_only=True):
    """The client changed a stream's metadata, even if others publish on it; ``diff`` None: forget all."""

    item: Any
    topic: str
    diff: Diff | None


class WillTaken(Event, frozen=True, kw_only=True):
    """The client's will is published: its last message, which makes no stream."""

    item: Any
    size: int


class MessageSettled(Event, frozen=True, kw_only=True):
    """One of the messages that were to be made durable is, or cannot be."""


class Cleared(Event, frozen=True, kw_only=True):
    """Everybody concerned knows what was declared up to this ticket."""

    ticket: int


class ClientLeft(Event, frozen=True, kw_only=True):
    """The connection is over. Waiting messages still go."""


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class TellBack(Effect, frozen=True, kw_only=True):
    """Tell the coordinator that the client is back."""


class Register(Effect, frozen=True, kw_only=True):
    """The client publishes on this topic from now on: have its metadata known here."""

    topic: str


class DeclareStream(Effect, frozen=True, kw_only=True):
    """Tell the coordinator of a stream and its metadata. ``Cleared`` follows with this ticket."""

    ticket: int
    topic: str
    diff: Diff | None
    publishes: bool  # the client publishes on it; else it only says something of it
    item: Any = None  # of ``MetadataTaken``: to be told what came of it


class PassOn(Effect, frozen=True, kw_only=True):
    """Forward or commit these, in order."""

    items: Sequence[Any]


class RefuseItem(Effect, frozen=True, kw_only=True):
    """Take back what was offered, and tell the client why, if there is a way."""

    item: Any
    reason_code: int
    problem: str


class CountUnregistered(Effect, frozen=True, kw_only=True):
    """A message goes on whose topic is one stream too many: no query finds it."""


class HoldClient(Effect, frozen=True, kw_only=True):
    """Read no more from the client for now; or go on."""

    waits: bool


class TellGone(Effect, frozen=True, kw_only=True):
    """Tell the coordinator that the client has gone: all that it published is durable."""

    topics: frozenset[str]
