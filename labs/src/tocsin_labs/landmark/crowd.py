"""Subscribers and publishers of the experiments: clients of ``tocsin.client``, in this process.

A message carries its number. A subscriber has a session, so that it misses nothing while it is between two brokers, and
notes where it was connected when, and which numbers came when. ``Times`` are monotonic, in seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.options import Connection
from tocsin.client.subscription import Subscription
from tocsin.errors import TocsinError

EXPIRY_S: Final = 3_600
KEEP_ALIVE_S: Final = 10
AT_ONCE: Final = 20  # clients that connect at a time
DEADLINE_S: Final = 30.0


class Arrival(msgspec.Struct, frozen=True, gc=False):
    at_s: float
    number: int


class Stay(msgspec.Struct, frozen=True):
    """Where a subscriber was connected from then on."""

    at_s: float
    server: str


class Subscriber:
    """One client with a session, at home at one broker."""

    def __init__(
        self,
        name: str,
        home: tuple[str, int],
        filters: Sequence[str],
        keep_alive_s: int = KEEP_ALIVE_S,
        *,
        watch: bool = True,
    ) -> None:
        self.name = name
        self.home = "{}:{}".format(*home)
        self.stays: list[Stay] = []
        self.arrivals: list[Arrival] = []
        self.filters = tuple(filters)
        self._client = AsyncClient(
            [Server(*home)],
            client_id=name,
            session_expiry_s=EXPIRY_S,
            keep_alive_s=keep_alive_s,
            watch=watch,
            on_connection=self._moved,
        )
        self._reading: asyncio.Task[None] | None = None
        self._last: Connection | None = None  # what it was told last

    def _moved(self, connection: Connection) -> None:
        self._last = connection
        if connection.up:
            self.stays.append(Stay(time.monotonic(), connection.server))

    @property
    def is_home(self) -> bool:
        return self._client.connected and self._client.server == self.home

    def whereabouts(self, names: Mapping[str, str]) -> str:
        """Where it is, as text, with the names of brokers by their addresses; or why it is nowhere."""
        last = self._last
        if last is None or last.up:
            at, home = (f"{names.get(each, '?')} ({each})" for each in (self._client.server, self.home))
            return f"{self.name} is at {at}, and at home at {home}"
        again = "and will not try again" if last.retry_s is None else "and tries again"
        return f"{self.name} is nowhere ({last.reason}), {again}"

    @property
    def has_others(self) -> bool:
        """Whether it knows where to go if its broker is gone."""
        return bool(self._client.others)

    @property
    def duplicates(self) -> int:
        """Messages that came again, and that the client has kept from its program."""
        return self._client.duplicates

    async def open(self) -> None:
        await self._client.connect()
        inbox = await self._client.subscribe(*self.filters, qos=1)
        self._reading = asyncio.create_task(self._read(inbox))

    async def _read(self, inbox: Subscription) -> None:
        async for message in inbox:
            self.arrivals.append(Arrival(time.monotonic(), int(message.payload)))

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.close(end_session=True)

    def came_back(self, since_s: float) -> float | None:
        """When it was connected first, since then."""
        return next((stay.at_s for stay in self.stays if stay.at_s >= since_s), None)

    def served(self, first: int) -> float | None:
        """When the first message from that number on arrived."""
        return next((each.at_s for each in self.arrivals if each.number >= first), None)


@asynccontextmanager
async def crowd(subscribers: Sequence[Subscriber]) -> AsyncIterator[None]:
    """They are subscribed while this lasts."""
    async with AsyncExitStack() as stack:
        for at in range(0, len(subscribers), AT_ONCE):
            some = subscribers[at : at + AT_ONCE]
            await asyncio.gather(*(each.open() for each in some))
            for each in some:
                stack.push_async_callback(each.close)
        yield


class Publisher:
    """Publishes numbers from 1 on, at QoS 1, on one topic and in a fixed period. With ``expiry_s`` even ones expire."""

    def __init__(self, client: AsyncClient, topic: str, period_s: float, expiry_s: int | None = None) -> None:
        self.topic = topic
        self.sent: list[float] = []  # when each was sent; the first has the number 1
        self.acknowledged: set[int] = set()
        self._client = client
        self._period_s = period_s
        self._expiry_s = expiry_s
        self._publishing: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None

    @property
    def next(self) -> int:
        """The number of the next message."""
        return len(self.sent) + 1

    def expires(self, number: int) -> bool:
        return self._expiry_s is not None and number % 2 == 0

    @property
    def owed(self) -> set[int]:
        """The numbers that every subscriber is to get, however late: acknowledged, and without an expiry."""
        return {number for number in self.acknowledged if not self.expires(number)}

    def start(self) -> None:
        self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            number = self.next
            self.sent.append(time.monotonic())
            task = asyncio.create_task(self._publish(number))
            self._publishing.add(task)
            task.add_done_callback(self._publishing.discard)
            due += self._period_s
            await asyncio.sleep(due - loop.time())

    async def once(self) -> None:
        """One message, by itself."""
        self.sent.append(time.monotonic())
        await self._publish(len(self.sent))

    async def _publish(self, number: int) -> None:
        expiry_s = self._expiry_s if self.expires(number) else None
        try:
            await self._client.publish(self.topic, str(number).encode(), qos=1, expiry_s=expiry_s)
        except TocsinError:
            return  # it was not acknowledged: nobody is owed it
        self.acknowledged.add(number)

    async def stop(self) -> None:
        """No more from now on; what is under way is seen through."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        await asyncio.gather(*self._publishing)


class Account(msgspec.Struct, frozen=True):
    """The outcome of the messages of a run."""

    due: int = 0  # acknowledged ones, times their subscribers
    lost: int = 0
    twice: int = 0  # given to the program twice
    disordered: int = 0  # behind one with a larger number


def account(subscribers: Iterable[Subscriber], acknowledged: set[int], since: int = 1) -> Account:
    """The outcome for one topic's subscribers, from a number on."""
    due = lost = twice = disordered = 0
    wanted = {number for number in acknowledged if number >= since}
    for each in subscribers:
        numbers = [arrival.number for arrival in each.arrivals if arrival.number >= since]
        due += len(wanted)
        lost += len(wanted - {*numbers})
        twice += len(numbers) - len({*numbers})
        highest = 0
        for number in numbers:
            disordered += number < highest
            highest = max(highest, number)
    return Account(due, lost, twice, disordered)


def total(accounts: Iterable[Account]) -> Account:
    found = Account()
    for each in accounts:
        found = Account(
            found.due + each.due,
            found.lost + each.lost,
            found.twice + each.twice,
            found.disordered + each.disordered,
        )
    return found
