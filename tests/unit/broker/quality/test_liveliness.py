"""Who is told alive, when: a word about a publisher has to stay true whatever fails next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from mqtt5 import ConnectPacket, PublishPacket

from tests.unit.broker.coordination import coordinator
from tests.unit.broker.harness import NETWORK, Door, until
from tests.unit.broker.talk import lasting
from tocsin.config import Limits
from tocsin.core.delivery.stored_session import decode_session, session_key
from tocsin.model.quality import Life, LifeState
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.quality import WORD, Lives, words_subject

LEASED = [("offer.lease", "5s")]


class Ears:
    """Hears what is said of publishers, and looks at once what their stored sessions know."""

    def __init__(self, store: MemoryStore, door: Door) -> None:
        self._store = store
        self._table = door.parts.sessions.table
        self.alive: list[tuple[str, bool]] = []  # who, and whether its session has the stream

    async def listen(self) -> None:
        async with self._store.bus.subscribe(words_subject(NETWORK)) as words:
            async for word in words:
                said = WORD.read(word.payload)
                for life in said.rows if isinstance(said, Lives) else ():
                    if life.state is LifeState.ALIVE:
                        self.alive.append((life.client, await self._knows(life)))

    async def _knows(self, life: Life) -> bool:
        cell = await self._table.get(session_key(life.client), fresh=True)
        session = None if cell is None else decode_session(cell.value)
        return session is not None and life.topic in session.streams


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    server = MemoryServer()
    async with (
        coordinator(MemoryStore(server)),
        Door(Limits(), store=MemoryStore(server), takes_part=True) as here,
    ):
        yield here


@pytest.fixture
async def ears(door: Door) -> AsyncIterator[Ears]:
    found = Ears(door.store, door)
    listening = asyncio.create_task(found.listen())
    await asyncio.sleep(0)
    yield found
    listening.cancel()


async def test_nobody_is_told_alive_before_its_session_has_the_stream(door: Door, ears: Ears) -> None:
    publisher = await door.peer(connect=lasting("p", clean=True))
    publisher.send(PublishPacket("life/1", b"1", user_properties=LEASED))
    await until(lambda: bool(ears.alive))
    assert ears.alive[0] == ("p", True)


async def test_a_second_publisher_of_a_topic_is_told_alive_alike(door: Door, ears: Ears) -> None:
    first = await door.peer(connect=lasting("p", clean=True))
    first.send(PublishPacket("life/1", b"1", user_properties=LEASED))
    await until(lambda: bool(ears.alive))
    second = await door.peer(connect=lasting("q", clean=True))
    second.send(PublishPacket("life/1", b"2"))
    await until(lambda: len(ears.alive) > 1)
    assert ears.alive[1] == ("q", True)


async def test_a_publisher_without_a_session_is_told_alive_at_once(door: Door, ears: Ears) -> None:
    publisher = await door.peer(connect=ConnectPacket("p", clean_start=True))
    publisher.send(PublishPacket("life/1", b"1", user_properties=LEASED))
    await until(lambda: bool(ears.alive))
    assert ears.alive[0] == ("p", False)
