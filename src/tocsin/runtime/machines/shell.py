"""The shell around every machine of a process: asyncio, the store and the process's clock.

``post`` hands an event in and has the effects carried out before it returns, in their order. An event that is posted
while another is handled waits for its turn: machines are never re-entered. Effects go to the owner first
(``own``); it carries out what is its own and hands everything else to ``carry_out``, which knows the effects of the
kernel: timers, requests to the store, lines of log. An effect that neither knows is a bug.

A failure of the machine, of an effect or of a task is dealt with as ``runtime.machines.tasks`` says. An event that
raised changed nothing (``TableMachine``), so that the owner can still end the machine in the ordinary way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

import structlog

from tocsin.core.machine import (
    Append,
    CancelTimer,
    DeleteKey,
    Effect,
    Event,
    GetKey,
    Machine,
    PutKey,
    ReadLog,
    Say,
    SetTimer,
    Stored,
    StoreFailed,
    TimerFired,
    TrimLog,
)
from tocsin.errors import TocsinError
from tocsin.ports import Log, Table
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.machines.tasks import Failed, Tasks, raise_alarm

# The effects that ``carry_out`` knows.
KERNEL: Final = (SetTimer, CancelTimer, Say, Append, ReadLog, TrimLog, GetKey, PutKey, DeleteKey)

_NOTHING: Final[Mapping[str, Any]] = {}
StoreRequest = Append | ReadLog | TrimLog | GetKey | PutKey | DeleteKey


def _ignore(effect: object) -> None:
    pass


class PendingCallbacks:
    """Callbacks by number: a machine, which knows no functions, names them by an id. Each is redeemed once."""

    __slots__ = ("_given", "_waiting")

    def __init__(self) -> None:
        self._given = 0
        self._waiting: dict[int, Callable[[], None]] = {}

    def give(self, act: Callable[[], None]) -> int:
        self._given += 1
        self._waiting[self._given] = act
        return self._given

    def redeem(self, tickets: Iterable[int]) -> None:
        """Do what they stand for, in their order."""
        for ticket in tickets:
            self._waiting.pop(ticket)()


async def outcome(request: StoreRequest, logs: Mapping[str, Log], tables: Mapping[str, Table]) -> Event:
    """Carry out a machine's request to the store: ``Stored`` or ``StoreFailed``, under its name and with its cause."""
    try:
        value = await _asked(request, logs, tables)
    except TocsinError as error:
        return StoreFailed(cause=request.cause, request=request.request, error=error)
    return Stored(cause=request.cause, request=request.request, value=value)


def _asked(request: StoreRequest, logs: Mapping[str, Log], tables: Mapping[str, Table]) -> Awaitable[Any]:
    match request:
        case Append(log=name, records=records, expected=expected):
            return logs[name].append(records, expected=expected)
        case ReadLog(log=name, subject=subject, start=start, limit=limit, fresh=fresh):
            return logs[name].read(subject, start, limit=limit, fresh=fresh)
        case TrimLog(log=name, before=before, subject=subject):
            return logs[name].trim(before=before, subject=subject)
        case GetKey(table=name, key=key, fresh=fresh):
            return tables[name].get(key, fresh=fresh)
        case DeleteKey(table=name, key=key, revision=revision):
            return tables[name].delete(key, revision=revision)
        case PutKey():
            table = tables[request.table]
            ttl_s = None if request.ttl_us is None else request.ttl_us / 1e6
            if request.revision is None:
                return table.put(request.key, request.value, ttl_s=ttl_s)
            return table.compare_and_set(request.key, request.value, revision=request.revision, ttl_s=ttl_s)


class Shell:
    """Runs one machine. ``close`` stops its timers and tasks."""

    # Made when needed: events, timers and tasks. Every connection has two shells, most of them idle.
    __slots__ = (
        "_answer",
        "_clock",
        "_events",
        "_failed",
        "_handling",
        "_logs",
        "_machine",
        "_own",
        "_tables",
        "_tasks",
        "_timers",
    )

    def __init__(
        self,
        machine: Machine,
        own: Callable[[Effect], None],
        failed: Failed,
        *,
        logs: Mapping[str, Log] = _NOTHING,
        tables: Mapping[str, Table] = _NOTHING,
        clock: Callable[[], int] | None = None,
        answer: Callable[[Event], None] | None = None,
    ) -> None:
        """``answer`` is handed timers that fired and outcomes of requests, if the owner has to see them first."""
        self._machine = machine
        self._own = own
        self._failed = failed
        self._logs = logs
        self._tables = tables
        self._clock = clock or now_us
        self._answer = answer
        self._events: list[Event] = []  # a deque would take 600 B in every connection
        self._handling = False
        self._timers: dict[str, asyncio.Handle] | None = None
        self._tasks: Tasks | None = None

    def post(self, event: Event) -> None:
        """Hand an event to the machine, and do what it says before this returns (unless it is busy further up)."""
        if self._handling:
            self._events.append(event)
            return
        if self._events:  # one that failed left them
            self._events.append(event)
            event = self._events.pop(0)
        self._handling = True
        own, machine = self._own, self._machine
        try:
            for effect in machine.handle(event, self._clock()):
                own(effect)
            while self._events:
                for effect in machine.handle(self._events.pop(0), self._clock()):
                    own(effect)
        except Exception as error:
            self._handling = False
            raise_alarm(error, self._where)
            self._failed(error)
        finally:
            self._handling = False

    def carry_out(self, effect: Effect) -> None:
        """Do what any machine may ask for."""
        match effect:
            case SetTimer(name=name, delay_us=delay_us, cause=cause):
                self.set_timer(name, delay_us, cause)
            case CancelTimer(name=name):
                self.cancel_timer(name)
            case Say():
                self.say(effect)
            case Append() | ReadLog() | TrimLog() | GetKey() | PutKey() | DeleteKey():
                self.spawn(self._ask(effect))
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    def say(self, said: Say, **facts: object) -> None:
        """Write a line of log."""
        getattr(structlog.get_logger(), said.level)(said.text, cause=said.cause, **facts, **said.facts)

    def spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Do something beside; it ends with the shell."""
        if self._tasks is None:
            self._tasks = Tasks(self._where, self._failed)
        return self._tasks.spawn(work, name)

    def close(self) -> None:
        """No timer fires any more, and tasks are cancelled; nobody waits for them."""
        self.close_timers()
        if self._tasks is not None:
            self._tasks.close()

    def let_go(self) -> None:
        """The owner is over, and closed: nothing is carried out for it any more. It and its shell are a circle, which
        only the garbage collector would find otherwise."""
        self._own, self._failed, self._answer, self._tasks = _ignore, _ignore, None, None

    async def wait_closed(self) -> None:
        """The same as ``close``, and return when the tasks have ended."""
        self.close_timers()
        if self._tasks is not None:
            await self._tasks.wait_closed()

    @property
    def _where(self) -> str:
        return type(self._machine).__name__

    async def _ask(self, request: StoreRequest) -> None:
        (self._answer or self.post)(await outcome(request, self._logs, self._tables))

    # ── timers ──────────────────────────────────────────────────────────────────────────────────────────────

    def set_timer(self, name: str, delay_us: int, cause: str) -> None:
        """Start a timer; one of that name that runs is replaced. It never fires before its time: a machine that waits
        for the rest of a span would set it again and again."""
        timers = self._timers
        if timers is None:
            timers = self._timers = {}
        elif (running := timers.get(name)) is not None:
            running.cancel()
        loop = asyncio.get_running_loop()
        if delay_us <= 0:  # in the loop's next turn: some loops wait a millisecond
            timers[name] = loop.call_soon(self._fire, name, cause)
        else:
            timers[name] = loop.call_later(delay_us / 1e6, self._fire, name, cause)

    def cancel_timer(self, name: str) -> None:
        timer = None if self._timers is None else self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def close_timers(self) -> None:
        """No timer fires any more; tasks go on."""
        if self._timers is not None:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _fire(self, name: str, cause: str) -> None:
        assert self._timers is not None
        del self._timers[name]
        (self._answer or self.post)(TimerFired(name=name, cause=cause))
