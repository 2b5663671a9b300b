"""Clients that come are told of together, and a clean start ends what was stored, and only that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from tocsin.broker import arrivals
from tocsin.broker.arrivals import Arrivals
from tocsin.broker.sessions import Sessions
from tocsin.core.stored_session import session_key
from tocsin.ports import Delivery, TableSpec
from tocsin.store.memory import MemoryServer, MemoryStore

DEADLINE_S = 10.0


class Broker:
    def __init__(self, name: str, store: MemoryStore, sessions: Sessions) -> None:
        self.store = store
        self.sessions = sessions
        self.now_us = 7
        self.tasks: set[asyncio.Task[None]] = set()
        self.ending: dict[str, asyncio.Event] = {}  # clients whose last connection is not stored yet
        self.arrivals = Arrivals(
            store.bus,
            sessions,
            network="net",
            broker=name,
            ended=self._ended,
            spawn=self._spawn,
            clock_us=lambda: self.now_us,
        )

    async def _ended(self, client: str) -> None:
        if client in self.ending:
            await self.ending.pop(client).wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def take(self, client: str) -> bool:
        """A session of the client's, to last; whether it is an old one."""
        await self.arrivals.settled(client)
        taken = await self.sessions.take(client, owner="", clean=False, expiry_s=60, tail=0)
        assert taken is not None
        return taken[2]

    async def stored(self, client: str) -> bool:
        return await self.sessions.table.get(session_key(client)) is not None


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("sessions"))
    made = Broker("north-1", store, Sessions(table, store.bus, network="net", broker="north-1"))
    yield made
    for task in tuple(made.tasks):
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    await store.close()


async def a_while() -> None:
    """As many ticks as anything here takes that does not wait."""
    for _ in range(50):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def heard(broker: Broker) -> AsyncIterator[AsyncIterator[Delivery]]:
    async with (
        asyncio.timeout(DEADLINE_S),
        broker.store.bus.subscribe(broker.arrivals.subject) as deliveries,
    ):
        yield deliveries


async def test_who_comes_first_is_told_of_alone_and_who_comes_next_together(broker: Broker) -> None:
    async with heard(broker) as deliveries:
        broker.arrivals.came("first", back=True)
        assert (await anext(deliveries)).payload == b"north-1\0+7 first"
        for client in ("a", "b", "c d"):
            broker.arrivals.came(client, back=True)
        assert (await anext(deliveries)).payload == b"north-1\0+7 a\0+7 b\0+7 c d"


async def test_nobody_is_told_of_a_client_that_has_gone_again(broker: Broker) -> None:
    async with heard(broker) as deliveries:
        broker.arrivals.came("goes", back=True)
        broker.arrivals.went("goes")
        broker.arrivals.came("stays", back=True)
        assert (await anext(deliveries)).payload == b"north-1\0+7 stays"


async def test_names_too_long_for_one_message_are_told_in_several(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "PAYLOAD_MAX_BYTES", 40)
    names = [letter * 12 for letter in "abc"]
    async with heard(broker) as deliveries:
        for name in names:
            broker.arrivals.came(name, back=True)
        found: list[str] = []
        while len(found) < 3:
            payload = (await anext(deliveries)).payload
            assert len(payload) <= 40
            found += payload.decode().split("\0")[1:]
        assert found == [f"+7 {name}" for name in names]


def test_a_broker_takes_its_own_word_for_nobody_elsewhere(broker: Broker) -> None:
    assert broker.arrivals.elsewhere(Delivery("x", b"north-1\x00+7 a\x00-7 b")) == []
    assert broker.arrivals.elsewhere(Delivery("x", b"south-1\x00+7 a\x00-7 b\x00+7 - c\x00nonsense")) == [
        ("a", True, "south-1"),
        ("b", False, "south-1"),
        ("- c", True, "south-1"),
    ]


async def test_a_word_that_is_later_than_its_client_counts_no_more(broker: Broker) -> None:
    broker.arrivals.came("me", back=True)
    late, next_one = Delivery("x", b"south-1\0+6 me"), Delivery("x", b"south-1\0+8 me")
    assert broker.arrivals.elsewhere(late) == []
    assert broker.arrivals.elsewhere(next_one) == [("me", True, "south-1")]
    broker.arrivals.went("me")
    assert broker.arrivals.elsewhere(late) == [("me", True, "south-1")]


async def test_a_clean_start_ends_the_stored_session_and_not_the_next_one(broker: Broker) -> None:
    await broker.take("me")
    broker.arrivals.came_clean("me", "")
    assert not await broker.take("me"), "the old one is gone before the new one is taken"
    await asyncio.sleep(2 * arrivals.FORGET_S)
    assert await broker.stored("me"), "and nothing is left that would end the new one"


async def test_a_clean_start_waits_for_what_the_last_connection_still_has_to_store(broker: Broker) -> None:
    ending = broker.ending["me"] = asyncio.Event()
    broker.arrivals.came_clean("me", "")
    broker.arrivals.forget()
    await a_while()
    await broker.sessions.take("me", owner="", clean=False, expiry_s=60, tail=0)
    ending.set()
    async with asyncio.timeout(DEADLINE_S):
        await broker.arrivals.settled("me")
    assert not await broker.stored("me")


async def test_nothing_is_settled_while_an_earlier_clean_start_is_not(broker: Broker) -> None:
    ending = broker.ending["me"] = asyncio.Event()
    for _ in range(2):
        broker.arrivals.came_clean("me", "")
        broker.arrivals.forget()
        await a_while()
    settled = asyncio.create_task(broker.arrivals.settled("me"))
    await a_while()
    assert not settled.done()
    ending.set()
    async with asyncio.timeout(DEADLINE_S):
        await settled


async def test_many_clean_starts_at_once_are_all_heeded(broker: Broker) -> None:
    clients = [f"c{number}" for number in range(3 * arrivals.DISCARDS_MAX)]
    for client in clients:
        await broker.take(client)
    for client in clients:
        broker.arrivals.came_clean(client, "")
    async with asyncio.timeout(DEADLINE_S):
        for client in clients:
            await broker.arrivals.settled(client)
            assert not await broker.stored(client)
