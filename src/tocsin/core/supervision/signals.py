"""Events and effects of ``core.supervision.machine``.

Beside these it uses the kernel's: timers, words for the log, and its own end.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from tocsin.core.machine import Effect, Event

Reported = Literal["starting", "ready", "degraded", "stopping"]
NO_FACTS: Final[Mapping[str, object]] = MappingProxyType({})

# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class ChildStarted(Event, frozen=True, kw_only=True):
    """The process exists."""

    child: str
    run: int
    pid: int


class ChildReported(Event, frozen=True, kw_only=True):
    """The child said how it is."""

    child: str
    run: int
    state: Reported
    problem: str = ""
    facts: Mapping[str, object] = NO_FACTS


class ChildEnded(Event, frozen=True, kw_only=True):
    """The process is gone, or could not be made. ``code`` is negative for a signal; ``words`` its last ones."""

    child: str
    run: int
    code: int
    words: str = ""


class ChildWanted(Event, frozen=True, kw_only=True):
    """A child is to run from now on, or is not needed."""

    child: str
    wanted: bool


class StopAsked(Event, frozen=True, kw_only=True):
    """Somebody wants everything stopped; asked again, at once."""


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class StartChild(Effect, frozen=True, kw_only=True):
    """Make the process → ``ChildStarted`` or ``ChildEnded``."""

    child: str
    run: int


class SignalChild(Effect, frozen=True, kw_only=True):
    """Ask the process to end, or end it."""

    child: str
    run: int
    signal: Literal["terminate", "kill"]


class AllReady(Effect, frozen=True, kw_only=True):
    """Every child that is awaited is ready for the first time."""
