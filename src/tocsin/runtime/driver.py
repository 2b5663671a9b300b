"""The shell that runs one machine for real: asyncio, the store and the wall's clock.

``Driver`` hands events to the machine one at a time and carries out the effects that come back. It decides
nothing: what it does for each effect is in ``_carry_out``, and whatever it does not know there belongs to the
process that made it (``own``). A machine that raises has a bug: the driver stops and ``run`` raises it, so that
the process ends and is started afresh, rather than going on with a state that nobody understands.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

import structlog

from tocsin.core.machine import (
    Append,
    CancelTimer,
    DeleteKey,
    Effect,
    Event,
    Followed,
    FollowLog,
    GetKey,
    Listen,
    Machine,
    PutKey,
    ReadLog,
    Received,
    Say,
    Send,
    SetTimer,
    Started,
    Stop,
    StopListening,
    TimerFired,
    TrimLog,
    Watched,
    WatchTable,
)
from tocsin.errors import StoreUnavailable, TocsinError, Trimmed
from tocsin.model.message import Address
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Log, Store, Table
from tocsin.runtime.pump import Pump
from tocsin.runtime.requests import Request, outcome
from tocsin.runtime.timers import Timers
from tocsin.wire.control import decode_envelope, encode_envelope

# Messages that wait for the bus; when it is full the oldest goes: a newer one replaces it.
OUTBOX_MAX = 10_000


def bus_subject(network: str, address: Address) -> str:
    """Where on the bus the messages for an address go."""
    return f"{network}.to.{address.replace('/', '.')}"


class Driver:
    """Runs one machine under one address."""

    def __init__(
        self,
        machine: Machine,
        address: Address,
        store: Store,
        *,
        network: str,
        own: Callable[[Effect], None] = lambda effect: None,
        logs: Mapping[str, Log] | None = None,
        tables: Mapping[str, Table] | None = None,
        incarnation: int | None = None,
    ) -> None:
        self._address = address
        self._store = store
        self._network = network
        self._own = own
        self._logs = logs or {}
        self._tables = tables or {}
        self._incarnation = secrets.randbits(48) if incarnation is None else incarnation
        self._pump = Pump(machine, self._carry_out)
        self._timers = Timers(lambda name, cause: self.post(TimerFired(cause=cause, name=name)))
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._outbox: deque[Send] = deque()
        self._outbox_filled = asyncio.Event()
        self._ended: asyncio.Future[None] | None = None
        self._log = structlog.get_logger()
        self.dropped = 0  # messages that found the outbox full
        self.malformed = 0  # messages that were none

    def post(self, event: Event) -> None:
        """Hand an event to the machine, and do what it says before this returns."""
        try:
            self._pump.post(event)
        except BaseException as error:
            self._end(error)

    async def run(self) -> None:
        """Run until the machine stops (returns), has a bug (raises it) or this task is cancelled."""
        self._ended = asyncio.get_running_loop().create_future()
        try:
            async with AsyncExitStack() as stack:
                subject = bus_subject(self._network, self._address)
                messages = await stack.enter_async_context(self._store.bus.subscribe(subject))
                self._spawn("receive", self._receive(messages))
                self._spawn("send", self._send_all())
                self.post(Started(cause=f"{self._address}:start", incarnation=self._incarnation))
                await self._ended
        finally:
            self._timers.close()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def flush(self) -> None:
        """Hand to the bus what waits for it now."""
        while self._outbox:
            send = self._outbox.popleft()
            payload = encode_envelope(self._address, send.cause, send.message)
            try:
                await self._store.bus.publish(bus_subject(self._network, send.to), payload)
            except TocsinError as error:
                self.dropped += 1
                self._log.debug("message not sent", to=send.to, cause=send.cause, problem=str(error))

    # ── effects ─────────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                if len(self._outbox) >= OUTBOX_MAX:
                    self._outbox.popleft()
                    self.dropped += 1
                self._outbox.append(effect)
                self._outbox_filled.set()
            case SetTimer(name=name, delay_us=delay_us, cause=cause):
                self._timers.set(name, delay_us, cause)
            case CancelTimer(name=name):
                self._timers.cancel(name)
            case Say(text=text, level=level, facts=facts, cause=cause):
                getattr(self._log, level)(text, cause=cause, **facts)
            case Stop(reason=reason, cause=cause):
                self._log.info("machine stopped", reason=reason, cause=cause)
                self._end(None)
            case Append() | ReadLog() | TrimLog() | GetKey() | PutKey() | DeleteKey():
                self._spawn(f"request {effect.request}", self._ask(effect))
            case Listen(address=address):
                self._spawn(f"listen {address}", self._listen(address))
            case StopListening(address=address):
                self._end_task(f"listen {address}")
            case FollowLog(log=name):
                self._spawn(f"follow {name}", self._follow(effect))
            case WatchTable(table=name, prefix=prefix):
                self._spawn(f"watch {name} {prefix}", self._watch(effect))
            case _:
                self._own(effect)

    async def _ask(self, request: Request) -> None:
        self.post(await outcome(request, self._logs, self._tables))

    async def _follow(self, effect: FollowLog) -> None:
        log, start = self._logs[effect.log], effect.start
        while True:
            try:
                async for entry in log.follow(effect.subject, start):
                    start = entry.position + 1
                    self.post(Followed(cause=entry.id, log=effect.log, entry=entry))
            except Trimmed as error:
                start = error.oldest  # what is missing is the machine's to notice

    async def _watch(self, effect: WatchTable) -> None:
        async for change in self._tables[effect.table].watch(effect.prefix):
            self.post(Watched(cause=effect.cause, table=effect.table, change=change))

    # ── the bus ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _receive(self, messages: Any) -> None:
        async for delivery in messages:
            try:
                envelope = decode_envelope(delivery.payload)
            except UNREADABLE as error:
                self.malformed += 1
                self._log.warning("message ignored", subject=delivery.subject, problem=str(error))
            else:
                self.post(Received(cause=envelope.cause, sender=envelope.sender, message=envelope.message))

    async def _listen(self, address: Address) -> None:
        subject = bus_subject(self._network, address)
        while True:
            try:
                async with self._store.bus.subscribe(subject) as messages:
                    await self._receive(messages)
                return
            except StoreUnavailable as error:
                self._log.debug("not heard yet", subject=subject, problem=str(error))

    async def _send_all(self) -> None:
        while True:
            await self._outbox_filled.wait()
            self._outbox_filled.clear()
            await self.flush()

    # ── upkeep ──────────────────────────────────────────────────────────────────────────────────────────────

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start work under a name; work of that name that still runs is stopped."""
        self._end_task(name)
        task = self._tasks[name] = asyncio.create_task(work, name=f"{self._address} {name}")

        def done(task: asyncio.Task[None]) -> None:
            if self._tasks.get(name) is task:
                del self._tasks[name]
            if not task.cancelled() and (error := task.exception()) is not None:
                self._end(error)

        task.add_done_callback(done)

    def _end_task(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    def _end(self, error: BaseException | None) -> None:
        if self._ended is None or self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
