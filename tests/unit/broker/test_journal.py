"""The broker's side of the message log, on the store in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from tocsin.broker.journal import Journal
from tocsin.errors import OutcomeUnknown, StoreFull, TocsinError
from tocsin.model.publication import Publication
from tocsin.model.subjects import messages_log
from tocsin.ports import Entry, Log, Record
from tocsin.store.memory import MemoryServer, MemoryStore

DEADLINE_S = 10.0


class Troubled:
    """A log whose appends fail as told, before or after they took effect."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.before: list[TocsinError] = []
        self.after: list[TocsinError] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.batches: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
        await self.gate.wait()
        if self.before:
            raise self.before.pop(0)
        positions = await self._log.append(records, expected=expected)
        self.batches.append(len(records))
        if self.after:
            raise self.after.pop(0)
        return positions


class Bench:
    def __init__(self, log: Troubled) -> None:
        self.log = log
        self.dispatched: list[tuple[int, bytes]] = []
        self.pressure: list[bool] = []
        self.outcomes: list[TocsinError | None] = []
        self.positions: list[int] = []  # that were told with them
        self.journal = Journal(
            log,  # type: ignore[arg-type]
            "net",
            records_max=8,
            dispatch=self._dispatch,
            pressure=self.pressure.append,
        )

    def _dispatch(self, entry: Entry, publication: Publication) -> None:
        self.dispatched.append((entry.position, publication.payload))

    def _stored(self, error: TocsinError | None, position: int) -> None:
        self.outcomes.append(error)
        self.positions.append(position)

    def commit(self, payload: bytes, topic: str = "a", record_id: str = "", *, priority: str = "") -> None:
        name = record_id or f"{topic}:{payload.decode()}"
        said = (("priority", priority),) if priority else ()
        publication = Publication(topic, payload, 1, "me", user_properties=said)
        self.journal.commit(publication, name, self._stored)

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # type: ignore[operator]
                await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(**spec: object) -> AsyncIterator[Bench]:
    store = MemoryStore(MemoryServer())
    log = Troubled(await store.log(messages_log("net", None, None)))
    bench = Bench(log)
    await bench.journal.open()
    tasks = [asyncio.create_task(bench.journal.commit_all()), asyncio.create_task(bench.journal.follow())]
    try:
        yield bench
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()


async def test_a_message_is_acknowledged_when_it_is_durable_and_then_dispatched() -> None:
    async with running() as bench:
        bench.log.gate.clear()
        bench.commit(b"one")
        await asyncio.sleep(0)
        assert bench.outcomes == []
        bench.log.gate.set()
        await bench.until(lambda: bench.dispatched)
        assert bench.outcomes == [None]
        assert bench.dispatched == [(1, b"one")]
        assert bench.journal.tail == 1


async def test_what_gathers_during_an_append_is_one_batch() -> None:
    async with running() as bench:
        bench.log.gate.clear()
        bench.commit(b"0")
        await asyncio.sleep(0)
        for number in range(1, 6):
            bench.commit(b"%d" % number)
        bench.log.gate.set()
        await bench.until(lambda: len(bench.dispatched) == 6)
        assert bench.log.batches == [1, 5]
        assert [payload for _, payload in bench.dispatched] == [b"%d" % number for number in range(6)]
        assert bench.positions == [1, 2, 3, 4, 5, 6], "each is told its own position"


async def test_an_append_whose_answer_was_lost_is_repeated_and_written_once() -> None:
    async with running() as bench:
        bench.log.after.append(OutcomeUnknown("append", 1.0))
        bench.commit(b"one")
        await bench.until(lambda: bench.outcomes)
        await bench.until(lambda: bench.dispatched)
        assert bench.outcomes == [None]
        assert bench.dispatched == [(1, b"one")]


async def test_a_full_store_is_told_to_its_publishers_and_the_next_message_is_tried() -> None:
    async with running() as bench:
        bench.log.before.append(StoreFull("append", "disk"))
        bench.commit(b"one")
        await bench.until(lambda: bench.outcomes)
        assert isinstance(bench.outcomes[0], StoreFull) and bench.positions == [0]
        bench.commit(b"two")
        await bench.until(lambda: bench.dispatched)
        assert bench.dispatched == [(1, b"two")]


async def test_publishers_are_held_back_and_let_go_once_each() -> None:
    async with running() as bench:
        bench.log.gate.clear()
        for number in range(12):
            bench.commit(b"%d" % number)
        assert bench.pressure == [True]
        bench.log.gate.set()
        await bench.until(lambda: len(bench.dispatched) == 12)
        assert bench.pressure == [True, False]


@pytest.mark.parametrize("filters", [["a/#", "b"], ["a", "a/+", "a/#", "b", "c/#"]])
async def test_a_read_gives_what_matches_in_order_and_says_where_to_go_on(filters: list[str]) -> None:
    async with running() as bench:
        for number, topic in enumerate(["a", "b", "c/x", "a/1", "b/2", "a"]):
            bench.commit(b"%d" % number, topic)
        await bench.until(lambda: len(bench.dispatched) == 6)
        batch = await bench.journal.read(filters, 1)
        wanted = {1, 2, 4, 6} | ({3, 5} if len(filters) > 2 else set())
        assert {entry.position for entry in batch.entries} == wanted
        assert [entry.position for entry in batch.entries] == sorted(wanted)
        assert batch.next > bench.journal.tail


async def test_critical_messages_are_read_without_the_others_and_the_others_without_them() -> None:
    async with running() as bench:
        for number, topic in enumerate(["a", "a", "b", "a/x", "a", "b"]):
            bench.commit(b"%d" % number, topic, priority="8" if number in (1, 3, 5) else "")
        await bench.until(lambda: len(bench.dispatched) == 6)
        assert [position for position, _ in bench.dispatched] == [1, 2, 3, 4, 5, 6], "they come as one"
        for filters in (["a/#"], ["a", "a/+", "a/#", "a/x", "a/x/#"]):
            read = {
                critical: {
                    each.position
                    for each in (await bench.journal.read(filters, 1, critical=critical)).entries
                }
                for critical in (True, False, None)
            }
            assert read[True] >= {2, 4} and read[False] >= {1, 5}
            assert read[True] & read[False] == set() and read[None] == read[True] | read[False]
        batch = await bench.journal.read(["a"], 3, critical=True)
        assert batch.entries == [] and batch.next == 7, "all is known that there is"


async def test_it_is_known_up_to_where_there_may_be_critical_messages() -> None:
    async with running() as bench:
        bench.commit(b"0")
        await bench.until(lambda: bench.journal.tail == 1)
        assert bench.journal.critical_tail == 0
        bench.commit(b"1", priority="critical")
        bench.commit(b"2")
        await bench.until(lambda: bench.journal.tail == 3)
        assert bench.journal.critical_tail == 2
        fresh = Bench(bench.log)
        await fresh.journal.open()
        assert fresh.journal.critical_tail == fresh.journal.tail == 3, "where they are is not known"


async def test_a_critical_entry_is_found_by_its_id_too() -> None:
    async with running() as bench:
        bench.commit(b"0", record_id="id.0", priority="9")
        await bench.until(lambda: bench.journal.tail == 1)
        assert await bench.journal.has("id.0", "a", 0)


async def test_an_entry_is_found_by_its_id_on_its_topic_behind_a_position() -> None:
    async with running() as bench:
        for number in range(3):
            bench.commit(b"%d" % number, record_id=f"id.{number}")
        await bench.until(lambda: bench.journal.tail == 3)
        assert await bench.journal.has("id.1", "a", 0)
        assert await bench.journal.has("id.1", "a", 1)
        assert not await bench.journal.has("id.1", "a", 2), "it would have to be behind that"
        assert not await bench.journal.has("id.1", "b", 0)
        assert not await bench.journal.has("id.9", "a", 0)


async def test_an_entry_is_looked_for_in_what_is_still_kept() -> None:
    async with running() as bench:
        for number in range(3):
            bench.commit(b"%d" % number, record_id=f"id.{number}")
        await bench.until(lambda: bench.journal.tail == 3)
        await bench.log.trim(before=3)  # type: ignore[operator]
        assert await bench.journal.has("id.2", "a", 0)
        assert not await bench.journal.has("id.1", "a", 0)
