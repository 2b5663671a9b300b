"""The store in memory: ``ports.Store`` for asyncio on the pure state of ``store.memory.state``.

A ``MemoryServer`` holds what several ``MemoryStore`` clients share, as a JetStream server would; it lives as long as
somebody refers to it. Nothing is durable. Tests and a network without state use it; the contract suite holds it to the
same promises as JetStream. Every read is fresh here. The bus has the same bounds and losses as the real one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from tocsin.errors import DeadlineExceeded, NoResponder, Refused, StoreUnavailable
from tocsin.ports import (
    READ_MAX,
    READ_MAX_BYTES,
    Begun,
    BusMessage,
    Cell,
    Change,
    Clock,
    Entry,
    LogSpec,
    Page,
    Reached,
    Record,
    TableSpec,
    Usage,
)
from tocsin.store import rules
from tocsin.store.memory.state import LogState, TableState
from tocsin.store.service import Service
from tocsin.store.subscription import Subscription


class MemorySubscription(Subscription):
    """One subscription, and what it is for."""

    def __init__(self, pattern: str, group: str | None) -> None:
        super().__init__()
        self.pattern = pattern
        self.group = group


class MemoryExchange:
    """The subscriptions of all stores of a server."""

    def __init__(self) -> None:
        self.subscriptions: list[MemorySubscription] = []
        self.services: list[Service] = []
        self._turns: dict[tuple[str, str], int] = {}  # (pattern, group) → whose turn it is

    def publish(self, delivery: BusMessage) -> bool:
        """Hand a message to those who hear it; whether there is anybody."""
        heard = False
        groups: dict[tuple[str, str], list[MemorySubscription]] = {}
        for subscription in self.subscriptions:
            if not rules.matches(subscription.pattern, delivery.subject):
                continue
            heard = True
            if subscription.group is None:
                subscription.put(delivery)
            else:
                groups.setdefault((subscription.pattern, subscription.group), []).append(subscription)
        for name, members in groups.items():
            turn = self._turns[name] = self._turns.get(name, -1) + 1
            members[turn % len(members)].put(delivery)
        return heard


class MemoryBus:
    """``ports.Bus``."""

    def __init__(self, exchange: MemoryExchange) -> None:
        self._exchange = exchange
        self._mine: set[MemorySubscription] = set()
        self._closed = False

    async def publish(self, subject: str, payload: bytes) -> None:
        self._check_open("publish")
        rules.check_subject("publish", subject)
        rules.check_value(f"publish on {subject}", payload)
        self._exchange.publish(BusMessage(subject, payload))

    @asynccontextmanager
    async def subscribe(
        self, subject: str, *, group: str | None = None
    ) -> AsyncIterator[AsyncIterator[BusMessage]]:
        self._check_open("subscribe")
        rules.check_pattern("subscribe", subject)
        if group is not None:
            rules.check_name("subscribe", group)
        subscription = MemorySubscription(subject, group)
        self._exchange.subscriptions.append(subscription)
        self._mine.add(subscription)
        try:
            yield subscription
        finally:
            self._exchange.subscriptions.remove(subscription)
            self._mine.discard(subscription)

    @asynccontextmanager
    async def serve(
        self, subject: str, answer: Callable[[BusMessage], Awaitable[bytes]]
    ) -> AsyncIterator[None]:
        self._check_open("serve")
        rules.check_pattern("serve", subject)
        service = Service(subject, answer)
        self._exchange.services.append(service)
        try:
            yield
        finally:
            self._exchange.services.remove(service)
            await service.close()

    async def request(self, subject: str, payload: bytes, *, deadline_s: float) -> bytes:
        self._check_open("request")
        rules.check_subject("request", subject)
        rules.check_value(f"request on {subject}", payload)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def reply(answer: bytes) -> None:
            if not answered.done():
                answered.set_result(answer)

        delivery = BusMessage(subject, payload)
        asked = [s for s in self._exchange.services if rules.matches(s.subject, subject)]
        heard = self._exchange.publish(delivery)
        if not asked and not heard:
            raise NoResponder(subject)
        for service in asked:
            service.take(delivery, reply)
        try:
            async with asyncio.timeout(deadline_s):
                return await answered
        except TimeoutError:
            raise DeadlineExceeded(subject, deadline_s) from None

    @property
    def dropped(self) -> int:
        """Messages that slow subscriptions of this store lost."""
        return sum(subscription.dropped for subscription in self._mine)

    def close(self) -> None:
        self._closed = True
        for subscription in self._mine:
            subscription.end()

    def _check_open(self, operation: str) -> None:
        if self._closed:
            raise StoreUnavailable(operation, "this store was closed")


class WallClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000


class _Bell:
    """Wakes all waiters for the next change."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def next(self) -> asyncio.Future[None]:
        """Done when it rings from now on: made at once, so that no ring falls between looking and waiting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(lambda done: self._waiting.discard(done))
        return future


class _LogCell:
    def __init__(self, spec: LogSpec) -> None:
        self.state = LogState(spec)
        self.bell = _Bell()


class _TableCell:
    def __init__(self, spec: TableSpec) -> None:
        self.state = TableState(spec)
        self.bell = _Bell()
        self.timer: asyncio.TimerHandle | None = None  # runs until the next expiry, while anybody watches


class MemoryServer:
    """The server that memory stores share: logs, tables and the bus."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock if clock is not None else WallClock()
        self.exchange = MemoryExchange()
        self.logs: dict[str, _LogCell] = {}
        self.tables: dict[str, _TableCell] = {}
        self.clients = 0  # stores that are open

    def open_log(self, spec: LogSpec) -> _LogCell:
        rules.check_log(spec)
        for other in self.logs.values():
            if other.state.spec.name == spec.name:
                continue
            for theirs in other.state.spec.subjects:
                for ours in spec.subjects:
                    if rules.overlap(ours, theirs):
                        raise Refused(
                            f"open log {spec.name!r}",
                            f"its subject {ours!r} overlaps {theirs!r} of the log {other.state.spec.name!r}",
                        )
        found = self.logs.get(spec.name)
        if found is None:
            found = self.logs[spec.name] = _LogCell(spec)
        else:
            found.state.adapt(spec, self.clock.now_us())
        return found

    def open_table(self, spec: TableSpec) -> _TableCell:
        found = self.tables.get(spec.name)
        if found is None:
            found = self.tables[spec.name] = _TableCell(spec)
        else:
            found.state.adapt(spec)
        return found

    def expire(self) -> None:
        """Let go what is past its time and tell the watchers. For clocks that are moved by hand."""
        now_us = self.clock.now_us()
        for log in self.logs.values():
            log.state.expire(now_us)
        for table in self.tables.values():
            if table.state.expire(now_us):
                table.bell.ring()


class MemoryLog:
    """``ports.Log``."""

    def __init__(self, store: MemoryStore, cell: _LogCell) -> None:
        self._store = store
        self._cell = cell

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        now_us = self._store.now_us("append")
        positions = self._cell.state.append(records, now_us, expected)
        self._cell.bell.ring()
        return positions

    async def read(
        self,
        subject: str,
        start: int,
        *,
        limit: int = READ_MAX,
        max_bytes: int = READ_MAX_BYTES,
        fresh: bool = False,
    ) -> Page:
        self._cell.state.expire(self._store.now_us("read"))
        return self._cell.state.read(subject, start, limit, max_bytes)

    async def follow(self, subject: str, start: int) -> AsyncIterator[Entry]:
        while True:
            page = await self.read(subject, start)
            for entry in page.entries:
                yield entry
            start = page.next
            await self.grown(start)

    def select(self, patterns: Sequence[str], start: int) -> MemorySelection:
        rules.check_select(f"follow log {self._cell.state.spec.name!r}", patterns, start)
        return MemorySelection(self, tuple(patterns), start)

    @property
    def newest(self) -> int:
        return self._cell.state.last_position

    async def grown(self, start: int) -> None:
        """Return when the log has a position from there on."""
        while self.newest < start:
            await self._store.until(self._cell.bell)

    async def last(self, subject: str | None = None, *, fresh: bool = False) -> int:
        self._cell.state.expire(self._store.now_us("last"))
        return self._cell.state.last(subject)

    async def trim(
        self,
        *,
        before: int | None = None,
        subject: str | None = None,
        older_than_s: float | None = None,
        keep_bytes: int | None = None,
    ) -> int:
        return self._cell.state.trim(
            self._store.now_us("trim"),
            before=before,
            subject=subject,
            older_than_us=None if older_than_s is None else int(older_than_s * 1_000_000),
            keep_bytes=keep_bytes,
        )


class MemorySelection:
    """``ports.Selection``: it tells how far it is whenever there is nothing more to hand out."""

    def __init__(self, log: MemoryLog, patterns: tuple[str, ...], start: int) -> None:
        self._log = log
        self._patterns = patterns
        self._start = start

    async def items(self) -> AsyncGenerator[Entry | Begun | Reached, None]:
        start, reached = self._start, self._start - 1
        yield Begun(self._log.newest)
        while True:
            page = await self._log.read(">", start)
            for entry in page.entries:
                if any(rules.matches(each, entry.subject) for each in self._patterns):
                    yield entry
                    reached = entry.position
            start = page.next
            if start > page.last > reached:
                reached = page.last
                yield Reached(reached)
            await self._log.grown(start)

    async def hasten(self) -> None:
        """It is told at once in any case."""


class MemoryTable:
    """``ports.Table``."""

    def __init__(self, store: MemoryStore, cell: _TableCell) -> None:
        self._store = store
        self._cell = cell

    async def get(self, key: str, *, fresh: bool = False) -> Cell | None:
        return self._cell.state.get(key, self._store.now_us("get"))

    async def get_many(self, keys: Sequence[str], *, fresh: bool = False) -> dict[str, Cell]:
        rules.check_many("get many", keys)
        found = [await self.get(key, fresh=fresh) for key in keys]
        return {cell.key: cell for cell in found if cell is not None}

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        ttl_us = _microseconds(f"put {key!r}", ttl_s)
        revision = self._cell.state.put(key, value, self._store.now_us("put"), ttl_us)
        self._changed()
        return revision

    async def compare_and_set(
        self, key: str, value: bytes, *, revision: int, ttl_s: float | None = None
    ) -> int:
        ttl_us = _microseconds(f"compare and set {key!r}", ttl_s)
        now_us = self._store.now_us("compare and set")
        written = self._cell.state.compare_and_set(key, value, revision, now_us, ttl_us)
        self._changed()
        return written

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        self._cell.state.delete(key, self._store.now_us("delete"), revision)
        self._changed()

    async def keys(self, prefix: str = "", *, fresh: bool = False) -> tuple[str, ...]:
        return self._cell.state.keys(prefix, self._store.now_us("keys"))

    async def usage(self) -> Usage:
        self._store.now_us("usage")
        state = self._cell.state
        return Usage(state.bytes, len(state))

    async def watch(self, prefix: str = "") -> AsyncIterator[Change]:
        state = self._cell.state
        changes: tuple[Change, ...] | None = None
        while True:
            if changes is None:
                changes = state.snapshot(prefix, self._store.now_us("watch"))
            seen = state.revision
            for change in changes:
                if change.kind in ("reset", "ready") or change.key.startswith(prefix):
                    yield change
            while state.revision == seen:
                self._schedule_expiry()
                await self._store.until(self._cell.bell)
            changes = state.changes_since(seen)

    def _changed(self) -> None:
        self._cell.bell.ring()
        self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        """Keep one timer until the next expiry, so that watchers hear of it without anybody's call."""
        cell = self._cell
        if cell.timer is not None:
            cell.timer.cancel()
            cell.timer = None
        due_us = cell.state.next_expiry_us
        if due_us is not None:
            delay_s = max(0.001, (due_us - self._store.server.clock.now_us()) / 1_000_000)
            cell.timer = asyncio.get_running_loop().call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._cell.timer = None
        if self._cell.state.expire(self._store.server.clock.now_us()):
            self._cell.bell.ring()
        self._schedule_expiry()


class MemoryStore:
    """``ports.Store``: one client of a ``MemoryServer``."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = server if server is not None else MemoryServer()
        self._bus = MemoryBus(self.server.exchange)
        self._closing = _Bell()
        self._closed = False
        self.server.clients += 1

    @property
    def bus(self) -> MemoryBus:
        return self._bus

    async def log(self, spec: LogSpec) -> MemoryLog:
        self.now_us("open log")
        return MemoryLog(self, self.server.open_log(spec))

    async def table(self, spec: TableSpec) -> MemoryTable:
        self.now_us("open table")
        return MemoryTable(self, self.server.open_table(spec))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._closing.ring()
        self._bus.close()
        self.server.clients -= 1
        if self.server.clients:
            return
        for table in self.server.tables.values():
            if table.timer is not None:
                table.timer.cancel()
                table.timer = None

    def now_us(self, operation: str) -> int:
        """The time, to those whose store is open."""
        if self._closed:
            raise StoreUnavailable(operation, "this store was closed")
        return self.server.clock.now_us()

    async def until(self, bell: _Bell) -> None:
        """Wait for a change; ``StoreUnavailable`` if the store is closed first."""
        self.now_us("wait")
        waits = [bell.next(), self._closing.next()]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self.now_us("wait")


def _microseconds(operation: str, ttl_s: float | None) -> int | None:
    seconds = rules.ttl_seconds(operation, ttl_s)
    return None if seconds is None else seconds * 1_000_000
