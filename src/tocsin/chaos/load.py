"""The clients of a workload: publishers at a steady rate, subscribers with persistent sessions, all in this process.

Every client is given the brokers, its home first, as a client in the field would be. A publisher has up to
UNDER_WAY_MAX messages on their way; beyond that it lets its turns pass, so that what waits for a broken network is
bounded. A message counts as delivered when the subscriber's program is given it. A client that unsubscribes has its
UNSUBACK before the first message is published.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import msgspec

from tocsin.chaos.account import Account
from tocsin.chaos.targets import Part
from tocsin.chaos.workload import LoadTopic, Subscriber, Workload
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.options import Options
from tocsin.client.stream import Stream as Handle
from tocsin.client.subscription import Subscription
from tocsin.errors import DeadlineExceeded, OperatorError, PublishRefused, TocsinError

UNDER_WAY_MAX: Final = 64
KEEP_ALIVE_S: Final = 4  # a broker that hangs is noticed after one of these, as links between brokers do
SESSION_EXPIRY_S: Final = 600  # so long a killed run leaves its sessions; longer than any fault
DEADLINE_S: Final = 120.0  # for an acknowledgement: longer than any back-off
CONNECT_S: Final = 30.0
AT_ONCE: Final = 20  # clients that connect at a time
LEAVING_S: Final = 10.0
NO_ROOM: Final = "quota exceeded"  # the reason that a broker gives while the store is full


class Access(msgspec.Struct, frozen=True):
    """The clients' user, password and certificates."""

    username: str | None = None
    password: bytes | None = None
    tls: ssl.SSLContext | None = None  # for brokers without a plain port


class Load:
    """Runs a workload, and keeps its account. ``close`` it."""

    def __init__(
        self, workload: Workload, brokers: Sequence[Part], account: Account, *, rate: float, access: Access
    ) -> None:
        self.ended: dict[str, str] = {}  # clients that were thrown out for good, and why
        self.skipped = 0  # turns that publishers let pass, as too much was under way
        self._workload = workload
        self._account = account
        self._rate = rate
        self._access = access
        self._servers = [Server(*part.entrance) for part in brokers if part.entrance is not None]
        self._subscribers: list[AsyncClient] = []
        self._publishers: list[AsyncClient] = []
        self._reading: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._publishing = asyncio.Event()
        self._publishing.set()

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Connect and subscribe everybody; then publish. ``OperatorError`` if the network does not have us."""
        for (receiver, stream), promise in self._workload.expectations.items():
            self._account.expect(receiver, stream, promise)
        streams, subscribers = self._workload.streams, self._workload.subscribers
        self._subscribers = [self._client(each.name, number) for number, each in enumerate(subscribers)]
        names = [f"chaos-{self._workload.run}-publisher-{number}" for number in range(len(streams))]
        self._publishers = [self._client(name, number) for number, name in enumerate(names)]
        try:
            await _some_at_a_time([client.connect() for client in (*self._subscribers, *self._publishers)])
            inboxes = list(map(_inbox, self._subscribers, subscribers))
            await _some_at_a_time([inbox.open() for inbox in inboxes])
            await _some_at_a_time(
                [_leave(*pair) for pair in zip(self._subscribers, subscribers, strict=True) if pair[1].left]
            )
        except TocsinError as error:
            raise OperatorError(
                f"the load cannot start: {error}",
                "See with `tocsin coordinator status` whether the network is well, and that the user may use chaos/#",
            ) from None
        self._reading = [
            asyncio.create_task(self._read(inbox, each))
            for inbox, each in zip(inboxes, subscribers, strict=True)
        ]
        self._sending = [
            asyncio.create_task(self._send(client, stream, number))
            for number, (client, stream) in enumerate(zip(self._publishers, streams, strict=True))
        ]

    def _client(self, name: str, number: int) -> AsyncClient:
        at = number % len(self._servers)
        options: Options = {
            "client_id": name,
            "session_expiry_s": SESSION_EXPIRY_S,
            "keep_alive_s": KEEP_ALIVE_S,
            "deadline_s": DEADLINE_S,
            "username": self._access.username,
            "password": self._access.password,
            "tls": self._access.tls,
        }
        return AsyncClient([*self._servers[at:], *self._servers[:at]], **options)

    def at(self, broker: Part) -> int:
        """How many clients are connected there."""
        if broker.entrance is None:
            return 0
        host, port, _ = broker.entrance
        servers = Counter(client.server for client in self._clients if client.connected)
        return servers[f"{host}:{port}"]

    @property
    def _clients(self) -> tuple[AsyncClient, ...]:
        return (*self._subscribers, *self._publishers)

    @property
    def dropped_repeats(self) -> int:
        """Messages that came to a client again, and were not given to its program twice."""
        return sum(client.duplicates for client in self._subscribers)

    @property
    def unasked(self) -> dict[str, int]:
        """How many messages came to clients which have no subscription to them, or none any more."""
        return {client.client_id: client.unasked for client in self._clients if client.unasked}

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    async def _read(self, inbox: Subscription, subscriber: Subscriber) -> None:
        delivered, clock = self._account.delivered, time.monotonic
        try:
            async for message in inbox:
                text = message.payload
                number = int(text) if text.isdigit() and len(text) < 10 else -1
                delivered(subscriber.receiver, message.topic, number, clock())
        except TocsinError as error:
            self.ended[subscriber.name] = str(error)

    async def _send(self, client: AsyncClient, stream: LoadTopic, number: int) -> None:
        handle = client.stream(stream.topic, stream.metadata, qos=stream.qos)
        clock, period_s = time.monotonic, 1 / self._rate
        due = clock() + period_s * (number + 1) / len(self._workload.streams)
        mine: set[asyncio.Task[None]] = set()
        while self._publishing.is_set():
            await asyncio.sleep(max(0.0, due - clock()))
            due = max(due + period_s, clock() - 1.0)  # a process that was held up makes good a second at most
            if not self._publishing.is_set() or client.client_id in self.ended:
                return
            if len(mine) >= UNDER_WAY_MAX:
                self.skipped += 1
                continue
            message = self._account.published(stream.topic, clock())
            task = asyncio.create_task(self._publish(client.client_id, handle, message))
            for tasks in (mine, self._under_way):
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    async def _publish(self, name: str, stream: Handle, number: int) -> None:
        try:
            await stream.publish(b"%d" % number)
        except DeadlineExceeded:
            return  # it may have arrived, or not
        except PublishRefused as error:
            if error.reason != NO_ROOM:
                self.ended.setdefault(name, str(error))
            self._account.refused(stream.topic, number)
        except TocsinError as error:
            self.ended.setdefault(name, str(error))
        else:
            self._account.acknowledged(stream.topic, number)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────

    async def stop_publishing(self) -> None:
        self._publishing.clear()
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def close(self) -> None:
        """Leave, and have the network forget the sessions."""
        await self.stop_publishing()
        for task in (*self._reading, *self._under_way):
            task.cancel()
        await asyncio.gather(*self._reading, *self._under_way, return_exceptions=True)
        leaving = [client.close(settle=False, end_session=True) for client in self._clients]
        try:
            async with asyncio.timeout(LEAVING_S):
                await asyncio.gather(*leaving, return_exceptions=True)
        except TimeoutError:
            pass  # their sessions expire by themselves


def _inbox(client: AsyncClient, subscriber: Subscriber) -> Subscription:
    if subscriber.kind == "query":
        return client.query(subscriber.text, qos=subscriber.qos)
    return client.subscribe(subscriber.text, qos=subscriber.qos)


async def _leave(client: AsyncClient, subscriber: Subscriber) -> None:
    """Subscribe to what is to be left, and leave it."""
    text, qos = subscriber.left, subscriber.qos
    query = subscriber.left_kind == "query"
    left = client.query(text, qos=qos) if query else client.subscribe(text, qos=qos)
    await left.open()
    await left.close()


async def _some_at_a_time(works: Sequence[Coroutine[Any, Any, object]]) -> None:
    turnstile = asyncio.Semaphore(AT_ONCE)

    async def pass_through(each: Coroutine[Any, Any, object]) -> None:
        async with turnstile, asyncio.timeout(CONNECT_S):
            await each

    tasks = [asyncio.create_task(pass_through(each)) for each in works]
    try:
        await asyncio.gather(*tasks)
    except TimeoutError:
        raise DeadlineExceeded("the brokers", CONNECT_S) from None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
