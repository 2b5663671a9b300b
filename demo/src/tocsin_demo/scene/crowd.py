"""The subscribers: a process with some of them, each a client of its own with a session that lasts.

A subscriber knows one address, its home. It tells where it is over its own connection, at QoS 1, and is subscribed to
the channel with its name. The process tells every change of connection, and every notification, within NEWS_S; times
are of the clock that all processes of the machine share. It begins to play when it is ordered to (``begin_s``), and
stops telling places when it is ordered to (``rest``). Subscribers may ``come`` later, and ``go`` for a while: then
their sessions stay, and when they come again they are given what they missed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.channel import Notifications
from tocsin.client.options import Connection, Options
from tocsin.errors import ClientClosed, DeadlineExceeded
from tocsin_demo.scene.application import CHANNEL, location, location_topic
from tocsin_demo.worker import Desk

AT_ONCE: Final = 20  # clients that connect at a time
NEWS_S: Final = 0.2
PACE_S: Final = (
    0.004  # between two places that are told at the same time of the script: it is not one crowd shouting
)
UNDER_WAY_MAX: Final = 4  # places that a subscriber has on their way; beyond it lets its turn pass
SESSION_EXPIRY_S: Final = 3_600
DEADLINE_S: Final = 120.0  # longer than any failure


class Subscriber(msgspec.Struct, frozen=True):
    number: int  # in the whole scene
    name: str
    host: str
    port: int


class Job(msgspec.Struct, frozen=True):
    subscribers: tuple[Subscriber, ...]
    places: tuple[
        tuple[float, int, float, float], ...
    ]  # seconds from the beginning, number, x and y; by time
    later: tuple[int, ...] = ()  # those who do not come at once
    keep_alive_s: int | None = None  # None: the default of the client


class _Crowd:
    def __init__(self, job: Job, desk: Desk) -> None:
        self._job = job
        self._desk = desk
        self._subscribers = {each.number: each for each in job.subscribers}
        self._clients: dict[int, AsyncClient] = {}  # of the connected subscribers
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._places: dict[int, tuple[float, float]] = {}  # where each was last, since the play began
        self._repeated = 0  # at clients that are gone
        self._moves: list[tuple[int, float, str | None]] = []  # since the last news
        self._got: list[tuple[int, float, int, int, int]] = []  # since the last news
        self._received = 0
        self._skipped = 0
        self._under_way: Counter[int] = Counter()
        self._telling: set[asyncio.Task[None]] = set()

    def _client(self, subscriber: Subscriber) -> AsyncClient:
        def on_connection(connection: Connection) -> None:
            where = connection.server if connection.up else None
            self._moves.append((subscriber.number, time.monotonic(), where))

        options: Options = {
            "client_id": subscriber.name,
            "session_expiry_s": SESSION_EXPIRY_S,
            "deadline_s": DEADLINE_S,
            "on_connection": on_connection,
        }
        if self._job.keep_alive_s is not None:
            options["keep_alive_s"] = self._job.keep_alive_s
        return AsyncClient([Server(subscriber.host, subscriber.port)], **options)

    async def come(self, numbers: Iterable[int]) -> None:
        """Have these connect, subscribe, read, and say where they are, some at a time."""
        turnstile = asyncio.Semaphore(AT_ONCE)

        async def pass_through(number: int) -> None:
            async with turnstile:
                await self._come(number)

        await asyncio.gather(*(pass_through(each) for each in numbers if each not in self._clients))

    async def _come(self, number: int) -> None:
        client = self._client(self._subscribers[number])
        await client.connect()
        inbox = await client.channel(CHANNEL, userName=client.client_id).open()
        self._clients[number] = client
        self._reading[number] = asyncio.create_task(self._read(number, inbox))
        if number in self._places:
            self._tell_place(number)

    async def go(self, numbers: Iterable[int]) -> None:
        """Have these take leave."""
        await asyncio.gather(*(self._go(each) for each in numbers if each in self._clients))

    async def _go(self, number: int) -> None:
        client, reading = self._clients.pop(number), self._reading.pop(number)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await client.close()
        self._repeated += client.duplicates
        self._moves.append((number, time.monotonic(), None))

    def check(self) -> None:
        """Raise what a reader has met with."""
        for task in self._reading.values():
            if task.done():
                task.result()

    async def leave(self) -> None:
        """Have everybody take leave."""
        await self.go([*self._clients])

    async def _read(self, number: int, inbox: Notifications) -> None:
        clock = time.monotonic
        async for each in inbox:
            self._got.append((number, clock(), each.execution, int(each.value["number"]), each.priority))

    def tell_news(self) -> None:
        moves, self._moves = self._moves, []
        got, self._got = self._got, []
        self._received += len(got)
        repeats = self._repeated + sum(client.duplicates for client in self._clients.values())
        news = {"moves": moves, "got": got, "repeats": repeats, "skipped": self._skipped}
        news["there"] = len(self._reading)
        self._desk.tell("progress", self._received, **news)

    async def walk(self, begin_s: float) -> None:
        """Tell every place at its time."""
        for at_s, number, x_m, y_m in self._job.places:
            await asyncio.sleep(max(PACE_S, begin_s + at_s - time.monotonic()))
            self._places[number] = (x_m, y_m)
            if number in self._clients:
                self._tell_place(number)

    def _tell_place(self, number: int) -> None:
        if self._under_way[number] >= UNDER_WAY_MAX:
            self._skipped += 1
            return
        self._under_way[number] += 1
        task = asyncio.create_task(self._publish_place(number, self._clients[number]))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _publish_place(self, number: int, client: AsyncClient) -> None:
        name, (x_m, y_m) = self._subscribers[number].name, self._places[number]
        try:
            await client.publish(location_topic(name), location(name, x_m, y_m), qos=1)
        except (DeadlineExceeded, ClientClosed):
            self._skipped += 1
        finally:
            self._under_way[number] -= 1

    async def rest(self) -> None:
        """Until the last places have arrived."""
        await asyncio.gather(*self._telling)


async def play(job: Job, desk: Desk) -> None:
    crowd = _Crowd(job, desk)
    later = set(job.later)
    try:
        await crowd.come(each.number for each in job.subscribers if each.number not in later)
        crowd.tell_news()
        desk.tell("ready")
        async with asyncio.TaskGroup() as tasks:
            obeying = tasks.create_task(_obey(crowd, desk))
            while await desk.pause(NEWS_S):
                crowd.check()
                crowd.tell_news()
            obeying.cancel()
    finally:
        await crowd.leave()
    crowd.tell_news()
    desk.tell("done")


async def _obey(crowd: _Crowd, desk: Desk) -> None:
    walking: asyncio.Task[None] | None = None
    try:
        while True:
            order: dict[str, Any] = await desk.orders.get()
            if "begin_s" in order:
                walking = asyncio.create_task(crowd.walk(order["begin_s"]))
            elif "come" in order:
                await crowd.come(order["come"])
            elif "go" in order:
                await crowd.go(order["go"])
            elif "rest" in order and walking is not None:
                walking.cancel()
                await asyncio.gather(walking, return_exceptions=True)
                await crowd.rest()
    finally:
        if walking is not None:
            walking.cancel()
