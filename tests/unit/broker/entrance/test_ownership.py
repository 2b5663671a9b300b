"""Client ids are claimed before anybody is let in: who has one for another user objects, and who is silent later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.unit.broker.harness import until
from tocsin.broker.entrance.ownership import REFUSED, Ownership
from tocsin.core.access.ownership import Claim
from tocsin.errors import DeadlineExceeded
from tocsin.ports import BusMessage
from tocsin.store.memory.store import MemoryServer, MemoryStore

NAMES = ("north-1", "south-1")


class Broker:
    """One that has clients."""

    def __init__(self, name: str, store: MemoryStore, *, asks: bool = True) -> None:
        self.inside: dict[str, Claim] = {}
        self.cut_off = False
        self.expelled: list[str] = []
        self.sessions: dict[str, str] = {}  # client → owner
        self.store_away = False
        self.name = name
        self.ownership = Ownership(
            store.bus,
            network="net",
            broker=name,
            others=NAMES,
            asks=asks,
            holder=self._holder,
            expel=self._expel,
            isolated=self,
            stored=self._stored,
            answer_s=1.0,
            again_s=0.01,
        )
        self.serving = store.bus.serve(self.ownership.subject(name), self.ownership.answer)

    async def _stored(self, client: str) -> str | None:
        if self.store_away:
            raise DeadlineExceeded("the store", 1.0)
        return self.sessions.get(client)

    def _holder(self, client: str) -> Claim | None:
        return self.inside.get(client)

    def owner_of(self, client: str) -> str | None:
        return self.sessions.get(client)

    def _expel(self, client: str) -> None:
        del self.inside[client]
        self.expelled.append(client)

    async def comes(self, client: str, owner: str, came_us: int) -> bool:
        """Whether a client is let in."""
        claim = Claim(client, owner, self.name, came_us)
        _, known = await self.ownership.owner_of(client)
        if not await self.ownership.claim(claim, store_knows=known):
            return False
        self.inside[client] = msgspec.structs.replace(claim, inside=True)
        return True


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore(MemoryServer())
    yield made
    await made.close()


@contextlib.asynccontextmanager
async def running(*brokers: Broker) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each.ownership.run()) for each in brokers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_another_users_client_at_another_broker_stays_and_who_knocks_is_refused(
    store: MemoryStore,
) -> None:
    north, south = Broker("north-1", store), Broker("south-1", store)
    async with north.serving, south.serving:
        assert await north.comes("me", "alice", 5)
        assert not await south.comes("me", "mallory", 1)
        assert not await south.comes("me", "", 2)
        assert await south.comes("me", "alice", 9), "her own: that is a takeover"
        assert await south.comes("other", "mallory", 9)
    assert north.expelled == south.expelled == []


async def test_of_two_that_knock_at_once_one_is_let_in(store: MemoryStore) -> None:
    north, south = Broker("north-1", store), Broker("south-1", store)
    async with north.serving, south.serving:
        for round_ in range(20):
            client, first = f"c{round_}", round_ % 2
            outcomes = await asyncio.gather(
                north.comes(client, "alice", 5 + first), south.comes(client, "mallory", 6 - first)
            )
            assert sum(outcomes) == 1, (round_, outcomes)


async def test_many_that_come_at_once_are_asked_about_together(store: MemoryStore) -> None:
    north, south = Broker("north-1", store), Broker("south-1", store)
    questions: list[int] = []
    answer = south.ownership.answer

    async def counted(request: BusMessage) -> bytes:
        questions.append(len(request.payload))
        return await answer(request)

    async with north.serving, store.bus.serve(south.ownership.subject("south-1"), counted):
        assert all(await asyncio.gather(*(north.comes(f"c{n}", "alice", 1) for n in range(400))))
    assert len(questions) <= 3


async def test_a_silent_broker_keeps_nobody_out_and_objects_on_its_return(
    store: MemoryStore,
) -> None:
    north, south = Broker("north-1", store), Broker("south-1", store)
    async with south.serving, running(south):
        south.inside["hers"] = Claim("hers", "mallory", "south-1", 1, inside=True)
        north.inside["me"] = Claim("me", "alice", "north-1", 5, inside=True)
        assert await south.comes("me", "mallory", 7), "north-1 cannot be reached"
        assert await south.comes("free", "mallory", 7)
        async with north.serving:
            await until(lambda: south.expelled == ["me"])
    assert set(south.inside) == {"hers", "free"}
    assert north.expelled == []


async def test_a_client_admitted_without_the_store_yields_to_a_stored_session(
    store: MemoryStore,
) -> None:
    north, south = Broker("north-1", store), Broker("south-1", store)
    async with north.serving, south.serving, running(south):
        south.sessions["me"] = "alice"
        south.store_away = True
        assert await south.comes("me", "mallory", 7)
        south.store_away = False
        await until(lambda: south.expelled == ["me"])


async def test_a_stored_sessions_owner_skips_the_inquiry_and_evicts_the_holder(
    store: MemoryStore,
) -> None:
    south = Broker("south-1", store)
    south.inside["me"] = Claim("me", "mallory", "south-1", 1, inside=True)
    assert not south.ownership.objects(Claim("me", "alice", "north-1", 9, stored=True))
    assert south.expelled == ["me"]


async def test_an_unreadable_question_is_answered_with_no_objection(store: MemoryStore) -> None:
    broker = Broker("north-1", store)
    answer = await broker.ownership.answer(BusMessage("x", b"nonsense"))
    assert REFUSED.read(answer) == []
