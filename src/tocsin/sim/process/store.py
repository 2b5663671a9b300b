"""The store of one simulated process: ``ports.Store``, which asks the world's store by effects and waits for events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tocsin.core.machine import Append, DeleteKey, Effect, FollowLog, GetKey, PutKey, ReadLog, WatchTable
from tocsin.errors import DeadlineExceeded, NoResponder, OutcomeUnknown
from tocsin.ports import (
    READ_MAX,
    READ_MAX_BYTES,
    Begun,
    BusMessage,
    Cell,
    Change,
    Entry,
    LogSpec,
    Page,
    Reached,
    Record,
    TableSpec,
    Usage,
)
from tocsin.sim.process.signals import (
    Answer,
    Answered,
    Deselect,
    Hasten,
    Look,
    Publish,
    Said,
    Select,
    Subscribe,
    Unsubscribe,
)
from tocsin.store import rules
from tocsin.store.service import Service
from tocsin.store.subscription import Subscription

if TYPE_CHECKING:
    from tocsin.sim.process.machine import SimulatedProcess


T = TypeVar("T")

# Until a request is given up whose answer never comes: longer than the world's store takes to say so itself.
DEADLINE_S: Final = 6.0


class _Tail(Generic[T]):
    """Entries or changes that wait for their reader."""

    def __init__(self, matching: str) -> None:
        self.matching = matching
        self._queue: asyncio.Queue[T] = asyncio.Queue()

    def put(self, item: T) -> None:
        self._queue.put_nowait(item)

    async def read(self) -> AsyncIterator[T]:
        while True:
            yield await self._queue.get()


class SimulatedLog:
    """``ports.Log``."""

    def __init__(self, store: SimulatedStore, name: str) -> None:
        self._store = store
        self._name = name

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        return await self._store.ask(  # type: ignore[no-any-return]
            lambda request: Append(request=request, log=self._name, records=tuple(records), expected=expected)
        )

    async def read(
        self,
        subject: str,
        start: int,
        *,
        limit: int = READ_MAX,
        max_bytes: int = READ_MAX_BYTES,
        fresh: bool = False,
    ) -> Page:
        return await self._store.ask(  # type: ignore[no-any-return]
            lambda request: ReadLog(
                request=request, log=self._name, subject=subject, start=start, limit=limit, fresh=fresh
            )
        )

    def follow(self, subject: str, start: int) -> AsyncIterator[Entry]:
        return self._store.follow(self._name, subject, start)

    def select(self, patterns: Sequence[str], start: int) -> SimulatedSelection:
        return SimulatedSelection(self._store, self._name, tuple(patterns), start)

    async def last(self, subject: str | None = None, *, fresh: bool = False) -> int:
        return await self._store.look(lambda log, now_us: log.last(subject), log=self._name, fresh=fresh)  # type: ignore[no-any-return]

    async def trim(
        self,
        *,
        before: int | None = None,
        subject: str | None = None,
        older_than_s: float | None = None,
        keep_bytes: int | None = None,
    ) -> int:
        def trim(log: Any, now_us: int) -> int:
            older_us = None if older_than_s is None else int(older_than_s * 1_000_000)
            return int(
                log.trim(
                    now_us, before=before, subject=subject, older_than_us=older_us, keep_bytes=keep_bytes
                )
            )

        return await self._store.look(trim, log=self._name, writes=True)  # type: ignore[no-any-return]


class SimulatedSelection:
    """``ports.Selection``."""

    def __init__(self, store: SimulatedStore, log: str, patterns: tuple[str, ...], start: int) -> None:
        rules.check_select(f"follow log {log!r}", patterns, start)
        self._store = store
        self._asked = log, patterns, start
        self._number = 0

    async def items(self) -> AsyncGenerator[Entry | Begun | Reached, None]:
        self._number, tail = self._store.select(*self._asked)
        try:
            async for item in tail.read():
                yield item
        finally:
            self._store.deselect(self._number)

    async def hasten(self) -> None:
        self._store.hasten(self._number)


class SimulatedTable:
    """``ports.Table``."""

    def __init__(self, store: SimulatedStore, name: str) -> None:
        self._store = store
        self._name = name

    async def get(self, key: str, *, fresh: bool = False) -> Cell | None:
        return await self._store.ask(  # type: ignore[no-any-return]
            lambda request: GetKey(request=request, table=self._name, key=key, fresh=fresh)
        )

    async def get_many(self, keys: Sequence[str], *, fresh: bool = False) -> dict[str, Cell]:
        rules.check_many("get many", keys)
        found = await asyncio.gather(*(self.get(key, fresh=fresh) for key in keys))
        return {cell.key: cell for cell in found if cell is not None}

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        return await self._put(key, value, None, ttl_s)

    async def compare_and_set(
        self, key: str, value: bytes, *, revision: int, ttl_s: float | None = None
    ) -> int:
        return await self._put(key, value, revision, ttl_s)

    async def _put(self, key: str, value: bytes, revision: int | None, ttl_s: float | None) -> int:
        seconds = rules.ttl_seconds(f"put {key!r}", ttl_s)
        ttl_us = None if seconds is None else seconds * 1_000_000
        return await self._store.ask(  # type: ignore[no-any-return]
            lambda request: PutKey(
                request=request, table=self._name, key=key, value=value, revision=revision, ttl_us=ttl_us
            )
        )

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        await self._store.ask(
            lambda request: DeleteKey(request=request, table=self._name, key=key, revision=revision)
        )

    async def keys(self, prefix: str = "", *, fresh: bool = False) -> tuple[str, ...]:
        return await self._store.look(  # type: ignore[no-any-return]
            lambda table, now_us: table.keys(prefix, now_us), table=self._name, fresh=fresh
        )

    async def usage(self) -> Usage:
        return await self._store.look(  # type: ignore[no-any-return]
            lambda table, now_us: Usage(table.bytes, len(table)), table=self._name
        )

    def watch(self, prefix: str = "") -> AsyncIterator[Change]:
        return self._store.watch(self._name, prefix)


class SimulatedBus:
    """``ports.Bus``."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._subscriptions: list[tuple[str, Subscription]] = []
        self._hearing: dict[str, tuple[Subscription, ...]] = {}  # the same by subject, as far as it was heard
        self._services: list[Service] = []
        self._questions = 0
        self._asked: dict[int, asyncio.Future[bytes | None]] = {}

    async def publish(self, subject: str, payload: bytes) -> None:
        self._process.do(Publish(subject=subject, payload=payload))

    @asynccontextmanager
    async def subscribe(
        self, subject: str, *, group: str | None = None
    ) -> AsyncIterator[AsyncIterator[BusMessage]]:
        assert group is None, "no broker shares a subscription of the bus"
        subscription = (subject, Subscription())
        self._subscriptions.append(subscription)
        self._hearing.clear()
        self._process.do(Subscribe(pattern=subject))
        try:
            yield subscription[1]
        finally:
            self._subscriptions.remove(subscription)
            self._hearing.clear()
            self._leave(subject)

    @asynccontextmanager
    async def serve(
        self, subject: str, answer: Callable[[BusMessage], Awaitable[bytes]]
    ) -> AsyncIterator[None]:
        service = Service(subject, answer)
        self._services.append(service)
        self._process.do(Subscribe(pattern=subject))
        try:
            yield
        finally:
            self._services.remove(service)
            self._leave(subject)
            await service.close()

    def _leave(self, subject: str) -> None:
        left = [pattern for pattern, _ in self._subscriptions] + [each.subject for each in self._services]
        if subject not in left:
            self._process.do(Unsubscribe(pattern=subject))

    async def request(self, subject: str, payload: bytes, *, deadline_s: float) -> bytes:
        self._questions += 1
        question, loop = self._questions, asyncio.get_running_loop()
        answered: asyncio.Future[bytes | None] = loop.create_future()
        self._asked[question] = answered
        self._process.do(Publish(subject=subject, payload=payload, question=question))
        try:
            async with asyncio.timeout(deadline_s):
                answer = await answered
        except TimeoutError:
            raise DeadlineExceeded(subject, deadline_s) from None
        finally:
            del self._asked[question]
        if answer is None:
            raise NoResponder(subject)
        return answer

    def hear(self, event: Said | Answered) -> None:
        if isinstance(event, Answered):
            waits = self._asked.get(event.question)
            if waits is not None and not waits.done():
                waits.set_result(event.payload)
            return
        message = BusMessage(event.subject, event.payload)
        if event.question:

            async def reply(answer: bytes) -> None:
                self._process.do(
                    Answer(to=event.asker, starts=event.starts, question=event.question, payload=answer)
                )

            for service in self._services:
                if rules.matches(service.subject, event.subject):
                    service.take(message, reply)
        hearing = self._hearing.get(event.subject)
        if hearing is None:
            hearing = self._hearing[event.subject] = tuple(
                each for pattern, each in self._subscriptions if rules.matches(pattern, event.subject)
            )
        for subscription in hearing:
            subscription.put(message)


class SimulatedStore:
    """``ports.Store``. Logs and tables are opened by the scenario; a process gets a handle at once."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._bus = SimulatedBus(process)
        self._requests = 0
        # By request, in the order asked: the future that waits for the answer, and since when.
        self._waiting: dict[str, tuple[asyncio.Future[Any], float]] = {}
        self._gives_up: asyncio.TimerHandle | None = None  # runs while anything waits
        self._follows: dict[str, _Tail[Entry]] = {}  # by log: a process follows each once
        self._selections: dict[int, _Tail[Entry | Begun | Reached]] = {}  # by number
        self._selected = 0  # the last number
        self._watches: dict[str, _Tail[Change]] = {}  # by table, likewise

    @property
    def bus(self) -> SimulatedBus:
        return self._bus

    async def log(self, spec: LogSpec) -> SimulatedLog:
        return SimulatedLog(self, spec.name)

    async def table(self, spec: TableSpec) -> SimulatedTable:
        return SimulatedTable(self, spec.name)

    async def close(self) -> None:
        """There is nothing to release."""

    async def ask(self, make: Callable[[str], Effect]) -> Any:
        self._requests += 1
        effect = make(f"r{self._requests}")
        request: str = effect.request  # type: ignore[attr-defined]
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting[request] = answer, loop.time()
        if self._gives_up is None:
            self._gives_up = loop.call_later(DEADLINE_S, self._give_up)
        self._process.do(effect)
        try:
            return await answer
        finally:
            del self._waiting[request]

    def _give_up(self) -> None:
        """Fail what was asked long ago: its answer is lost, for it came while the process slept."""
        self._gives_up = None
        loop = asyncio.get_running_loop()
        for request, (_, asked) in list(self._waiting.items()):
            left_us = round((asked + DEADLINE_S - loop.time()) * 1e6)
            if left_us > 0:
                self._gives_up = loop.call_later(left_us / 1e6, self._give_up)
                return
            self.failed(request, OutcomeUnknown(f"ask {request}", DEADLINE_S))

    async def look(
        self,
        what: Any,
        *,
        log: str | None = None,
        table: str | None = None,
        fresh: bool = False,
        writes: bool = False,
    ) -> Any:
        return await self.ask(
            lambda request: Look(request=request, what=what, log=log, table=table, fresh=fresh, writes=writes)
        )

    def follow(self, log: str, subject: str, start: int) -> AsyncIterator[Entry]:
        tail = self._follows[log] = _Tail(subject)
        self._process.do(FollowLog(log=log, subject=subject, start=start))
        return tail.read()

    def select(
        self, log: str, patterns: tuple[str, ...], start: int
    ) -> tuple[int, _Tail[Entry | Begun | Reached]]:
        self._selected += 1
        tail: _Tail[Entry | Begun | Reached] = _Tail(",".join(patterns))
        self._selections[self._selected] = tail
        self._process.do(Select(log=log, patterns=patterns, start=start, number=self._selected))
        return self._selected, tail

    def deselect(self, number: int) -> None:
        del self._selections[number]
        self._process.do(Deselect(number=number))

    def hasten(self, number: int) -> None:
        if number in self._selections:
            self._process.do(Hasten(number=number))

    def watch(self, table: str, prefix: str) -> AsyncIterator[Change]:
        tail = self._watches[table] = _Tail(prefix)
        self._process.do(WatchTable(table=table, prefix=prefix))
        return tail.read()

    # ── what the world tells ────────────────────────────────────────────────────────────────────────────────

    def done(self, request: str, value: Any) -> None:
        waits, _ = self._waiting.get(request, (None, 0))
        if waits is not None and not waits.done():
            waits.set_result(value)

    def failed(self, request: str, error: Exception) -> None:
        waits, _ = self._waiting.get(request, (None, 0))
        if waits is not None and not waits.done():
            waits.set_exception(error)

    def followed(self, log: str, entry: Entry) -> None:
        if (tail := self._follows.get(log)) is not None:
            tail.put(entry)

    def selected(self, number: int, item: Entry | Begun | Reached) -> None:
        if (tail := self._selections.get(number)) is not None:
            tail.put(item)

    def watched(self, table: str, change: Change) -> None:
        if (tail := self._watches.get(table)) is not None:
            tail.put(change)
