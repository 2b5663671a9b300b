"""One channel's trouble is its own, on a real pipeline: overruns, deadlines, failures, and datasets that come anew."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.faults import DEADLINE_S, Traps, kill
from tests.integration.pipeline import PipelineProcess, Talk, talking
from tocsin.runtime.faults.kill_points import IN_TASK, STOP
from tocsin.store.servers.testing import LocalServers

pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")
pytestmark = [pytest.mark.xdist_group("networks with spark"), pytest.mark.timeout(300)]

SCRIPT = """
CREATE DATASET Reports (n BIGINT NOT NULL);
CREATE FEED Wire INTO Reports FROM HTTP;
CREATE CHANNEL Good(least BIGINT) CONTINUOUS AS SELECT r.n FROM NEW Reports r WHERE r.n >= :least;
"""
EVERY_SECOND = """
CREATE CHANNEL EverySecond(least BIGINT) EVERY 1 SECONDS AS
    SELECT r.n, 'x' AS word FROM NEW Reports r WHERE r.n >= :least;
"""
FRAIL = """
CREATE DATASET Frail (n BIGINT NOT NULL);
CREATE FEED FrailWire INTO Frail FROM HTTP;
CREATE CHANNEL Counting(least BIGINT) EVERY 1 SECONDS AS
    SELECT COUNT(*) AS n FROM Frail f WHERE f.n >= :least HAVING COUNT(*) > 0;
"""


class Scene:
    """A pipeline that lasts for the module, and who watches it."""

    def __init__(self, servers: LocalServers, state: Path, traps: Traps) -> None:
        self.servers = servers
        self.state = state
        self.traps = traps
        self.fed = 0

    async def feed(self, talk: Talk, feed: str = "Wire", count: int = 3) -> list[int]:
        numbers = list(range(self.fed, self.fed + count))
        self.fed += count
        await talk.feed(feed, *({"n": n} for n in numbers))
        return numbers


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("isolation")
    traps = Traps(root / "traps")
    conf = {f"spark.executorEnv.{name}": value for name, value in traps.variables(IN_TASK).items()}
    with LocalServers(root / "nats") as servers:
        settings = [f"spark.conf={json.dumps(conf)}", "pipeline.execution_deadline_s=20"]
        pipeline = PipelineProcess(servers, root / "state", settings)
        pipeline.start()
        try:
            asyncio.run(_begin(servers, root / "state"))
            yield Scene(servers, root / "state", traps)
        finally:
            pipeline.stop()


async def _begin(servers: LocalServers, state: Path) -> None:
    async with talking(servers, state) as talk:
        await talk.sql(SCRIPT)
        await talk.subscribe("Good", 0)


async def until(what: str, condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.1)


async def status(talk: Talk, channel: str) -> dict[str, Any]:
    found = await talk.ask("status")
    return next(each for each in found["channels"] if each["name"] == channel)


async def got(talk: Talk, channel: str, broker: str = "north-1") -> list[int]:
    return [json.loads(each.payload)["n"] for each in await talk.results(broker) if each.channel == channel]


async def test_a_failing_channel_is_held_back_and_recovers_while_others_run(
    scene: Scene,
) -> None:
    """A file of its dataset is gone for a while."""
    async with talking(scene.servers, scene.state) as talk:
        await talk.sql(FRAIL)
        await talk.subscribe("Counting", 0)
        await scene.feed(talk, "FrailWire", 5)

        async def counted() -> bool:
            return 5 in await got(talk, "Counting")

        await until("the first count", counted)
        files = list((scene.state / "datasets" / "data" / "frail").glob("**/*.parquet"))
        assert files
        for file in files:
            file.rename(file.with_suffix(".hidden"))

        async def failed() -> bool:
            return bool((await status(talk, "Counting"))["failures"] >= 2)

        await until("two failures in a row", failed)
        failing = await status(talk, "Counting")
        assert failing["error"] and "\n" not in failing["error"]
        assert failing["next_at_us"] > time.time_ns() // 1_000, "it is held back"
        numbers = await scene.feed(talk)

        async def told() -> bool:
            return set(numbers) <= set(await got(talk, "Good"))

        await until("results of others", told)
        good = await status(talk, "Good")
        assert (good["failures"], good["error"]) == (0, "")
        for file in files:
            file.with_suffix(".hidden").rename(file)
        (shown,) = await talk.sql("RUN CHANNEL Counting")
        assert "runs in the next tick" in shown["message"]

        async def well() -> bool:
            now = await status(talk, "Counting")
            return bool(now["failures"] == 0 and now["error"] == "")

        await until("it is well again", well)
        await talk.sql("DROP CHANNEL Counting; DROP FEED FrailWire; DROP DATASET Frail")


@pytest.mark.slow
async def test_slots_that_pass_during_an_execution_are_counted_and_lose_no_result(
    scene: Scene,
) -> None:
    """A task is stopped for three and a half periods."""
    async with talking(scene.servers, scene.state) as talk:
        await talk.sql(EVERY_SECOND)
        await talk.subscribe("EverySecond", 0, broker="south-1")

        async def ran() -> bool:
            return bool((await status(talk, "EverySecond"))["executions"] >= 2)

        await until("two executions", ran)
        before = (await status(talk, "EverySecond"))["overruns"]
        scene.traps.arm(STOP, IN_TASK)
        numbers = await scene.feed(talk)
        worker = await asyncio.to_thread(scene.traps.sprung, STOP, IN_TASK)
        await asyncio.sleep(3.5)
        os.kill(worker, signal.SIGCONT)

        async def overran() -> bool:
            return bool((await status(talk, "EverySecond"))["overruns"] >= before + 2)

        await until("two overruns", overran)

        async def told() -> bool:
            return set(numbers) <= set(await got(talk, "EverySecond", "south-1"))

        await until("its results", told)
        found = [each for each in await got(talk, "EverySecond", "south-1") if each in numbers]
        assert sorted(found) == numbers, "each once"
        assert (await status(talk, "EverySecond"))["failures"] == 0
        await talk.sql("DROP CHANNEL EverySecond")


@pytest.mark.slow
async def test_an_execution_that_takes_too_long_is_stopped_and_tried_again(scene: Scene) -> None:
    """A task is stopped for good."""
    async with talking(scene.servers, scene.state) as talk:
        scene.traps.arm(STOP, IN_TASK)
        numbers = await scene.feed(talk)
        worker = await asyncio.to_thread(scene.traps.sprung, STOP, IN_TASK)

        async def failed() -> bool:
            return "took longer than 20 s" in str((await status(talk, "Good"))["error"])

        try:
            await until("the deadline", failed)
        finally:
            kill(worker)

        async def told() -> bool:
            return set(numbers) <= set(await got(talk, "Good"))

        await until("its results", told)
        assert sorted(each for each in await got(talk, "Good") if each in numbers) == numbers


@pytest.mark.slow
async def test_a_dataset_dropped_and_created_again_starts_empty(scene: Scene) -> None:
    script = """
    CREATE DATASET Anew (n BIGINT NOT NULL);
    CREATE FEED AnewWire INTO Anew FROM HTTP;
    CREATE CHANNEL OfAnew(least BIGINT) CONTINUOUS AS
        SELECT a.n, a.n + 1 AS more FROM NEW Anew a WHERE a.n >= :least;
    """
    async with talking(scene.servers, scene.state) as talk:
        await talk.subscribe("OfAnew", 0, broker="east-1")
        expected: list[int] = []
        for _ in range(2):
            await talk.sql(script)
            for _ in range(3):  # versions 1, 2, 3, and again
                expected += await scene.feed(talk, "AnewWire", 2)

                await talk.until_results(len(expected), "east-1")
            reply = await talk.ask("sql", text="DROP DATASET Anew", limit=1)
            assert "channel OfAnew, feed AnewWire" in reply["error"]["message"]
            await talk.sql("DROP CHANNEL OfAnew; DROP FEED AnewWire; DROP DATASET Anew")
        assert sorted(await got(talk, "OfAnew", "east-1")) == expected
