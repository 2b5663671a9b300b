"""A feed from a real Kafka."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("aiokafka", reason="the extra kafka is not installed")
pytest.importorskip("pyspark", reason="the extra spark is not installed: it fetches Kafka")

from aiokafka import AIOKafkaProducer

from tests.integration.feeder import Town, child, running
from tests.integration.kafka import running_kafka
from tests.integration.ports import free_ports
from tocsin.model.catalogue import Feed, KafkaSource
from tocsin.runtime.faults import kill_points as points
from tocsin.store.servers.testing import LocalServers

pytestmark = pytest.mark.slow  # fetches 50 MB the first time, and starts a Java


async def say(address: str, numbers: range) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address, request_timeout_ms=60_000)
    await producer.start()
    try:
        await asyncio.gather(
            *[await producer.send("quakes", json.dumps({"n": number}).encode()) for number in numbers]
        )
    finally:
        await producer.stop()


async def test_messages_of_all_partitions_are_taken_once_despite_kills(
    servers: LocalServers, town: Town, tmp_path: Path
) -> None:
    port, quorum = free_ports(2)
    with (
        running_kafka(tmp_path, port, quorum) as kafka,
        child(servers, tmp_path, "feeder", start=False) as feeder,
    ):
        await say(kafka.address, range(-10, 0))  # before there is a feed: not its own
        await town.define(Feed("Quakes", "Data", KafkaSource(kafka.address, "quakes")))
        feeder.start()
        await town.status(lambda said: running(said) and said["feeds"][0]["lag"] == 0)  # it is at the end
        await say(kafka.address, range(1_000))
        await town.until("Quakes", 1_000)
        feeder.kill()
        feeder.start(f"{points.AFTER_APPEND}:1")
        await say(kafka.address, range(1_000, 1_500))
        await feeder.killed()
        feeder.start()
        await town.until("Quakes", 1_500)
        kafka.kill()
        await asyncio.sleep(2.0)
        kafka.start()
        await say(kafka.address, range(1_500, 1_600))
        found = await town.until("Quakes", 1_600)
    assert sorted(each["n"] for each in found) == list(range(1_600))
