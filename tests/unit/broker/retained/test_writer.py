"""Messages are retained with their own positions: two brokers that keep one topic agree, whoever is first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import cast

import pytest

from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.retained import table
from tocsin.broker.retained.table import Retained
from tocsin.broker.retained.writer import RetainedWriter, Waiting
from tocsin.core.retained.write_order import WriteTurn
from tocsin.errors import TocsinError
from tocsin.model.publication import Publication
from tocsin.ports import TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore

DEADLINE_S = 10.0


class Log:
    """As much of a journal as is looked at."""

    def __init__(self) -> None:
        self.newest = self.tail = 0


class Broker:
    def __init__(self, retained: Retained) -> None:
        self.log = Log()
        self.retained = retained
        self.tasks: set[asyncio.Task[None]] = set()
        self.done: list[TocsinError | None] = []
        self.retained_writer = RetainedWriter(retained, cast(MessageLog, self.log), self._spawn)

    def _spawn(self, work: object) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(work))  # type: ignore[arg-type]

    def expect(self) -> WriteTurn[Waiting]:
        return self.retained_writer.expect("a")

    def keep(
        self, payload: bytes, qos: int, position: int = 0, place: WriteTurn[Waiting] | None = None
    ) -> None:
        publication = Publication("a", payload, qos, "me", retain=True)
        self.retained_writer.keep(publication, self.done.append, position=position, place=place)

    async def written(self, messages: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.done) < messages:
                await asyncio.sleep(0)
        assert self.done == [None] * messages

    def payloads(self) -> list[bytes]:
        return [kept.publication.payload for kept in self.retained.matching("#")]


@contextlib.asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Broker, Broker]]:
    store = MemoryStore(MemoryServer())
    table = await store.table(TableSpec("retained"))
    brokers = Broker(Retained(table, 10)), Broker(Retained(table, 10))
    watches = [asyncio.create_task(each.retained.watch()) for each in brokers]
    try:
        yield brokers
    finally:
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await store.close()


async def until_both_have(brokers: tuple[Broker, Broker], payload: bytes) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not all(each.payloads() == [payload] for each in brokers):
            await asyncio.sleep(0)


async def test_the_later_log_entry_wins_though_a_busy_broker_writes_late() -> None:
    async with two_brokers() as brokers:
        one, other = brokers
        other.keep(b"later", 1, position=8)
        await other.written(1)
        one.log.newest = 20  # it has committed other topics since
        one.keep(b"earlier", 1, position=7)
        await one.written(1)
        one.keep(b"latest", 1, position=21)
        await one.written(2)
        await until_both_have(brokers, b"latest")
        other.keep(b"between", 1, position=20)
        await other.written(2)
        await until_both_have(brokers, b"latest")


async def test_the_later_in_the_log_stays_whichever_the_table_has_first() -> None:
    async with two_brokers() as brokers:
        one, other = brokers
        other.keep(b"later", 1, position=8)
        await other.written(1)
        await until_both_have(brokers, b"later")
        one.log.newest = 20
        one.keep(b"earlier", 1, position=7)
        await one.written(1)
        await until_both_have(brokers, b"later")


async def test_a_qos_0_message_replaces_the_retained_one_until_a_later_entry() -> None:
    async with two_brokers() as brokers:
        one, other = brokers
        other.keep(b"known", 1, position=8)
        await until_both_have(brokers, b"known")
        one.log.tail = 5  # the log has not brought it yet, but the table has
        one.keep(b"in no log", 0)
        await until_both_have(brokers, b"in no log")
        other.keep(b"later", 1, position=9)
        await until_both_have(brokers, b"later")


async def test_messages_of_one_broker_keep_their_order_at_any_qos() -> None:
    async with two_brokers() as brokers:
        one, _ = brokers
        first = one.expect()
        one.keep(b"second", 0)
        one.keep(b"first", 1, position=7, place=first)
        await one.written(2)
        await until_both_have(brokers, b"second")
        one.log.newest = 7
        one.keep(b"third", 0)
        fourth = one.expect()
        await one.written(3)
        one.log.tail = 30
        one.keep(b"fourth", 1, position=8, place=fourth)
        await one.written(4)
        await until_both_have(brokers, b"fourth")


class Subscriber:
    """Notes what is retained when it may have it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.found: list[list[bytes]] = []

    def begin(self, name: str) -> None:
        self.found.append(self.broker.payloads())


async def test_a_subscriber_gets_the_qos_0_message_that_came_just_before_it() -> None:
    async with two_brokers() as (one, _):
        await one.retained.known.wait()
        one.keep(b"just now", 0)
        early = Subscriber(one)
        one.retained.await_settled(early, "#")
        assert early.found == [], "the message is delivered already, and not yet in the copy"
        await one.written(1)
        assert early.found == [[b"just now"]]
        late = Subscriber(one)
        one.retained.await_settled(late, "#")
        assert late.found == [[b"just now"]], "nothing is under way"


async def test_a_store_that_is_away_keeps_no_subscriber_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SETTLE_S", 0.0)
    async with two_brokers() as (one, _):
        await one.retained.known.wait()
        one.keep(b"before", 0)
        await one.written(1)
        number = one.retained.taken()  # and never written
        subscriber = Subscriber(one)
        one.retained.await_settled(subscriber, "#")
        async with asyncio.timeout(DEADLINE_S):
            while not subscriber.found:
                await asyncio.sleep(0)
        assert subscriber.found == [[b"before"]]
        one.retained.settled(number)
        assert len(subscriber.found) == 1, "it is told once"
