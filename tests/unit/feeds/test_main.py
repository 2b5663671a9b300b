"""The feeder: an agent for each feed that is defined, and none that concerns another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.unit.feeds.desk import PLACES, Desk, until
from tocsin.config import Broker, Feeds, Settings
from tocsin.feeds.agents import folder
from tocsin.feeds.main import Feeder, HttpAgent, Running, brokers_of
from tocsin.model.catalogue import (
    Channel,
    Column,
    Dataset,
    Definition,
    Feed,
    FolderSource,
    HttpSource,
    TopicSource,
    encode_definition,
    key_of,
)
from tocsin.model.feeding import FeedCell, cell_key, encode_cell
from tocsin.ports import Table

SETTINGS = Settings(network="net", feeds=Feeds(folder_poll_s=0.1, folders=("/",)))


class Home:
    def __init__(self, desk: Desk, feeder: Feeder, catalogue: Table) -> None:
        self.desk, self.feeder, self.catalogue = desk, feeder, catalogue

    async def define(self, *definitions: Definition) -> None:
        for each in definitions:
            await self.catalogue.put(key_of(each), encode_definition(each))

    async def begun(self, name: str) -> None:
        await until(lambda: name in self.feeder.running, f"feed {name}")
        async with asyncio.timeout(20):
            while await self.desk.cells.get(cell_key(name)) is None:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def home() -> AsyncIterator[Home]:
    desk = await Desk.open()
    catalogue = await desk.store.table(PLACES.catalogue)
    feeder = Feeder(SETTINGS, PLACES, feeds=desk.feeds, messages=desk.messages, cells=desk.cells, brokers=())
    following = asyncio.create_task(feeder.follow(catalogue))
    try:
        yield Home(desk, feeder, catalogue)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await feeder.stop()


DATASET = Dataset("Data", (Column("topic", "STRING"),))


async def test_feeds_run_while_they_are_defined() -> None:
    async with home() as here:
        await here.define(DATASET, Feed("A", "Data", TopicSource("a")), Channel("C", (), (), "SELECT 1"))
        await here.catalogue.put("feed.broken", b"damaged")
        await here.begun("a")
        await here.desk.publish("a", {"n": 1})
        assert await here.desk.until_records(1, "A") == [{"n": 1, "topic": "a"}]
        await here.catalogue.delete("feed.a")
        await until(lambda: not here.feeder.running, "the end")
        async with asyncio.timeout(20):
            while await here.desk.cells.get("feed.a") is not None:
                await asyncio.sleep(0.005)


async def test_a_feed_that_is_made_anew_begins_anew() -> None:
    async with home() as here:
        await here.define(Feed("A", "Data", TopicSource("a")))
        await here.begun("a")
        await here.desk.publish("a", {"n": 1})
        await here.desk.until_records(1, "A")
        await here.define(Feed("A", "Data", TopicSource("b"), version=2))
        async with asyncio.timeout(20):
            while (await here.desk.cell("A")).version != 2:
                await asyncio.sleep(0.005)
        await here.desk.publish("b", {"n": 2})
        assert await here.desk.until_records(2, "A") == [{"n": 1}, {"n": 2}]


async def test_a_failing_feed_reports_why_retries_and_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.feeds.retrying.FIRST_S", 0.01)
    monkeypatch.setattr(folder.Watch.__init__, "__defaults__", (0.0,))
    nowhere = tmp_path / "nowhere"
    async with home() as here:
        await here.define(
            Feed("Files", "Data", FolderSource(str(nowhere))),
            Feed("A", "Data", TopicSource("a")),
            Feed("Web", "Data", HttpSource()),
        )
        await until(lambda: len(here.feeder.running) == 3, "all")
        failing = here.feeder.running["files"]
        await until(lambda: "Make the folder" in failing.counts.error, "the error")
        await here.begun("a")
        await here.desk.publish("a", {"n": 1})
        await here.desk.until_records(1, "A")
        status = {each.name: each for each in (await here.feeder.status("http://x")).feeds}
        assert status["A"].error == "" and status["A"].records == 1 and status["A"].lag == 0
        assert "Make the folder" in status["Files"].error
        assert status["Web"].source == "http"
        nowhere.mkdir()
        (nowhere / "a.jsonl").write_text('{"n": 2}')
        assert await here.desk.until_records(1, "Files") == [{"n": 2}]
        await until(lambda: failing.counts.error == "", "the error is gone")


async def test_an_agent_with_a_bug_is_recreated_and_reports_the_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tocsin.feeds.retrying.FIRST_S", 0.01)
    desk = await Desk.open()
    work = desk.work(HttpSource())
    broken = [True]

    class Buggy(HttpAgent):
        async def run(self) -> None:
            if broken:
                raise ZeroDivisionError("a bug")
            await super().run()

    running = Running(work.feed, work.counts, lambda: work.outlet, work.dataset, lambda work: Buggy())
    await until(lambda: work.counts.failures >= 2, "two failures")
    status = await running.status()
    assert "ZeroDivisionError: a bug" in status.error
    broken.clear()
    await until(lambda: running.state == "running" and not running._task.done(), "it runs")
    await running.stop()


async def test_cells_of_feeds_that_were_dropped_while_nobody_ran_are_forgotten() -> None:
    async with home() as here:
        for name in ("gone", "a"):
            await here.desk.cells.put(cell_key(name), encode_cell(FeedCell(1, {"net.m.a": 0})))
        await here.desk.cells.put("lease", b"another's")
        await here.define(Feed("A", "Data", TopicSource("a")))
        await here.begun("a")
        await here.feeder.sweep()
        assert await here.desk.cells.keys() == ("feed.a", "lease")


async def test_the_door_finds_a_feed_by_its_name_in_any_case() -> None:
    async with home() as here:
        await here.define(Feed("Web", "Data", HttpSource()))
        await until(lambda: "web" in here.feeder.running, "the feed")
        found = here.feeder.find("WEB")
        assert found is not None and found.feed.name == "Web"
        assert here.feeder.find("other") is None


def test_brokers_are_those_whose_ports_are_known(tmp_path: Path) -> None:
    brokers = (Broker(id="a", cluster="c", port=1), Broker(id="b", cluster="c", host="0.0.0.0", port=2))
    assert [(each.host, each.port) for each in brokers_of(Settings(brokers=brokers))] == [
        ("127.0.0.1", 1),
        ("127.0.0.1", 2),
    ]
    open_ports = Settings(state=str(tmp_path), brokers=(Broker(id="a", cluster="c"),))
    assert brokers_of(open_ports) == ()
    address = {"id": "a", "cluster": "c", "role": "edge", "host": "127.0.0.1", "port": 7}
    network = {"network": "net", "pid": 1, "nats": [], "brokers": [address]}
    (tmp_path / "network.json").write_text(json.dumps(network))
    assert [each.port for each in brokers_of(open_ports)] == [7]
