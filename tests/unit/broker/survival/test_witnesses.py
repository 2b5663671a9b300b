"""Before a copy's will is published the other brokers are asked whether it is settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tocsin.broker.survival.witnesses import WILLS, Witnesses
from tocsin.ports import BusMessage
from tocsin.runtime.machines.tasks import Tasks
from tocsin.store.memory.store import MemoryServer, MemoryStore

NAMES = ("north-1", "north-2", "south-1")


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore(MemoryServer())
    yield made
    await made.close()


def witnesses(store: MemoryStore, broker: str, *settled: str) -> Witnesses:
    return Witnesses(
        store.bus,
        set(settled).__contains__,
        network="net",
        broker=broker,
        others=NAMES,
        spawn=Tasks("witnesses", broken).spawn,
        answer_s=0.2,
    )


def broken(error: BaseException) -> None:
    raise error


async def test_one_that_knows_suffices_and_one_that_is_gone_knows_nothing(store: MemoryStore) -> None:
    asking, knowing = witnesses(store, "north-1", "own"), witnesses(store, "south-1", "a")
    async with store.bus.serve(knowing.subject, knowing.answer):
        known = await asyncio.gather(*(asking.know_settled(each) for each in ("a", "b", "a", "own", "")))
    assert known == [True, False, True, True, False]


async def test_wills_that_fall_due_together_are_asked_about_together(store: MemoryStore) -> None:
    asking, questions = witnesses(store, "north-1"), list[BusMessage]()

    async def answer(request: BusMessage) -> bytes:
        questions.append(request)
        return b"nonsense"

    async with store.bus.serve("net.wills.south-1", answer):
        known = await asyncio.gather(*(asking.know_settled(f"w{each}") for each in range(500)))
    assert len(questions) == 1 and not any(known)


async def test_an_unreadable_question_is_answered_with_nothing(store: MemoryStore) -> None:
    asked = witnesses(store, "north-1", "a")
    assert WILLS.read(await asked.answer(BusMessage("x", b"nonsense"))) == []


async def test_one_that_only_hangs_is_asked_again(store: MemoryStore) -> None:
    asking, asked = witnesses(store, "north-1"), 0
    knowing = witnesses(store, "south-1", "a")

    async def hangs(request: BusMessage) -> bytes:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.Event().wait()
        return await knowing.answer(request)

    async with store.bus.serve(knowing.subject, hangs):
        assert await asking.know_settled("a")
    assert asked == 2
