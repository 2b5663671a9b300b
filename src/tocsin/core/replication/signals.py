"""Events and effects of ``core.replication``.

Beside these it uses the kernel's: ``Started``, ``Received``, ``Send``, timers and ``Say``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tocsin.core.machine import Effect, Event
from tocsin.core.replication.gamma import Left

# ── how ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Policy(msgspec.Struct, frozen=True):
    """When positions are sent, and how long somebody may be kept waiting."""

    mode: Literal["periodic", "threshold"] = "periodic"
    period_us: int = 5_000_000
    threshold: int = 0  # clients whose positions differ; 0: their number does not count
    wait_us: int = 500_000
    threshold_bytes: int = 0  # that clients were sent since; 0: the volume does not count


# ── what happens to a primary ────────────────────────────────────────────────────────────────────────────────


class BackupsSet(Event, frozen=True, kw_only=True):
    """These are this broker's backups from now on; None: there is none."""

    local: str | None
    remote: str | None
    epoch: int = 0  # of the plan; never smaller than before


class Came(Event, frozen=True, kw_only=True):
    """A client came, or began a new session."""

    client: str


class Altered(Event, frozen=True, kw_only=True):
    """Something of a client is not as it was: these subscriptions or, without any, what is not one; or it is gone."""

    client: str
    names: tuple[str, ...] = ()


class Awaited(Event, frozen=True, kw_only=True):
    """Somebody waits until all backups have what is so of a client now → ``Released``."""

    client: str
    ticket: int


# ── what happens to a backup ─────────────────────────────────────────────────────────────────────────────────


class PrimariesSet(Event, frozen=True, kw_only=True):
    """The brokers that this broker backs; copies of others are dropped after a while."""

    primaries: tuple[str, ...]


class Kept(Event, frozen=True, kw_only=True):
    """A copy is needed, whatever the plan says, until ``Forgotten``: this broker stands in for the other.

    ``meanwhile``: without the leader's word, so that it puts none of the copy's wills into the log.
    """

    primary: str
    meanwhile: bool = False


class Forgotten(Event, frozen=True, kw_only=True):
    """A copy is needed no longer."""

    primary: str


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class Released(Effect, frozen=True, kw_only=True):
    """The waits for these tickets are over. ``synced``: every backup has what they waited for;
    otherwise one of them did not answer in time, and will have it later."""

    tickets: tuple[int, ...]
    synced: bool


class Prepare(Effect, frozen=True, kw_only=True):
    """Hold these subscriptions to channels and queries for a primary, in case that it fails (S1): some of its clients
    have them."""

    primary: str
    names: tuple[str, ...]


class WillsLeft(Effect, frozen=True, kw_only=True):
    """A primary restarted and lacks these clients, whose wills the process before had."""

    primary: str
    wills: tuple[Left, ...]


class Unprepare(Effect, frozen=True, kw_only=True):
    """None of the primary's clients has these any longer (S2)."""

    primary: str
    names: tuple[str, ...]
