"""The pipeline as a process, on a real store and a real Spark: killed anywhere, each result is there and told once.

The quick case, with a broker and a subscriber behind it, is in ``test_channel_faults``.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.pipeline import DEADLINE_S, PipelineProcess, Talk, talking
from tocsin.runtime.faults import kill_points as points
from tocsin.store.servers.testing import LocalServers

pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")
pytestmark = pytest.mark.xdist_group("networks with spark")

SCRIPT = """
CREATE DATASET Reports (n BIGINT NOT NULL, who STRING);
CREATE FEED Wire INTO Reports FROM HTTP;
CREATE CHANNEL About(who STRING) CONTINUOUS AS SELECT r.n FROM NEW Reports r WHERE r.who = :who;
CREATE CHANNEL Every(least BIGINT) EVERY 1 SECONDS PRIORITY 5 AS
    SELECT r.n, r.who FROM NEW Reports r WHERE r.n >= :least;
"""


def no_java_of(state: Path) -> bool:
    """Whether no Java with this state directory runs, nor a Python worker of one."""
    for process in psutil.process_iter(["cmdline", "name"]):
        words = process.info["cmdline"] or []
        if "java" in (process.info["name"] or "") and any(str(state) in word for word in words):
            return False
    return True


async def until_no_java(state: Path) -> None:
    for _ in range(int(DEADLINE_S / 0.1)):
        if no_java_of(state):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("a Java is left over")


async def begin(talk: Talk) -> None:
    answers = await talk.sql(SCRIPT)
    assert len(answers) == 4
    await talk.subscribe("About", "ann", broker="north-1")
    await talk.subscribe("About", "ann", broker="south-1")
    await talk.subscribe("Every", 0, broker="south-1")


async def feed(talk: Talk, first: int, count: int) -> None:
    records: list[Any] = [{"n": n, "who": "ann" if n % 2 else "bob"} for n in range(first, first + count)]
    await talk.feed("Wire", *records, {"n": f"bad {first}", "who": "ann"})


async def check(talk: Talk, total: int, bad: int) -> None:
    """Each record was told once to whom it concerns, and is once in the dataset; what does not fit is in quarantine."""
    odd = [n for n in range(total) if n % 2]
    for broker, expected in (
        ("north-1", {"About": odd}),
        ("south-1", {"About": odd, "Every": list(range(total))}),
    ):
        found = await talk.until_results(sum(map(len, expected.values())), broker)
        of_channel: dict[str, Counter[int]] = {}
        for each in found:
            of_channel.setdefault(each.channel, Counter())[json.loads(each.payload)["n"]] += 1
        assert of_channel == {name: Counter(numbers) for name, numbers in expected.items()}
        assert all(each.priority == (5 if each.channel == "Every" else 0) for each in found)
    ticks = [notice.tick for notice in await talk.notices()]
    assert ticks == sorted(set(ticks)), "told twice, or in another order"
    (rows,) = await talk.sql("SELECT COUNT(*) AS n, COUNT(DISTINCT n) AS different FROM Reports")
    assert rows["rows"] == [[total, total]]
    for channel, count in (("About", len(odd)), ("Every", total)):
        (kept,) = await talk.sql(f"SELECT COUNT(*) AS n FROM RESULTS OF {channel}")
        assert kept["rows"] == [[count]]
    status = await talk.ask("status")
    (dataset,) = status["datasets"]
    assert (dataset["rows"], dataset["quarantined"]) == (total, bad)


async def run(servers: LocalServers, state: Path, kills: Sequence[str]) -> None:
    """Feed, and be killed, again and again; then count."""
    pipeline = PipelineProcess(servers, state)
    try:
        async with talking(servers, state) as talk:
            for number, point in enumerate(kills):
                pipeline.start(f"{point}:1", mark=f"killed-{number}")
                if number == 0:
                    await begin(talk)
                await feed(talk, number * 10, 10)
                assert pipeline.wait() == -9, pipeline.output()[-3_000:]
                await until_no_java(state)
            pipeline.start()
            await feed(talk, len(kills) * 10, 10)
            await check(talk, (len(kills) + 1) * 10, len(kills) + 1)
    finally:
        pipeline.stop()
    assert no_java_of(state), "a Java is left over"


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_killed_at_every_point_each_result_is_told_once(servers: LocalServers, tmp_path: Path) -> None:
    await run(
        servers,
        tmp_path / "state",
        [points.IN_INGEST, points.BEFORE_COMMIT, points.AFTER_COMMIT, points.AFTER_NOTICE],
    )


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_the_log_grows_while_nothing_runs_and_a_backlog_is_sliced(
    servers: LocalServers, tmp_path: Path
) -> None:
    """Also: the store's server is killed under the pipeline, and comes back."""
    state = tmp_path / "state"
    pipeline = PipelineProcess(servers, state, ["pipeline.ingest_batch=5000"])
    pipeline.start()
    try:
        async with talking(servers, state) as talk:
            await begin(talk)
            pipeline.kill()
            await until_no_java(state)
            for start in range(0, 120_000, 1_000):
                await talk.feed("Wire", [{"n": n, "who": "eve"} for n in range(start, start + 1_000)])
            await talk.feed("Wire", *({"n": n, "who": "eve"} for n in range(120_000, 130_000)))
            pipeline.start()
            await asyncio.sleep(1.0)
            (name,) = servers.names
            servers.kill(name)
            servers.start(name)
            found = await talk.until_results(130_000, "south-1", deadline_s=600)
            assert sorted(json.loads(each.payload)["n"] for each in found) == list(range(130_000))
            assert len({each.execution for each in found}) > 1, "slices were executed as they came"
    finally:
        pipeline.stop()
