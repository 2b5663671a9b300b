"""Clients that come are told of together, and a clean start ends what was stored, and only that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, cast

import pytest

from tocsin.broker.delivery import announcements as arrivals
from tocsin.broker.delivery.announcements import ARRIVALS, Arrivals
from tocsin.broker.delivery.session_store import Sessions
from tocsin.broker.survival.client_state import ConnectedClients
from tocsin.core.access.ownership import Claim
from tocsin.core.delivery.stored_session import session_key
from tocsin.core.survival.announcements import FORGET_US, Arrival, ArrivalClock
from tocsin.ports import KEYS_MAX, BusMessage, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore

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
            clock=ArrivalClock(),
            clients=cast(ConnectedClients[Any], None),  # nobody asks who is in
            ended=self._ended,
            spawn=self._spawn,
            failed=self._failed,
            clock_us=lambda: self.now_us,
        )

    def _failed(self, error: BaseException) -> None:
        raise error

    async def _ended(self, clients: Iterable[str]) -> None:
        for client in clients:
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
async def heard(broker: Broker) -> AsyncIterator[AsyncIterator[BusMessage]]:
    async with (
        asyncio.timeout(DEADLINE_S),
        broker.store.bus.subscribe(broker.arrivals.subject) as deliveries,
    ):
        yield deliveries


def claimed(client: str, *, broker: str = "north-1", came_us: int = 7) -> Claim:
    return Claim(client, "ann", broker, came_us)


def word(*arrivals: Arrival) -> BusMessage:
    return BusMessage("x", ARRIVALS.write(arrivals))


def told(delivery: BusMessage) -> list[str]:
    """The clients of whom a word tells."""
    return [each.claim.client for each in ARRIVALS.read(delivery.payload)]


async def test_who_comes_first_is_told_of_alone_and_who_comes_next_together(broker: Broker) -> None:
    async with heard(broker) as deliveries:
        broker.arrivals.tell(claimed("first"), back=True)
        assert told(await anext(deliveries)) == ["first"]
        for client in ("a", "b", "c d"):
            broker.arrivals.tell(claimed(client), back=True)
        assert told(await anext(deliveries)) == ["a", "b", "c d"]


async def test_nobody_is_told_of_a_client_that_only_knocks(broker: Broker) -> None:
    async with heard(broker) as deliveries:
        broker.arrivals.came("knocks")
        broker.arrivals.tell(claimed("is in"), back=True)
        assert told(await anext(deliveries)) == ["is in"]


async def test_nobody_is_told_of_a_client_that_has_gone_again(broker: Broker) -> None:
    async with heard(broker) as deliveries:
        broker.arrivals.tell(claimed("goes"), back=True)
        broker.arrivals.went("goes")
        broker.arrivals.tell(claimed("stays"), back=True)
        assert told(await anext(deliveries)) == ["stays"]


async def test_names_too_long_for_one_message_are_told_in_several(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "PAYLOAD_MAX_BYTES", 1_000)
    names = [letter * 12 for letter in "abc"]
    async with heard(broker) as deliveries:
        for name in names:
            broker.arrivals.tell(claimed(name), back=True)
        assert [told(await anext(deliveries)) for _ in names] == [[name] for name in names]


def test_a_broker_takes_its_own_word_for_nobody_elsewhere(broker: Broker) -> None:
    own = [Arrival(claimed("a"), True), Arrival(claimed("b"), False)]
    others = [Arrival(claimed("a", broker="south-1"), True), Arrival(claimed("b", broker="south-1"), False)]
    assert broker.arrivals.elsewhere(word(*own)) == []
    assert broker.arrivals.elsewhere(word(*own, *others)) == others
    assert broker.arrivals.elsewhere(BusMessage("x", b"nonsense")) == []


async def test_a_word_that_is_later_than_its_client_counts_no_more(broker: Broker) -> None:
    broker.arrivals.came("me")
    late, next_one = (Arrival(claimed("me", broker="south-1", came_us=us), True) for us in (6, 8))
    assert broker.arrivals.elsewhere(word(late)) == []
    assert broker.arrivals.elsewhere(word(next_one)) == [next_one]
    broker.arrivals.went("me")
    assert broker.arrivals.elsewhere(word(late)) == [late]


async def test_a_clean_start_ends_the_stored_session_and_not_the_next_one(broker: Broker) -> None:
    await broker.take("me")
    broker.arrivals.begins_anew("me", "")
    assert not await broker.take("me"), "the old one is gone before the new one is taken"
    await asyncio.sleep(2 * FORGET_US / 1e6)
    assert await broker.stored("me"), "and nothing is left that would end the new one"


async def test_a_clean_start_waits_for_the_last_connections_store_write(broker: Broker) -> None:
    ending = broker.ending["me"] = asyncio.Event()
    broker.arrivals.begins_anew("me", "")
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
        broker.arrivals.begins_anew("me", "")
        broker.arrivals.forget()
        await a_while()
    settled = asyncio.create_task(broker.arrivals.settled("me"))
    await a_while()
    assert not settled.done()
    ending.set()
    async with asyncio.timeout(DEADLINE_S):
        await settled


async def test_many_clean_starts_at_once_are_all_heeded(broker: Broker) -> None:
    clients = [f"c{number}" for number in range(2 * KEYS_MAX + 1)]
    for client in clients:
        await broker.take(client)
    for client in clients:
        broker.arrivals.begins_anew(client, "")
    async with asyncio.timeout(DEADLINE_S):
        for client in clients:
            await broker.arrivals.settled(client)
            assert not await broker.stored(client)
