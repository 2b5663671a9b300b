"""What a broker reads of the message log, on the store in memory: what is wanted, from when on, and how far."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tocsin.broker.delivery.message_log import PASSED_OVER_BYTES, MessageLog
from tocsin.core.delivery.reading import FAR, Mode
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.subjects import messages_log, subject_of
from tocsin.ports import Entry, Log, Record
from tocsin.store.memory.store import MemorySelection, MemoryServer, MemoryStore

DEADLINE_S = 10.0


class Broker:
    """A broker's message log, and what it has dispatched."""

    def __init__(self, log: Log, mode: Mode = "wanted") -> None:
        self.got: list[str] = []
        self.wills: list[tuple[str, str]] = []
        self.message_log = MessageLog(
            log,
            "net",
            records_max=8,
            pressure=lambda held: None,
            mode=mode,
            keep_bytes=1 << 30,
            will_noted=lambda client, will: self.wills.append((client, will)),
        )

    def dispatch(self, entry: Entry, publication: Publication) -> bool:
        self.got.append(publication.topic)
        return publication.topic != "vain"

    async def until(self, position: int) -> None:
        """Return when everything up to there is dispatched."""
        reached = asyncio.Event()
        self.message_log.when_dispatched(position, reached.set)
        async with asyncio.timeout(DEADLINE_S):
            await reached.wait()


async def append(log: Log, *topics: str, critical: bool = False) -> int:
    end = await log.last()
    records = [
        Record(
            subject_of(topic, "net", critical=critical),
            encode_publication(Publication(topic, b"", 1, "p")),
            f"{end}-{number}",
        )
        for number, topic in enumerate(topics)
    ]
    return (await log.append(records))[-1]


@contextlib.asynccontextmanager
async def running(mode: Mode = "wanted") -> AsyncIterator[tuple[Broker, Log]]:
    store = MemoryStore(MemoryServer())
    log = await store.log(messages_log("net", None, None))
    broker = Broker(log, mode)
    await broker.message_log.open()
    tasks = [
        asyncio.create_task(broker.message_log.follow(broker.dispatch)),
        asyncio.create_task(broker.message_log.commit_all()),
    ]
    try:
        yield broker, log
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()


async def test_only_what_is_wanted_is_read_and_the_tail_goes_on() -> None:
    async with running() as (broker, log):
        broker.message_log.want("a/+")
        await broker.message_log.cover(["a/+"])
        await broker.until(await append(log, "a/1", "b", "a/2", "c"))
        assert broker.got == ["a/1", "a/2"]
        assert (broker.message_log.tail, broker.message_log.passed_over) == (4, 2)


async def test_everything_is_read_where_the_setting_says_so() -> None:
    async with running("all") as (broker, log):
        await broker.until(await append(log, "a", "vain"))
        assert broker.got == ["a", "vain"]
        assert (broker.message_log.in_vain, broker.message_log.passed_over) == (1, 0)


async def test_a_filter_is_covered_from_where_the_log_ended_when_it_came() -> None:
    async with running() as (broker, log):
        await broker.message_log.cover(["other"])
        await append(log, "a", "a", "a")
        broker.message_log.want("a")
        assert broker.message_log.reading.horizon(["a"]) == FAR
        since = await broker.message_log.cover(["a"])
        assert since == 3
        await broker.until(await append(log, "a"))
        assert broker.message_log.tail == 4 and "a" in broker.got
        assert broker.message_log.reading.horizon(["a"]) == 4


async def test_who_stops_waiting_for_a_filter_leaves_nothing_behind() -> None:
    async with running() as (broker, _):
        waiting = asyncio.create_task(broker.message_log.cover(["a"]))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await broker.message_log.cover(["b"])
        assert not broker.message_log._uncovered


async def test_a_second_reader_takes_over_without_a_gap_or_a_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever each of them has brought by then: the second one lags, and the first goes on meanwhile."""
    items, held = MemorySelection.items, asyncio.Event()

    async def late(selection: MemorySelection):  # type: ignore[no-untyped-def]
        if any(each.endswith(".b") for each in selection._patterns):
            await held.wait()
        async for item in items(selection):
            yield item

    monkeypatch.setattr(MemorySelection, "items", late)
    async with running() as (broker, log):
        broker.message_log.want("a")
        await broker.message_log.cover(["a"])
        broker.message_log.want("b")
        covering = asyncio.create_task(broker.message_log.cover(["b"]))
        await broker.until(await append(log, "a", "b", "a"))
        assert broker.got == ["a", "a"]
        held.set()
        assert await covering == 3
        await broker.until(await append(log, "a", "b"))
        assert broker.got == ["a", "a", "a", "b"]


async def test_a_promised_filter_is_read_from_where_the_log_was_read_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items, there = MemorySelection.items, asyncio.Event()
    there.set()

    async def cut_off(selection: MemorySelection):  # type: ignore[no-untyped-def]
        await there.wait()
        async for item in items(selection):
            yield item

    monkeypatch.setattr(MemorySelection, "items", cut_off)
    async with running() as (broker, log):
        broker.message_log.want("a")
        await broker.message_log.cover(["a"])
        there.clear()
        broker.message_log.want("b")
        assert broker.message_log.promise(["b"]) == 0
        await append(log, "a", "b")
        await asyncio.sleep(0.01)
        assert broker.got == [] and broker.message_log.tail == 0, "nothing moves before it is read, too"
        there.set()
        await broker.until(2)
        assert broker.got == ["a", "b"]


async def test_every_broker_reads_critical_messages() -> None:
    async with running() as (broker, log):
        await broker.message_log.cover(["other"])
        await broker.until(await append(log, "alarm", critical=True))
        assert broker.got == ["alarm"] and broker.message_log.critical_tail == 1


async def test_a_will_is_noted_where_its_topic_is_not_read() -> None:
    async with running() as (broker, log):
        elsewhere = Broker(log)
        committing = asyncio.create_task(elsewhere.message_log.commit_all())
        await broker.message_log.cover(["other"])
        stored: list[int] = []
        will = Publication("gone/c", b"bye", 1, "c")
        elsewhere.message_log.commit(will, "c.1.will", lambda error, position: stored.append(position))
        async with asyncio.timeout(DEADLINE_S):
            while not broker.wills:
                await asyncio.sleep(0)
        assert (stored, broker.wills, broker.got) == ([1], [("c", "c.1.will")], [])
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)


async def test_what_is_passed_over_makes_metadata_due_again() -> None:
    async with running() as (broker, log):
        await broker.message_log.cover(["other"])
        await broker.until(await append(log, *(["a"] * 10)))
        assert broker.message_log._references.taken == 10 * PASSED_OVER_BYTES
