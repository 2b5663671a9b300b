"""A process as a machine: events of the world wake its event loop, and what it then asks for are its effects.

Its lines of log are ``Say`` effects, so that a transcript tells its story, and invariants can look at them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    Followed,
    Received,
    Say,
    SetTimer,
    Started,
    Stop,
    Stored,
    StoreFailed,
    TimerFired,
    Watched,
)
from tocsin.errors import TocsinError
from tocsin.model.network import Address
from tocsin.runtime.machines import clock
from tocsin.sim.process.loop import VirtualLoop
from tocsin.sim.process.signals import (
    Accepted,
    Answered,
    Arrived,
    Closed,
    Do,
    Left,
    Narrowed,
    Opened,
    Said,
    Selected,
)
from tocsin.sim.process.sockets import Sockets
from tocsin.sim.process.store import SimulatedStore
from tocsin.wire.internal.control import encode_envelope

WAKE: Final = "wake"

Main = Callable[["SimulatedProcess"], Coroutine[Any, Any, None]]

_current: SimulatedProcess | None = None  # the one that runs now: many share one interpreter


class SimulatedProcess:
    """Runs ``main`` as a process at an address. ``hears`` says on which subject messages to that address come."""

    def __init__(self, address: Address, main: Main, *, proof: str = "", hears: str = "") -> None:
        self.address = address
        self.incarnation = 0
        self.store = SimulatedStore(self)
        self.sockets = Sockets(self, proof)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.runs: object = None  # what runs in it, for looking
        self.event: Event | None = None  # that it handled last, likewise
        self._main = main
        self._hears = hears
        self._loop = VirtualLoop(self.sockets)  # type: ignore[abstract]
        self._chance = random.Random(0)
        self._now_us = 0
        self._wakes_us: int | None = None
        self._cause = ""
        self._out: list[Effect] = []
        self._ends: asyncio.Task[None] | None = None
        self._ambient = clock.Ambient(
            self._time_ns, self._time_ns, lambda count: self._chance.randbytes(count)
        )
        _tell_logs()

    def _time_ns(self) -> int:
        return self._now_us * 1_000

    def do(self, effect: Effect) -> None:
        """Have the world carry something out."""
        self._out.append(effect)

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        global _current
        self.event = event
        self._now_us, self._cause = now_us, event.cause
        clock.use(self._ambient)
        _current = self
        try:
            self._take(event)
            self._loop.run(now_us)
        finally:
            _current = None
            clock.use(clock.REAL)
        if self._loop.failed is not None:
            raise self._loop.failed
        if self._ends is not None and self._ends.done():
            self.do(Stop(reason=self._end(self._ends)))
        next_us = self._loop.next_us
        if next_us != self._wakes_us:
            self._wake_at(next_us)
        effects, self._out = self._out, []
        return effects

    def close(self) -> None:
        """The process is gone, with all that it held."""
        global _current
        clock.use(self._ambient)
        _current = self
        try:
            self._loop.kill(list(self.tasks))
        finally:
            _current = None
            clock.use(clock.REAL)
            self._out.clear()

    def _take(self, event: Event) -> None:
        take = _TAKE.get(type(event))
        if take is None:
            raise AssertionError(f"{event} is not for a process")
        take(self, event)

    def _start(self, event: Started) -> None:
        self.incarnation = event.incarnation
        self._chance.seed(event.incarnation)
        self._ends = self._loop.create_task(self._main(self))

    def _on_timer(self, event: TimerFired) -> None:
        self._wakes_us = None

    def _on_stored(self, event: Stored) -> None:
        self.store.done(event.request, event.value)

    def _on_failed(self, event: StoreFailed) -> None:
        self.store.failed(event.request, event.error)

    def _on_followed(self, event: Followed) -> None:
        self.store.followed(event.log, event.entry)

    def _on_selected(self, event: Selected) -> None:
        self.store.selected(event.number, event.item)

    def _on_watched(self, event: Watched) -> None:
        self.store.watched(event.table, event.change)

    def _on_bus(self, event: Said | Answered) -> None:
        self._loop.call_soon(self.store.bus.hear, event)

    def _on_received(self, event: Received) -> None:
        """From a machine that is a node itself, as the coordinators are: over the bus, in an envelope."""
        payload = encode_envelope(event.sender, event.cause, event.message)
        self._loop.call_soon(self.store.bus.hear, Said(subject=self._hears, payload=payload))

    def _on_do(self, event: Do) -> None:
        self._loop.call_soon(event.act)

    def _on_connection(self, event: Accepted | Opened | Arrived | Narrowed | Left | Closed) -> None:
        self._loop.call_soon(self.sockets.hear, event)

    def _end(self, ends: asyncio.Task[None]) -> str:
        """Why the process ends; a supervisor may start it again. Any exception but our own errors is a bug, and
        raised.
        """
        try:
            ends.result()
        except TocsinError as error:
            return str(error)
        except BaseExceptionGroup as group:
            others = group.split(TocsinError)[1]
            if others is not None:
                raise
            return str(group.exceptions[0])
        return "its main function has returned"

    def _wake_at(self, next_us: int | None) -> None:
        self._wakes_us = next_us
        if next_us is None:
            self.do(CancelTimer(name=WAKE))
        else:
            self.do(SetTimer(name=WAKE, delay_us=max(0, next_us - self._now_us), cause=WAKE))

    def said(self, level: str, text: str, facts: dict[str, object]) -> None:
        """A line of its log."""
        cause = str(facts.pop("cause", self._cause))
        self.do(Say(text=text, level=level, facts=facts, cause=cause))


_TAKE: Final[dict[type[Event], Callable[[SimulatedProcess, Any], None]]] = {
    Started: SimulatedProcess._start,
    TimerFired: SimulatedProcess._on_timer,
    Stored: SimulatedProcess._on_stored,
    StoreFailed: SimulatedProcess._on_failed,
    Followed: SimulatedProcess._on_followed,
    Selected: SimulatedProcess._on_selected,
    Watched: SimulatedProcess._on_watched,
    Said: SimulatedProcess._on_bus,
    Answered: SimulatedProcess._on_bus,
    Received: SimulatedProcess._on_received,
    Do: SimulatedProcess._on_do,
    Accepted: SimulatedProcess._on_connection,
    Opened: SimulatedProcess._on_connection,
    Arrived: SimulatedProcess._on_connection,
    Narrowed: SimulatedProcess._on_connection,
    Left: SimulatedProcess._on_connection,
    Closed: SimulatedProcess._on_connection,
}


def _route(logger: Any, method: str, event: Any) -> Any:
    """Lines of log that a simulated process writes go to its transcript, and nowhere else."""
    if _current is None:
        return event
    facts = dict(event)
    _current.said(method, str(facts.pop("event", "")), facts)
    raise structlog.DropEvent


def _tell_logs() -> None:
    """Have log lines come here first, of every level: promises hear them, however quiet the program around is. Once."""
    processors = structlog.get_config()["processors"]
    if _route not in processors:
        every_level = structlog.make_filtering_bound_logger(logging.NOTSET)
        structlog.configure(processors=[_route, *processors], wrapper_class=every_level)
