"""A topic of a Kafka that the user has, as records.

The partitions are read without a consumer group: how far the feed is belongs to the records, so the marks of the feed
are the offsets that were taken last, by partition, and Kafka keeps none of it. A new feed begins where its partitions
end; partitions that are added later are read from their beginning. The value of a message is the record; a message
without one (a tombstone) is none. Only what was committed by transactions is read.

``aiokafka`` is asked for when there is such a feed, and belongs to the extra ``kafka``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from tocsin.errors import SourceUnusable
from tocsin.feeds.agents.agent import Work
from tocsin.feeds.outlet import BATCH_MAX_BYTES
from tocsin.feeds.packing import cut
from tocsin.model.catalogue import KafkaSource
from tocsin.model.feeding import Marks
from tocsin.ports import BATCH_MAX

POLL_S: Final = 0.5  # of waiting for messages; then the intent is settled
PARTITIONS_S: Final = 30.0  # between two looks for new partitions
PARTITIONS_MAX: Final = 10_000


def make_clients(servers: str) -> tuple[Any, Any]:
    """A consumer that is assigned by hand, and a client that knows all topics: a consumer knows only its own.

    ``SourceUnusable`` if the extra is not installed.
    """
    try:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.admin import AIOKafkaAdminClient
    except ImportError:
        raise SourceUnusable(
            f"kafka {servers}", "aiokafka is not installed", "Install tocsin[kafka] where the feeder runs"
        ) from None
    addresses = [each.strip() for each in servers.split(",") if each.strip()]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=addresses,
        client_id="tocsin-feeder",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        max_partition_fetch_bytes=1 << 20,
        fetch_max_bytes=8 << 20,
    )
    return consumer, AIOKafkaAdminClient(bootstrap_servers=addresses, client_id="tocsin-feeder")


class KafkaAgent:
    """Reads one Kafka topic for a feed. ``clients`` makes the library's; tests give others."""

    def __init__(self, work: Work, *, clients: Callable[[str], tuple[Any, Any]] = make_clients) -> None:
        assert isinstance(work.feed.source, KafkaSource)
        self._work = work
        self._source = work.feed.source
        self._make = clients
        self._consumer: Any = None
        self._admin: Any = None
        self._partitions: dict[int, Any] = {}  # as the library names them

    async def lag(self) -> int:
        consumer, partitions = self._consumer, list(self._partitions.values())
        if consumer is None or not partitions:
            return -1
        try:
            ends = await consumer.end_offsets(partitions)
        except Exception:  # whatever the library raises: this is only to be looked at
            return -1
        marks = self._work.outlet.marks
        return sum(max(0, end - 1 - marks.get(str(each.partition), -1)) for each, end in ends.items())

    async def run(self) -> None:
        consumer, self._admin = self._make(self._source.servers)
        self._consumer = consumer
        try:
            await consumer.start()
            await self._admin.start()
            await self._work.outlet.open(self._beginning)
            await self._assign()
            self._work.counts.error = ""
            await self._read()
        except Exception as error:
            raise self._mapped(error) from error
        finally:
            self._consumer = None
            await consumer.stop()
            await self._admin.close()

    def _mapped(self, error: Exception) -> Exception:
        """Errors of the library become ours; ours stay."""
        if not type(error).__module__.startswith("aiokafka"):
            return error
        words = str(error) or type(error).__name__
        return SourceUnusable(
            f"kafka {self._source.servers}", words, "See that the servers and the topic are there"
        )

    async def _find(self) -> dict[int, Any]:
        """The topic's partitions, by number."""
        from aiokafka import TopicPartition

        topics = await self._admin.describe_topics()  # all: to ask for one by name may make it
        numbers = [
            each["partition"]
            for topic in topics
            if topic["topic"] == self._source.topic
            for each in topic["partitions"]
        ]
        if not numbers:
            raise SourceUnusable(
                f"kafka {self._source.servers}", f"there is no topic {self._source.topic}", "Make it there"
            )
        return {
            number: TopicPartition(self._source.topic, number) for number in sorted(numbers)[:PARTITIONS_MAX]
        }

    async def _beginning(self) -> Marks:
        found = await self._find()
        ends = await self._consumer.end_offsets(list(found.values()))
        return {str(each.partition): end - 1 for each, end in ends.items()}

    async def _assign(self) -> None:
        """Read all partitions there are, each from its mark on."""
        self._partitions = await self._find()
        marks = self._work.outlet.marks
        self._consumer.assign(list(self._partitions.values()))
        first = await self._consumer.beginning_offsets(list(self._partitions.values()))
        for number, partition in self._partitions.items():
            wanted = marks.get(str(number), -1) + 1
            if wanted < first[partition]:
                if str(number) in marks:
                    self._work.counts.missed += 1
                    structlog.get_logger().error(
                        "messages were gone from Kafka before a feed had them",
                        feed=self._work.feed.name,
                        partition=number,
                        messages=first[partition] - wanted,
                    )
                wanted = first[partition]
            self._consumer.seek(partition, wanted)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1_000), max_records=BATCH_MAX)
            if found:
                await self._take(found)
            else:
                await self._work.outlet.settle()
            if loop.time() - looked > PARTITIONS_S:
                looked = loop.time()
                if (await self._find()).keys() != self._partitions.keys():
                    await self._assign()

    async def _take(self, found: Mapping[Any, Sequence[Any]]) -> None:
        outlet = self._work.outlet
        for records, marks in batches(found, outlet.marks):
            size = sum(len(payload) for _, payload in records)
            await outlet.put(records, marks)
            self._work.counts.add(len(records), size)


def batches(found: Mapping[Any, Sequence[Any]], marks: Marks) -> list[tuple[list[tuple[str, bytes]], Marks]]:
    """Messages by partition as appends: ids and payloads, and how far the feed is after each."""
    done: list[tuple[list[tuple[str, bytes]], Marks]] = []
    records: list[tuple[str, bytes]] = []
    marks = dict(marks)
    size = 0
    for partition, messages in found.items():
        for message in messages:
            if len(records) == BATCH_MAX or size >= BATCH_MAX_BYTES:
                done.append((records, dict(marks)))
                records, size = [], 0
            marks[str(partition.partition)] = message.offset
            if message.value is not None:
                payload = cut(message.value)
                records.append((f"{partition.partition}.{message.offset}", payload))
                size += len(payload)
    done.append((records, marks))
    return done
