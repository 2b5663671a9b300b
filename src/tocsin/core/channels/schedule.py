"""The schedule of channels: which run in the next tick.

A **repetitive** channel has a period. Time is divided into intervals of that length, counted from the beginning of
1970, so that channels of one period are due together, and stay so over restarts. A channel is due in an interval in
which it has not run; a new one at once. Intervals that passed without a run are **overruns**: they are skipped, never
caught up, and counted.

A **continuous** channel is due when a dataset or channel that it waits for has an unread version, and ``gap_us``
have passed since its last run.

A channel that **reads the results** of others, and is due when one of them is, lets it go first: it waits until the
other has run, or failed, once since it is due itself, and so sees those results in a later tick. Whoever is paused,
held back or not due is not waited for. Nobody waits in a circle, as no channel reads its own results.

A channel that **fails** is held back, for twice as long each time, up to a bound, and then tried again; others do not
notice. Intervals that pass in that time are no overruns. A **paused** one is not due, until it is asked for (``RUN``),
which also cuts short a hold.

A tick takes those who are due in the order of their last runs, plus a period each: up to ``per_tick`` of them, and up
to ``budget_us`` of the time that they took last. A channel that takes longer than that has a tick to itself. So the
channel that waits longest is next, and none waits for ever.

Invariants: ``take`` gives each channel at most once until it is ``done`` or ``failed``; a repetitive one runs at most
once in an interval, unless it is asked for or failed; executions and overruns of a channel that never failed nor was
paused add up to the intervals since it was known.

This is a structure and no machine; time is an argument, in microseconds of the wall clock. A clock that goes back
makes nothing due twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

RETRY_US: Final = 1_000_000  # after the first failure; a glitch of the store is over by then
RETRY_MAX_US: Final = 300_000_000
ERROR_MAX: Final = 2_000  # characters that are kept of what went wrong


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a tick takes."""

    per_tick: int = 500
    budget_us: int = 1_000_000
    gap_us: int = 100_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One channel, as the schedule needs it."""

    every_us: int | None  # None: continuous
    waits_for: tuple[str, ...] = ()  # of a continuous one: the datasets, and results, whose news make it due
    after: tuple[str, ...] = ()  # the channels whose results it reads
    paused: bool = False
    shape: str = ""  # channels of one shape cost about as much as one


class Turn(msgspec.Struct, frozen=True):
    """A channel that is to run now."""

    channel: str
    skipped: int = 0  # intervals that passed since its last run
    asked: bool = False


class _Entry:
    __slots__ = (
        "asked",
        "cost_us",
        "ended_us",
        "error",
        "executions",
        "failures",
        "held_us",
        "interval",
        "overruns",
        "plan",
        "read",
        "running",
        "since_us",
    )

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.interval: int | None = (
            None  # the newest that needs no run; None: it never ran, and is due at once
        )
        self.read: dict[str, int] = {}  # of each dataset that it waits for, the version it has read
        self.since_us = 0  # since when it is due
        self.ended_us: int | None = None
        self.held_us = 0  # not before this; 0: not held
        self.asked = False
        self.running = False
        self.cost_us = 0  # what it took last
        self.executions = 0
        self.overruns = 0
        self.failures = 0  # in a row
        self.error = ""


class Figures(msgspec.Struct, frozen=True):
    """A channel as an operator sees it."""

    executions: int
    overruns: int
    failures: int
    error: str
    next_us: int | None  # None: nothing is planned, it waits for data or is paused
    last_us: int | None


class Schedule:
    """Decides which channels of a network run in the next tick."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._entries: dict[str, _Entry] = {}
        self._newest: dict[str, int] = {}  # version of each dataset

    def __contains__(self, channel: str) -> bool:
        return channel in self._entries

    # ── what is known ───────────────────────────────────────────────────────────────────────────────────────────

    def define(
        self,
        channel: str,
        plan: Plan,
        now_us: int,
        *,
        last_us: int | None = None,
        read: Mapping[str, int] | None = None,
    ) -> None:
        """A channel is new, or has changed. ``last_us`` and ``read``: of a channel that ran before this process did."""
        entry = self._entries.get(channel)
        if entry is None:
            entry = self._entries[channel] = _Entry(plan)
            entry.since_us = now_us
            if last_us is not None and plan.every_us is not None:
                # Intervals that passed while no pipeline ran are one late run, not many overruns.
                interval = now_us // plan.every_us
                entry.interval = max(last_us // plan.every_us, interval - 1)
        elif plan.every_us != entry.plan.every_us or (entry.plan.paused and not plan.paused):
            entry.interval = None if plan.every_us is None else now_us // plan.every_us
            entry.held_us = 0
        entry.plan = plan
        for dataset in plan.waits_for:
            entry.read.setdefault(dataset, self._newest.get(dataset, 0))
        entry.read.update(read or {})

    def drop(self, channel: str) -> None:
        self._entries.pop(channel, None)

    def advance(self, dataset: str, version: int, now_us: int) -> None:
        """A dataset has a new version."""
        if version <= self._newest.get(dataset, -1):
            return
        for entry in self._entries.values():
            if dataset in entry.plan.waits_for and not self._behind(entry):
                entry.since_us = now_us
        self._newest[dataset] = version

    def forget(self, dataset: str) -> None:
        """A dataset is gone; the versions of a later dataset of its name start again."""
        self._newest.pop(dataset, None)
        for entry in self._entries.values():
            if dataset in entry.read:
                entry.read[dataset] = 0

    def ask(self, channel: str) -> None:
        """Run it in the next tick, whatever its plan says."""
        self._entries[channel].asked = True

    # ── a tick ──────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, now_us: int) -> list[Turn]:
        """The channels to run now. Each is out of the schedule until ``done`` or ``failed``."""
        due_now = {name: entry for name, entry in self._entries.items() if self._is_due(entry, now_us)}
        due = sorted(
            (not entry.asked, self._turn_us(entry), name)
            for name, entry in due_now.items()
            if not self._lets_go_first(entry, due_now)
        )
        return [self._begin(name, now_us) for name in self._fitting(each[-1] for each in due)]

    def _fitting(self, names: Iterable[str]) -> list[str]:
        chosen: list[str] = []
        shapes: set[str] = set()
        spent_us = 0
        for name in names:
            entry = self._entries[name]
            known = entry.plan.shape in shapes and entry.plan.shape != ""
            cost_us = 0 if known else entry.cost_us
            if chosen and spent_us + cost_us > self.limits.budget_us:
                continue
            chosen.append(name)
            shapes.add(entry.plan.shape)
            spent_us += cost_us
            if len(chosen) == self.limits.per_tick or spent_us > self.limits.budget_us:
                break
        return chosen

    def _begin(self, name: str, now_us: int) -> Turn:
        entry = self._entries[name]
        turn = Turn(name, asked=entry.asked)
        every_us = entry.plan.every_us
        if every_us is not None:
            interval = now_us // every_us
            if entry.interval is not None and not entry.plan.paused and not entry.failures:
                turn = Turn(name, skipped=max(interval - entry.interval - 1, 0), asked=entry.asked)
            entry.overruns += turn.skipped
            entry.interval = max(interval, interval if entry.interval is None else entry.interval)
        entry.asked = False
        entry.running = True
        return turn

    def done(
        self, channel: str, now_us: int, *, read: Mapping[str, int] | None = None, cost_us: int = 0
    ) -> None:
        """It ran, and had read these versions."""
        entry = self._entries.get(channel)
        if entry is None:  # dropped during the run
            return
        entry.running = False
        entry.executions += 1
        entry.failures = entry.held_us = 0
        entry.error = ""
        entry.cost_us = cost_us
        entry.ended_us = entry.since_us = now_us
        entry.read.update(read or {})

    def failed(self, channel: str, now_us: int, error: str) -> int:
        """It did not; how long it is held back, in microseconds."""
        entry = self._entries.get(channel)
        if entry is None:
            return 0
        entry.running = False
        entry.failures += 1
        entry.error = error[:ERROR_MAX]
        held_us = min(RETRY_US << min(entry.failures - 1, 30), RETRY_MAX_US)
        entry.held_us = now_us + held_us
        entry.ended_us = entry.since_us = now_us
        return held_us

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────

    def next_us(self, now_us: int) -> int | None:
        """When ``take`` may have something, as things are; None: not by the passing of time alone."""
        times = (self._next_us(entry, now_us) for entry in self._entries.values())
        return min((time for time in times if time is not None), default=None)

    def figures(self, channel: str, now_us: int) -> Figures | None:
        entry = self._entries.get(channel)
        if entry is None:
            return None
        return Figures(
            executions=entry.executions,
            overruns=entry.overruns,
            failures=entry.failures,
            error=entry.error,
            next_us=self._next_us(entry, now_us),
            last_us=entry.ended_us,
        )

    # ── one channel ─────────────────────────────────────────────────────────────────────────────────────────────

    def _behind(self, entry: _Entry) -> bool:
        return any(self._newest.get(each, 0) > entry.read.get(each, 0) for each in entry.plan.waits_for)

    def _is_due(self, entry: _Entry, now_us: int) -> bool:
        next_us = self._next_us(entry, now_us)
        return next_us is not None and next_us <= now_us

    def _next_us(self, entry: _Entry, now_us: int) -> int | None:
        if entry.running:
            return None
        if entry.asked:
            return now_us
        if entry.plan.paused:
            return None
        if entry.held_us:
            return entry.held_us
        every_us = entry.plan.every_us
        if every_us is not None:
            return now_us if entry.interval is None else (entry.interval + 1) * every_us
        if not self._behind(entry):
            return None
        return now_us if entry.ended_us is None else entry.ended_us + self.limits.gap_us

    def _lets_go_first(self, entry: _Entry, due: Mapping[str, _Entry]) -> bool:
        """Whether a channel whose results it reads is due too, and has not run since it is due itself."""
        if entry.asked:
            return False
        others = [due[name] for name in entry.plan.after if name in due]
        since_us = self._due_us(entry)
        return any(other.ended_us is None or other.ended_us < since_us for other in others)

    def _due_us(self, entry: _Entry) -> int:
        """Since when one that is due has been so."""
        if entry.held_us:
            return entry.held_us
        if entry.plan.every_us is not None and entry.interval is not None:
            return (entry.interval + 1) * entry.plan.every_us
        return entry.since_us

    def _turn_us(self, entry: _Entry) -> int:
        """By which those who are due are ordered: a period after their last run."""
        if entry.held_us:
            return entry.held_us
        if entry.ended_us is None:
            return entry.since_us
        return entry.ended_us + (self.limits.gap_us if entry.plan.every_us is None else entry.plan.every_us)
