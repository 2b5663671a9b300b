"""The feeder as a process: killed where it hurts, and beside real brokers."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.integration.feeder import DEADLINE_S, NETWORK, Town, child, running
from tests.integration.pipeline import PipelineProcess, talking
from tests.integration.ports import free_ports
from tocsin.client import AsyncClient
from tocsin.errors import TocsinError
from tocsin.model.catalogue import (
    Column,
    Dataset,
    Feed,
    FolderSource,
    HttpSource,
    StreamSource,
    TopicSource,
)
from tocsin.model.feeding import table_spec
from tocsin.runtime.faults import kill_points as points
from tocsin.runtime.security.authority import Authority
from tocsin.runtime.security.credentials import certificates_directory
from tocsin.store.retention import feeds_floor
from tocsin.store.servers.testing import LocalServers

WINDOW_S = 1.0  # for which the store remembers ids, where a test waits for longer


@pytest.mark.parametrize(
    "point",
    [f"{points.AFTER_INTENT}:2", f"{points.BEFORE_APPEND}:1", f"{points.AFTER_APPEND}:1"],
)
async def test_messages_are_taken_once_whatever_the_feeder_is_killed_at(
    servers: LocalServers, town: Town, tmp_path: Path, point: str
) -> None:
    await town.define(Feed("A", "Data", TopicSource("a/#"), since=0))
    await town.publish("a/x", range(1_500))
    with child(servers, tmp_path, "feeder", start=False) as feeder:
        feeder.start(point)
        await feeder.killed()
        await town.publish("a/y", range(1_500, 2_000))  # while nobody is there
        feeder.start()
        await town.until("A", 2_000)
        await town.publish("a", range(2_000, 2_010))
        found = await town.until("A", 2_010)
    assert sorted(each["n"] for each in found) == list(range(2_010))


@pytest.mark.parametrize("point", [f"{points.AFTER_APPEND}:2", f"{points.IN_FOLDER}:1"])
async def test_records_of_files_are_taken_once_whatever_the_feeder_is_killed_at(
    servers: LocalServers, town: Town, tmp_path: Path, point: str
) -> None:
    folder, state = tmp_path / "spool", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    (folder / "a.csv").write_text("n\n" + "".join(f"{number}\n" for number in range(3_000)))
    dataset = Dataset("Data", (Column("n", "BIGINT"),))
    await town.define(dataset, Feed("Files", "Data", FolderSource(str(folder))))
    with child(servers, state, "feeder", start=False) as feeder:
        feeder.start(point)
        await feeder.killed()
        assert (folder / "a.csv").exists()
        feeder.start()
        deadline = time.monotonic() + DEADLINE_S
        while not (folder / "done" / "a.csv").exists():
            assert time.monotonic() < deadline, "the file was not taken"
            await asyncio.sleep(0.05)
        found = await town.records("Files")
    assert [each["n"] for each in found] == list(range(3_000))


def post(address: str, body: object, key: str) -> int:
    """Send records to the feed Web."""
    request = urllib.request.Request(
        f"{address}/feeds/web", json.dumps(body).encode(), {"Idempotency-Key": key}
    )
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
        return int(reply.status)


async def test_the_feeder_takes_http_without_a_pipeline_and_drops_repeats_after_kills(
    servers: LocalServers, town: Town, tmp_path: Path
) -> None:
    await town.define(Feed("Web", "Data", HttpSource()))

    with child(servers, tmp_path, "feeder", start=False) as feeder:
        feeder.start(f"{points.AFTER_APPEND}:1")
        address = (await town.status(running))["http"]
        with pytest.raises(OSError):  # it is killed when the log has the record, before it says so
            await asyncio.to_thread(post, address, {"n": 1}, "one")
        await feeder.killed()
        feeder.start()
        address = (await town.status(running))["http"]
        assert await asyncio.to_thread(post, address, {"n": 1}, "one") == 202
        assert await asyncio.to_thread(post, address, [{"n": 2}, {"n": 3}], "two") == 202
        assert await town.records("Web") == [{"n": 1}, {"n": 2}, {"n": 3}]


async def test_a_repeat_after_a_kill_is_dropped_beyond_the_stores_duplicate_window(
    servers: LocalServers, town: Town, tmp_path: Path
) -> None:
    await town.remember_ids_for(WINDOW_S)
    await town.define(Feed("Web", "Data", HttpSource()))
    with child(servers, tmp_path, "feeder", start=False) as feeder:
        feeder.start(f"{points.AFTER_APPEND}:2")
        address = (await town.status(running))["http"]
        assert await asyncio.to_thread(post, address, {"n": 1}, "answered") == 202
        with pytest.raises(OSError):
            await asyncio.to_thread(post, address, {"n": 2}, "not answered")
        await feeder.killed()
        cells = await town.store.table(table_spec(NETWORK))
        await town.feeds.trim(before=await feeds_floor(cells, await town.feeds.last() + 1))
        await asyncio.sleep(2 * WINDOW_S)
        feeder.start()
        address = (await town.status(running))["http"]
        for number, key in ((1, "answered"), (2, "not answered"), (3, "new")):
            assert await asyncio.to_thread(post, address, {"n": number}, key) == 202
        assert [each["n"] for each in await town.records("Web")] == [1, 2, 3]


async def test_messages_of_every_quality_are_taken_once_from_a_real_broker(
    servers: LocalServers, town: Town, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    brokers = json.dumps([{"id": "north-1", "cluster": "north", "port": port}])
    sets = (f"brokers={brokers}",)
    Authority.open_or_make(certificates_directory(tmp_path), NETWORK).ensure("north-1", role="broker")
    dataset = Dataset("Data", (Column("topic", "STRING"), Column("metadata", "MAP<STRING, STRING>")))
    with (
        child(servers, tmp_path, "coordinator", sets=sets),
        child(servers, tmp_path, "broker", "north-1", sets=sets),
        child(servers, tmp_path, "feeder", sets=sets),
    ):
        await _reachable(port)
        await town.define(
            dataset,
            Feed("Plain", "Data", TopicSource("a/+"), since=await town.messages.last()),
            Feed("Asked", "Data", StreamSource("type = 'quake'"), since=await town.messages.last()),
        )
        await town.status(lambda said: len(said["feeds"]) == 2 and running(said))
        async with AsyncClient(f"mqtt://127.0.0.1:{port}") as client:
            await client.publish("a/kept", {"n": "retained"}, retain=True)
            await client.stream("a/quake", type="quake").describe()
            await client.publish("a/quake", {"n": 0}, qos=1)
            # Best effort begins when the subscription is there, which only a message can tell.
            beats = 0
            while not all(each["live"] for each in (await town.status(running))["feeds"]):
                beats += 1
                assert beats < 1_000, "no QoS 0 message is heard"
                await client.publish("a/quake", {"n": -beats})
                await asyncio.sleep(0.05)
            for number in range(1, 31):
                await client.publish("a/quake", {"n": number}, qos=number % 3)
            await client.publish("a/other", {"n": 99}, qos=1)
        for feed, others in (("Plain", {99}), ("Asked", set())):
            wanted = [*range(31), *others]
            found = await _until_all(town, feed, wanted)
            taken = [each["n"] for each in found if each["n"] != "retained" and each["n"] >= 0]
            assert sorted(taken) == sorted(wanted), feed
        assert {each["metadata"]["type"] for each in await town.records("Asked")} == {"quake"}
        said = {each["name"]: each for each in (await town.status(running))["feeds"]}
        assert said["Asked"]["live"] >= 10 and said["Asked"]["dropped"] == 0 and said["Asked"]["lag"] == 0


async def _until_all(town: Town, feed: str, wanted: list[int]) -> list[Any]:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = await town.records(feed)
        if set(wanted) <= {each["n"] for each in found}:
            return found
        missing = set(wanted) - {each["n"] for each in found}
        assert time.monotonic() < deadline, f"{feed}: without {missing} of {len(found)} records"
        await asyncio.sleep(0.05)


async def _reachable(port: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            async with AsyncClient(f"mqtt://127.0.0.1:{port}", redial=False, deadline_s=2.0):
                return
        except TocsinError:
            assert time.monotonic() < deadline, "no broker"
            await asyncio.sleep(0.1)


async def test_a_second_feeder_waits_for_the_first(servers: LocalServers, town: Town, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    await town.define(Feed("A", "Data", TopicSource("a"), since=0))
    with child(servers, tmp_path, "feeder") as first, child(servers, tmp_path / "second", "feeder"):
        await town.publish("a", range(10))
        await town.until("A", 10)
        first.kill()
        await town.publish("a", range(10, 20))
        found = await town.until("A", 20)
    assert [each["n"] for each in found] == list(range(20))


@pytest.mark.slow
@pytest.mark.xdist_group("networks with spark")
async def test_records_taken_while_no_pipeline_ran_reach_the_dataset_later(
    servers: LocalServers, town: Town, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    dataset = Dataset("Data", (Column("n", "BIGINT", nullable=False), Column("topic", "STRING")))
    await town.define(dataset, Feed("A", "Data", TopicSource("a"), since=0))
    await town.publish("a", range(100))
    pipeline = PipelineProcess(servers, tmp_path / "pipeline")
    with child(servers, tmp_path, "feeder", start=False) as feeder:
        feeder.start(f"{points.AFTER_APPEND}:1")
        await feeder.killed()
        feeder.start()
        await town.until("A", 100)
        pipeline.start()
        try:
            async with talking(servers, tmp_path / "pipeline") as talk:
                await town.publish("b", range(100, 110))  # before there is a feed for it
                await talk.sql("CREATE FEED B INTO Data FROM TOPIC 'b'")
                await town.publish("b", range(110, 120))  # at once, whether the feeder knows of it or not
                wanted = [*range(100), *range(110, 120)]
                deadline = time.monotonic() + DEADLINE_S
                while True:
                    (answer,) = await talk.sql("SELECT n, topic FROM Data ORDER BY n")
                    found = [row[0] for row in answer["rows"]]
                    if len(found) >= len(wanted):
                        break
                    assert time.monotonic() < deadline, f"{len(found)} rows"
                    await asyncio.sleep(0.2)
                assert found == wanted
                assert {row[1] for row in answer["rows"]} == {"a", "b"}
        finally:
            pipeline.stop()
