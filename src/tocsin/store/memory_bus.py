"""The bus in memory: ``ports.Bus`` with the same bounds and losses as the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tocsin.errors import DeadlineExceeded, NoResponder, StoreUnavailable
from tocsin.ports import BusMessage
from tocsin.store import rules
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
                subscription.offer(delivery)
            else:
                groups.setdefault((subscription.pattern, subscription.group), []).append(subscription)
        for name, members in groups.items():
            turn = self._turns[name] = self._turns.get(name, -1) + 1
            members[turn % len(members)].offer(delivery)
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
