"""Supervision of child processes: start in order, restart with back-off, stop in order.

Children belong to **stages**: the store's servers, then the coordinator, then the brokers. A stage is started when
every child of the stages before it is ready, or not ``awaited``; stages are stopped in the opposite order, each with a
grace before it is killed.

The parent::

    new ──► starting ──► running ──► stopping ──► stopped
                └──────── a child ends START_ATTEMPTS times in a row before it was ever ready ────► stopping

A child (``health``)::

    waiting ──► starting ──► ready ◄──► degraded          (its own word, or silence for SILENT_AFTER_US)
                   ▲            └───────────┴── ends ──► backing off ──► starting
                   └── wanted ── reserve ◄── ends ── leaving ◄── not wanted ── starting, ready, degraded
                                    parent stops ──► stopping ──► stopped

Transitions of ``Supervision``:

    new       Started → starting, running
              StopAsked → stopping, stopped
              ChildWanted → nothing
    starting  ChildWanted → nothing
              ChildStarted, TimerFired
              ChildReported → running
              ChildEnded, StopAsked → stopping, stopped
    running   ChildWanted, ChildStarted, ChildReported, ChildEnded, TimerFired
              StopAsked → stopping, stopped
    stopping  ChildWanted → nothing
              ChildStarted, ChildReported, TimerFired, StopAsked
              ChildEnded → stopped
    stopped   ChildWanted, ChildStarted, ChildReported, ChildEnded, TimerFired, StopAsked → nothing

Who wants a child while that is not running is not heard, and says so again.

Invariants: a child has at most one process; each start has a new ``run`` number, and events of an older run are
ignored; no child is started while the parent stops; once everything was ready, the parent never gives up.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal

import msgspec

from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    Say,
    SetTimer,
    Started,
    Stop,
    Table,
    TableMachine,
    TimerFired,
)
from tocsin.core.supervision.signals import (
    NO_FACTS,
    AllReady,
    ChildEnded,
    ChildReported,
    ChildStarted,
    ChildWanted,
    SignalChild,
    StartChild,
    StopAsked,
)

SECOND_US = 1_000_000
BACKOFF_FIRST_US = SECOND_US // 2  # clients notice an outage of a second; most crashes do not repeat
BACKOFF_MAX_US = 30 * SECOND_US
HEALTHY_AFTER_US = 30 * SECOND_US  # ready for as long as the longest back-off: the next crash is a new one
SILENT_AFTER_US = 10 * SECOND_US  # a process reports every second (runtime.process)
SLOW_AFTER_US = 30 * SECOND_US
GRACE_US = 10 * SECOND_US
START_ATTEMPTS = 3

Health = Literal[
    "waiting", "starting", "ready", "degraded", "backing off", "leaving", "reserve", "stopping", "stopped"
]


class Child(msgspec.Struct, frozen=True):
    """One child to look after. ``reports``: it tells its own health. ``awaited``: the network is not ready without.
    ``reserve``: it is started when it is wanted."""

    name: str
    stage: int
    reports: bool = True
    awaited: bool = True
    reserve: bool = False


class Failure(msgspec.Struct, frozen=True):
    """Why the parent gave up: a child that never became ready."""

    child: str
    code: int
    words: str


class Row(msgspec.Struct, frozen=True):
    """One child's state, for a table."""

    name: str
    stage: int
    health: Health
    problem: str  # why it is not ready; empty if there is nothing to say
    pid: int | None
    since_us: int  # start of the process that runs now
    restarts: int
    retry_at_us: int  # when backing off: the next start
    facts: Mapping[str, object]  # what it reported last


class _Ward:
    """The parent's state of one child."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.health: Health = "waiting"
        self.problem = ""
        self.run = 0  # 0: never started; grows by one with each start
        self.pid: int | None = None  # None unless a process exists
        self.since_us = 0
        self.retry_at_us = 0
        self.failures = 0  # ends in a row without a healthy while between them
        self.facts: Mapping[str, object] = NO_FACTS

    @property
    def alive(self) -> bool:
        """A process exists or is being made."""
        return self.health in ("starting", "ready", "degraded", "leaving", "stopping")

    def row(self) -> Row:
        return Row(
            name=self.child.name,
            stage=self.child.stage,
            health=self.health,
            problem=self.problem,
            pid=self.pid,
            since_us=self.since_us,
            restarts=max(0, self.run - 1),
            retry_at_us=self.retry_at_us,
            facts=self.facts,
        )


class SupervisionState(StrEnum):
    """Where the parent is."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class SupervisionTimer(StrEnum):
    """The timers of the parent. All but GRACE are of one child, whose name follows (``of``)."""

    SLOW = "slow"  # it starts, and is not ready
    SILENT = "silent"  # it has not reported
    HEALTHY = "healthy"  # its next crash is a new one
    RESTART = "restart"  # its back-off is over
    LEAVE = "leave"  # a child that is not needed is to end
    GRACE = "grace"  # for a stage to end

    def of(self, child: str) -> str:
        return f"{self}/{child}"


class Supervision(TableMachine):
    """The parent's side of its children."""

    timers = SupervisionTimer
    state: SupervisionState = SupervisionState.NEW

    def __init__(self, children: tuple[Child, ...]) -> None:
        assert len({child.name for child in children}) == len(children), "names of children are unique"
        self.failure: Failure | None = None
        self._wards = {child.name: _Ward(child) for child in children}
        self._last_stage = max((child.stage for child in children), default=-1)
        self._stage = -1  # starting: the highest stage begun; stopping: the lowest stage asked to end

    def rows(self) -> tuple[Row, ...]:
        """The children in the order in which they were given."""
        return tuple(ward.row() for ward in self._wards.values())

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_started(self, event: Started, now_us: int) -> list[Effect]:
        self.state = SupervisionState.STARTING
        return self._advance(now_us)

    def _advance(self, now_us: int) -> list[Effect]:
        """Begin stages until one has somebody to wait for; announce when there is none left."""
        effects: list[Effect] = []
        while all(
            ward.health in ("ready", "reserve") or not ward.child.awaited
            for ward in self._of_stages(0, self._stage)
        ):
            if self._stage == self._last_stage:
                self.state = SupervisionState.RUNNING
                return [*effects, AllReady()]
            self._stage += 1
            for ward in self._of_stages(self._stage, self._stage):
                if ward.child.reserve:
                    ward.health = "reserve"
                else:
                    effects += self._start(ward, now_us)
        return effects

    def _of_stages(self, low: int, high: int) -> list[_Ward]:
        return [ward for ward in self._wards.values() if low <= ward.child.stage <= high]

    def _start(self, ward: _Ward, now_us: int) -> list[Effect]:
        ward.run += 1
        ward.health, ward.since_us, ward.facts = "starting", now_us, NO_FACTS
        name = ward.child.name
        return [
            StartChild(child=name, run=ward.run),
            SetTimer(name=SupervisionTimer.SLOW.of(name), delay_us=SLOW_AFTER_US),
        ]

    # ── what children do ─────────────────────────────────────────────────────────────────────────────────────

    def _on_child_started(self, event: ChildStarted, now_us: int) -> list[Effect]:
        ward = self._current(event.child, event.run)
        if ward is not None:
            ward.pid = event.pid
        return []

    def _current(self, child: str, run: int) -> _Ward | None:
        ward = self._wards[child]
        return ward if ward.run == run and ward.alive else None

    def _on_report(self, event: ChildReported, now_us: int) -> list[Effect]:
        ward = self._current(event.child, event.run)
        if ward is None or ward.health in ("stopping", "leaving"):
            return []
        name, before = event.child, ward.health
        ward.health, ward.facts, ward.problem = event.state, event.facts, event.problem
        effects: list[Effect] = []
        if ward.child.reports:
            effects.append(SetTimer(name=SupervisionTimer.SILENT.of(name), delay_us=SILENT_AFTER_US))
        if ward.health != before:
            effects += self._health_changed(ward)
        return effects

    def _on_report_in_start(self, event: ChildReported, now_us: int) -> list[Effect]:
        return [*self._on_report(event, now_us), *self._advance(now_us)]

    def _health_changed(self, ward: _Ward) -> list[Effect]:
        name = ward.child.name
        facts: dict[str, object] = {"child": name, "pid": ward.pid}
        if ward.health == "ready":
            return [
                CancelTimer(name=SupervisionTimer.SLOW.of(name)),
                SetTimer(name=SupervisionTimer.HEALTHY.of(name), delay_us=HEALTHY_AFTER_US),
                Say(text="child is ready", facts=facts),
            ]
        level, facts["problem"] = "warning" if ward.health == "degraded" else "info", ward.problem
        said = Say(text=f"child is {ward.health}", level=level, facts=facts)
        return [CancelTimer(name=SupervisionTimer.HEALTHY.of(name)), said]

    def _on_child_ended(self, event: ChildEnded, now_us: int) -> list[Effect]:
        ward = self._current(event.child, event.run)
        if ward is None:
            return []
        ward.pid = None
        if ward.health == "leaving":
            ward.health, ward.failures = "reserve", 0
            return [CancelTimer(name=SupervisionTimer.LEAVE.of(event.child))]
        ward.failures += 1
        ward.problem = event.words or describe_exit(event.code)
        facts: dict[str, object] = {"child": event.child, "code": event.code, "problem": ward.problem}
        effects: list[Effect] = [*self._without_timers(ward)]
        delay_us = min(BACKOFF_MAX_US, BACKOFF_FIRST_US << min(ward.failures - 1, 20))
        ward.health, ward.retry_at_us = "backing off", now_us + delay_us
        facts |= {"retry_s": delay_us / SECOND_US, "failures": ward.failures}
        return [
            *effects,
            SetTimer(name=SupervisionTimer.RESTART.of(event.child), delay_us=delay_us),
            Say(text="child ended; it will be restarted", level="warning", facts=facts),
        ]

    def _on_wanted(self, event: ChildWanted, now_us: int) -> list[Effect]:
        """A tier grows or shrinks."""
        ward = self._wards.get(event.child)
        if ward is None:
            return []
        facts = {"child": event.child}
        if event.wanted and ward.health == "reserve":
            return [Say(text="child is wanted", facts=facts), *self._start(ward, now_us)]
        if not event.wanted and ward.health in ("starting", "ready", "degraded"):
            ward.health, ward.problem = "leaving", ""
            return [
                *self._without_timers(ward),
                Say(text="child is not needed any more", facts=facts),
                SignalChild(child=event.child, run=ward.run, signal="terminate"),
                SetTimer(name=SupervisionTimer.LEAVE.of(event.child), delay_us=GRACE_US),
            ]
        if not event.wanted and ward.health == "backing off":
            ward.health, ward.problem = "reserve", ""
            return self._without_timers(ward)
        return []

    def _on_ended_in_start(self, event: ChildEnded, now_us: int) -> list[Effect]:
        ward = self._current(event.child, event.run)
        if ward is None or not ward.child.awaited or ward.failures + 1 < START_ATTEMPTS:
            return self._on_child_ended(event, now_us)
        ward.pid, ward.health = None, "stopped"
        ward.problem = event.words or describe_exit(event.code)
        self.failure = Failure(event.child, event.code, ward.problem)
        facts = {"child": event.child, "code": event.code, "problem": ward.problem}
        said = Say(text="child does not start; giving up", level="error", facts=facts)
        return [*self._without_timers(ward), said, *self._begin_stop()]

    def _without_timers(self, ward: _Ward) -> list[Effect]:
        kinds = (
            SupervisionTimer.SLOW,
            SupervisionTimer.SILENT,
            SupervisionTimer.HEALTHY,
            SupervisionTimer.RESTART,
            SupervisionTimer.LEAVE,
        )
        return [CancelTimer(name=kind.of(ward.child.name)) for kind in kinds]

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        kind, _, name = event.name.partition("/")
        ward = self._wards[name]
        if kind == SupervisionTimer.RESTART and ward.health == "backing off":
            return self._start(ward, now_us)
        if kind == SupervisionTimer.LEAVE and ward.health == "leaving":
            said = Say(text="child is killed", level="warning", facts={"child": name})
            return [SignalChild(child=name, run=ward.run, signal="kill"), said]
        if kind == SupervisionTimer.HEALTHY and ward.health == "ready":
            ward.failures = 0
        elif kind == SupervisionTimer.SILENT and ward.health in ("ready", "starting"):
            ward.health = "degraded"
            ward.problem = f"no report for {SILENT_AFTER_US // SECOND_US} s"
            return self._health_changed(ward)
        elif kind == SupervisionTimer.SLOW and ward.health == "starting":
            ward.problem = ward.problem or f"not ready after {SLOW_AFTER_US // SECOND_US} s"
            facts = {"child": name, "pid": ward.pid, "problem": ward.problem}
            return [Say(text="child is slow to start", level="warning", facts=facts)]
        return []

    # ── stopping ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_stop_asked(self, event: StopAsked, now_us: int) -> list[Effect]:
        return self._begin_stop()

    def _begin_stop(self) -> list[Effect]:
        self.state, self._stage = SupervisionState.STOPPING, self._last_stage + 1
        effects: list[Effect] = []
        for ward in self._wards.values():
            effects += self._without_timers(ward)
            if not ward.alive:
                ward.health = "stopped"
        return [*effects, *self._retreat()]

    def _retreat(self) -> list[Effect]:
        """End stages, highest first, each when nobody of those above it is left."""
        effects: list[Effect] = [CancelTimer(name=SupervisionTimer.GRACE)]
        while not any(ward.alive for ward in self._of_stages(self._stage, self._last_stage)):
            if self._stage <= 0:
                self.state = SupervisionState.STOPPED
                failed = self.failure
                reason = "stopped as asked" if failed is None else f"{failed.child} does not start"
                return [*effects, Stop(reason=reason)]
            self._stage -= 1
            ending = [ward for ward in self._of_stages(self._stage, self._stage) if ward.alive]
            for ward in ending:
                ward.health = "stopping"
                name = ward.child.name
                effects.append(SignalChild(child=name, run=ward.run, signal="terminate"))
            if ending:
                effects.append(SetTimer(name=SupervisionTimer.GRACE, delay_us=GRACE_US))
        return effects

    def _on_ended_in_stop(self, event: ChildEnded, now_us: int) -> list[Effect]:
        ward = self._current(event.child, event.run)
        if ward is None:
            return []
        ward.health, ward.pid = "stopped", None
        facts = {"child": event.child, "code": event.code}
        said = Say(text="child stopped", facts=facts)
        if any(other.alive for other in self._of_stages(self._stage, self._last_stage)):
            return [said]
        return [said, *self._retreat()]

    def _on_timer_in_stop(self, event: TimerFired, now_us: int) -> list[Effect]:
        return self._kill(self._stage) if event.name == SupervisionTimer.GRACE else []

    def _on_stop_asked_again(self, event: StopAsked, now_us: int) -> list[Effect]:
        return self._kill(0)

    def _kill(self, lowest_stage: int) -> list[Effect]:
        effects: list[Effect] = []
        for ward in self._of_stages(lowest_stage, self._last_stage):
            if ward.alive:
                facts = {"child": ward.child.name}
                effects.append(SignalChild(child=ward.child.name, run=ward.run, signal="kill"))
                effects.append(Say(text="child is killed", level="warning", facts=facts))
        return effects

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (SupervisionState.NEW, Started): _on_started,
        (SupervisionState.NEW, StopAsked): _on_stop_asked,
        (SupervisionState.NEW, ChildWanted): _ignore,
        (SupervisionState.STARTING, ChildWanted): _ignore,
        (SupervisionState.RUNNING, ChildWanted): _on_wanted,
        (SupervisionState.STOPPING, ChildWanted): _ignore,
        (SupervisionState.STOPPED, ChildWanted): _ignore,
        (SupervisionState.STARTING, ChildStarted): _on_child_started,
        (SupervisionState.STARTING, ChildReported): _on_report_in_start,
        (SupervisionState.STARTING, ChildEnded): _on_ended_in_start,
        (SupervisionState.STARTING, TimerFired): _on_timer,
        (SupervisionState.STARTING, StopAsked): _on_stop_asked,
        (SupervisionState.RUNNING, ChildStarted): _on_child_started,
        (SupervisionState.RUNNING, ChildReported): _on_report,
        (SupervisionState.RUNNING, ChildEnded): _on_child_ended,
        (SupervisionState.RUNNING, TimerFired): _on_timer,
        (SupervisionState.RUNNING, StopAsked): _on_stop_asked,
        (SupervisionState.STOPPING, ChildStarted): _on_child_started,
        (SupervisionState.STOPPING, ChildReported): _on_report,
        (SupervisionState.STOPPING, ChildEnded): _on_ended_in_stop,
        (SupervisionState.STOPPING, TimerFired): _on_timer_in_stop,
        (SupervisionState.STOPPING, StopAsked): _on_stop_asked_again,
        (SupervisionState.STOPPED, ChildStarted): _ignore,  # the last words of the last run
        (SupervisionState.STOPPED, ChildReported): _ignore,
        (SupervisionState.STOPPED, ChildEnded): _ignore,
        (SupervisionState.STOPPED, TimerFired): _ignore,
        (SupervisionState.STOPPED, StopAsked): _ignore,
    }


def describe_exit(code: int) -> str:
    """An exit code as text."""
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
