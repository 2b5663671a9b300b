"""Kafka as a source, held against a client that does as aiokafka says it does."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

pytest.importorskip("aiokafka", reason="the extra kafka is not installed")

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.feeds.desk import Desk, running, until
from tocsin.errors import SourceUnusable
from tocsin.feeds.agents import kafka as module
from tocsin.feeds.agents.agent import Work
from tocsin.feeds.agents.kafka import KafkaAgent, batches, make_clients
from tocsin.model.catalogue import KafkaSource
from tocsin.ports import BATCH_MAX

SOURCE = KafkaSource("kafka-1:9092, kafka-2:9092", "reports")


class Said(msgspec.Struct):
    offset: int
    value: bytes | None


class Broker:
    """Partitions: the first offset that is kept, and messages from there on."""

    def __init__(self, partitions: int) -> None:
        self.partitions: dict[int, list[Said]] = {number: [] for number in range(partitions)}
        self.first: dict[int, int] = dict.fromkeys(self.partitions, 0)
        self.down = False

    def say(self, partition: int, *values: bytes | None) -> None:
        log = self.partitions.setdefault(partition, [])
        for value in values:
            log.append(Said(self.end(partition), value))

    def end(self, partition: int) -> int:
        log = self.partitions[partition]
        return log[-1].offset + 1 if log else self.first.get(partition, 0)

    def forget(self, partition: int, before: int) -> None:
        self.first[partition] = before
        kept = [each for each in self.partitions[partition] if each.offset >= before]
        self.partitions[partition] = kept


class Consumer:
    """What the agent uses of ``AIOKafkaConsumer``; a test holds the names against the real one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._at: dict[TopicPartition, int] = {}
        self.started = self.stopped = False

    async def start(self) -> None:
        if self._broker.down:
            raise KafkaConnectionError("Unable to bootstrap")
        self.started = True

    async def stop(self) -> None:
        self.stopped = True

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._at = {each: -1 for each in partitions}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert offset >= self._broker.first.get(partition.partition, 0)
        self._at[partition] = offset

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self._broker.end(each.partition) for each in partitions}

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self._broker.first.get(each.partition, 0) for each in partitions}

    async def getmany(self, *, timeout_ms: int, max_records: int) -> Mapping[TopicPartition, list[Said]]:
        if self._broker.down:
            raise KafkaConnectionError("Connection lost")
        found: dict[TopicPartition, list[Said]] = {}
        left = max_records
        for each, at in self._at.items():
            assert at >= 0, "read without a position"
            some = [said for said in self._broker.partitions[each.partition] if said.offset >= at][:left]
            if some:
                found[each] = some
                self._at[each] = some[-1].offset + 1
                left -= len(some)
        if not found:
            await asyncio.sleep(0.005)
        return found


class Admin:
    """What the agent uses of ``AIOKafkaAdminClient``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def describe_topics(self) -> list[dict[str, Any]]:
        partitions = [{"partition": number} for number in self._broker.partitions]
        return [{"topic": "reports", "partitions": partitions}]


def agent(work: Work, broker: Broker) -> KafkaAgent:
    return KafkaAgent(work, clients=lambda servers: (Consumer(broker), Admin(broker)))


def test_the_fake_kafka_client_has_only_methods_of_the_real_one() -> None:
    for ours, real, count in ((Consumer, AIOKafkaConsumer, 7), (Admin, AIOKafkaAdminClient, 3)):
        used = [name for name in vars(ours) if not name.startswith("_")]
        assert len(used) == count
        assert all(callable(getattr(real, name)) for name in used)


async def test_the_real_client_takes_our_options() -> None:
    consumer, admin = make_clients(SOURCE.servers)
    assert isinstance(consumer, AIOKafkaConsumer)
    assert isinstance(admin, AIOKafkaAdminClient)
    await consumer.stop()


async def test_a_feed_begins_at_the_end_and_goes_on_by_offsets() -> None:
    desk, broker = await Desk.open(), Broker(2)
    broker.say(0, b'{"n": "before"}')
    work = desk.work(SOURCE)
    async with running(agent(work, broker)):
        await until(lambda: bool(work.outlet.marks), "the beginning")
        broker.say(0, b'{"n": 1}', None, b"no JSON")
        broker.say(1, b'{"n": 2}')
        await until(lambda: work.counts.records == 3, "three")
        await until(lambda: work.outlet.marks == {"0": 3, "1": 0}, "their offsets")
    broker.say(1, b'{"n": 3}')
    work = desk.work(SOURCE)
    async with running(agent(work, broker)):
        await until(lambda: work.counts.records == 1, "the fourth")
    ids = {entry.id for entry in await desk.entries()}
    assert ids == {"reports.1.0.1", "reports.1.0.3", "reports.1.1.0", "reports.1.1.1"}


async def test_a_partition_that_is_added_is_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTITIONS_S", 0.0)
    desk, broker = await Desk.open(), Broker(1)
    work = desk.work(SOURCE)
    async with running(agent(work, broker)):
        await until(lambda: bool(work.outlet.marks), "the beginning")
        broker.say(1, b'{"n": 1}')
        assert await desk.until_records(1) == [{"n": 1}]


async def test_what_kafka_forgot_is_missed_and_the_rest_is_taken() -> None:
    desk, broker = await Desk.open(), Broker(1)
    broker.say(0, b'{"n": 0}')
    work = desk.work(SOURCE)
    async with running(agent(work, broker)):
        await until(lambda: bool(work.outlet.marks), "the beginning")
    broker.say(0, *(b'{"n": %d}' % number for number in range(1, 6)))
    broker.forget(0, 4)
    work = desk.work(SOURCE)
    async with running(agent(work, broker)):
        assert await desk.until_records(2) == [{"n": 4}, {"n": 5}]
    assert work.counts.missed == 1


async def test_an_absent_kafka_or_topic_is_reported_with_a_reason() -> None:
    desk, broker = await Desk.open(), Broker(1)
    broker.down = True
    with pytest.raises(SourceUnusable, match="Unable to bootstrap"):
        await agent(desk.work(SOURCE), broker).run()
    broker.down = False
    with pytest.raises(SourceUnusable, match="no topic nothing"):
        await agent(desk.work(KafkaSource("k:9092", "nothing")), broker).run()


async def test_lag_is_what_the_partitions_have_beyond() -> None:
    desk, broker = await Desk.open(), Broker(2)
    work = desk.work(SOURCE)
    idle = agent(work, broker)
    assert await idle.lag() == -1
    async with running(idle):
        await until(lambda: bool(work.outlet.marks), "the beginning")
        async with asyncio.timeout(20):
            while await idle.lag() != 0:
                await asyncio.sleep(0.005)


def test_without_the_extra_a_feed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("aiokafka"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SourceUnusable, match=r"Install tocsin\[kafka\]"):
        make_clients("k:9092")


@given(
    st.dictionaries(
        st.integers(0, 3),
        st.lists(st.binary(max_size=3) | st.none(), min_size=1, max_size=BATCH_MAX),
        max_size=3,
    )
)
def test_appends_have_every_value_once_and_marks_that_fit_what_they_have(
    said: dict[int, list[bytes | None]],
) -> None:
    found = {
        TopicPartition("t", number): [Said(offset, value) for offset, value in enumerate(values)]
        for number, values in said.items()
    }
    taken: list[str] = []
    for records, marks in batches(found, {}):
        assert len(records) <= BATCH_MAX
        taken += [each for each, _ in records]
        below = [
            f"{number}.{offset}"
            for number, values in said.items()
            for offset, value in enumerate(values)
            if value is not None and offset <= marks.get(str(number), -1)
        ]
        assert sorted(taken) == sorted(below)
    assert marks == {str(number): len(values) - 1 for number, values in said.items()}
