"""Retained messages: one table, and a copy in every broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from tocsin.broker.retained.table import TABLE, Retained
from tocsin.core.machine import Watched
from tocsin.core.retained.kept import Kept
from tocsin.errors import StoreFull
from tocsin.model.publication import Publication
from tocsin.model.subjects import tokens_of
from tocsin.ports import Change, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore

DEADLINE_S = 10.0


@contextlib.asynccontextmanager
async def two_brokers(topics_max: int = 100) -> AsyncIterator[tuple[Retained, Retained]]:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("retained"))
    brokers = Retained(table, topics_max), Retained(table, topics_max)
    tasks = [asyncio.create_task(each.watch()) for each in brokers]
    try:
        yield brokers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()


def payloads(retained: Retained, topic_filter: str = "#") -> list[bytes]:
    return sorted(kept.publication.payload for kept in retained.matching(topic_filter))


async def until_equal(retained: Retained, expected: list[bytes]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while payloads(retained) != expected:
            await asyncio.sleep(0)


async def test_a_message_retained_at_one_broker_is_known_at_the_other() -> None:
    async with two_brokers() as (one, other):
        await one.put(Publication("a/b", b"x", 1, "me"))
        assert payloads(one, "a/+") == [b"x"], "at once where it was published"
        await until_equal(other, [b"x"])


async def test_the_newest_counts_and_an_empty_one_removes() -> None:
    async with two_brokers() as (one, other):
        for payload in (b"1", b"2", b"3"):
            await one.put(Publication("a", payload, 1, "me"))
        await until_equal(other, [b"3"])
        assert payloads(one) == [b"3"]
        await other.put(Publication("a", b"", 1, "me"))
        await until_equal(one, [])
        await until_equal(other, [])


async def test_what_a_newer_release_retained_takes_the_old_message_away() -> None:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("retained"))
    broker = Retained(table, 100)
    watching = asyncio.create_task(broker.watch())
    await broker.put(Publication("valve", b"shut", 1, "me"))
    await broker.put(Publication("door", b"shut", 1, "me"))
    cell = await table.get(tokens_of("valve"))
    assert cell is not None
    newer = b"\x1f" + cell.value[1:]
    await table.put(cell.key, newer)
    await until_equal(broker, [b"shut"])
    assert payloads(broker, "door") == [b"shut"]
    kept = await table.get(cell.key)
    assert kept is not None and kept.value == newer
    watching.cancel()
    await store.close()


async def test_more_topics_than_there_is_room_for_are_counted() -> None:
    async with two_brokers(topics_max=1) as (one, _):
        await one.put(Publication("a", b"1", 1, "me"))
        with pytest.raises(StoreFull):
            await one.put(Publication("b", b"2", 1, "me"))
        assert payloads(one) == [b"1"]
        assert one.refused >= 1


async def test_an_expired_message_is_not_given_out() -> None:
    async with two_brokers() as (one, _):
        await one.put(Publication("a", b"1", 1, "me", expiry_s=0))
        assert payloads(one) == []


async def test_what_has_no_room_here_is_not_written_to_the_table_either() -> None:
    async with two_brokers(topics_max=1) as (one, other):
        await one.put(Publication("a", b"1", 1, "me"))
        with pytest.raises(StoreFull):
            await one.put(Publication("b", b"2", 1, "me"))
        await one.put(Publication("a", b"3", 1, "me"))
        await until_equal(other, [b"3"])
        assert (one.refused, other.refused) == (1, 0)


async def test_of_two_brokers_that_write_a_topic_the_later_entry_wins() -> None:
    async with two_brokers() as (one, other):
        await one.put(Publication("a", b"later", 1, "me"), 9)
        await other.put(Publication("a", b"earlier", 1, "me"), 8)
        await other.put(Publication("b", b"mark", 1, "me"), 9)
        for each in (one, other):
            await until_equal(each, [b"later", b"mark"])


async def test_what_the_log_brought_is_known_before_the_table_has_it() -> None:
    async with two_brokers() as (one, other):
        await one.put(Publication("a", b"old", 1, "me"), 5)
        await until_equal(other, [b"old"])
        other.saw(Publication("a", b"new", 1, "me", retain=True), 7, 0.0)
        assert payloads(other) == [b"new"]
        await one.put(Publication("a", b"in between", 1, "me"), 6)
        await one.put(Publication("b", b"mark", 1, "me"), 6)
        await until_equal(other, [b"mark", b"new"])
        other.saw(Publication("a", b"", 1, "me", retain=True), 8, 0.0)
        assert payloads(other) == [b"mark"]


async def test_what_only_the_log_brought_is_removed_with_the_table() -> None:
    async with two_brokers() as (one, other):
        other.saw(Publication("a", b"new", 1, "me", retain=True), 7, 0.0)
        await one.put(Publication("a", b"new", 1, "me"), 7)
        await one.put(Publication("a", b"", 1, "me"), 8)
        await until_equal(other, [])


async def test_a_watch_that_begins_anew_takes_nothing_away_but_what_is_gone() -> None:
    store = MemoryStore(MemoryServer())
    retained = Retained(await store.table(TableSpec("retained")), 100)
    retained._post(Watched(table=TABLE, change=Change("reset")))
    assert not retained.known.is_set()
    for topic in ("gone", "stays", "rewritten"):
        await retained.put(Publication(topic, topic.encode(), 1, "me"))
    retained._post(Watched(table=TABLE, change=Change("ready")))
    assert retained.known.is_set()
    retained._post(Watched(table=TABLE, change=Change("reset")))
    assert payloads(retained) == [b"gone", b"rewritten", b"stays"], "until the new copy is there"
    retained.saw(Publication("coming", b"coming", 1, "me"), 7, 0.0)
    again = msgspec.msgpack.encode(Kept(Publication("stays", b"stays", 1, "me"), 0.0))
    retained._post(Watched(table=TABLE, change=Change("put", tokens_of("stays"), again, 100)))
    await retained.put(Publication("rewritten", b"newer", 1, "me"))
    retained._post(Watched(table=TABLE, change=Change("ready")))
    assert payloads(retained) == [b"coming", b"newer", b"stays"]
    await store.close()


@pytest.mark.parametrize("known", [True, False], ids=["known", "not known yet"])
@pytest.mark.parametrize("payload", [b"older", b""], ids=["kept", "removed"])
async def test_what_the_log_has_earlier_does_not_replace_what_it_has_later(
    payload: bytes, known: bool
) -> None:
    async with two_brokers() as (one, other):
        await one.put(Publication("a", b"newer", 1, "me"), 8)
        if known:
            await until_equal(other, [b"newer"])
        await other.put(Publication("a", payload, 1, "me"), 7)
        await one.put(Publication("b", b"mark", 1, "me"), 9)
        await until_equal(other, [b"mark", b"newer"])
        await until_equal(one, [b"mark", b"newer"])
        await other.put(Publication("a", b"", 1, "me"), 10)
        await until_equal(one, [b"mark"])


async def test_who_removes_what_is_not_there_removes_nothing() -> None:
    async with two_brokers() as (one, other):
        await one.put(Publication("a", b"", 1, "me"), 1)
        await one.put(Publication("a", b"x", 1, "me"), 2)
        await until_equal(other, [b"x"])
