"""The shell that runs one machine for real: asyncio, the store and the wall's clock.

``Driver`` is a ``Shell`` with a place on the bus: it also sends and receives messages, follows logs and watches tables.
Effects that it does not know belong to the process that made it (``own``). When anything fails, ``run`` raises it,
so that the process ends and is started afresh, rather than going on with a state that nobody understands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

import structlog

from tocsin.core.machine import (
    Effect,
    Followed,
    FollowLog,
    Listen,
    Machine,
    Received,
    Send,
    Started,
    Stop,
    StopListening,
    Watched,
    WatchTable,
)
from tocsin.errors import StoreUnavailable, TocsinError, Trimmed
from tocsin.model.network import Address
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Log, Store, Table
from tocsin.runtime.machines.clock import random_bits
from tocsin.runtime.machines.shell import KERNEL, Shell
from tocsin.runtime.machines.tasks import Ending
from tocsin.wire.internal.control import decode_envelope, encode_envelope

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
        self._incarnation = random_bits(48) if incarnation is None else incarnation
        self._ending = Ending()
        self._shell = Shell(machine, self._carry_out, self._ending.fail, logs=self._logs, tables=self._tables)
        self.post = self._shell.post  # hand an event to the machine
        self.fail = self._ending.fail  # something beside the machine has a bug: ``run`` raises it
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by what they do, if a newer one replaces them
        self._outbox: deque[Send] = deque()
        self._outbox_filled = asyncio.Event()
        self._log = structlog.get_logger()
        self.dropped = 0  # messages that found the outbox full
        self.malformed = 0  # messages that were none

    async def run(self) -> None:
        """Run until the machine stops (returns), has a bug (raises it) or this task is cancelled."""
        try:
            async with AsyncExitStack() as stack:
                subject = bus_subject(self._network, self._address)
                messages = await stack.enter_async_context(self._store.bus.subscribe(subject))
                self._spawn("receive", self._receive(messages))
                self._spawn("send", self._send_all())
                self.post(Started(cause=f"{self._address}:start", incarnation=self._incarnation))
                await self._ending.wait()
        finally:
            await self._shell.wait_closed()

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
            case Stop(reason=reason, cause=cause):
                self._log.info("machine stopped", reason=reason, cause=cause)
                self._ending.stop()
            case Listen(address=address):
                self._spawn(f"listen {address}", self._listen(address))
            case StopListening(address=address):
                self._end_task(f"listen {address}")
            case FollowLog(log=name):
                self._spawn(f"follow {name}", self._follow(effect))
            case WatchTable(table=name, prefix=prefix):
                self._spawn(f"watch {name} {prefix}", self._watch(effect))
            case _ if isinstance(effect, KERNEL):
                self._shell.carry_out(effect)
            case _:
                self._own(effect)

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
        self._tasks[name] = self._shell.spawn(work, name=f"{self._address} {name}")

    def _end_task(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
