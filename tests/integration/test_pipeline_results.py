"""A channel that reads the results of another, in a real pipeline that is killed: it reads each of them once.

The quick case is killed once, between the commit of what is read and the notice of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.pipeline import PipelineProcess, Talk, talking
from tocsin.runtime.faults import kill_points as points
from tocsin.store.servers.testing import LocalServers

pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")
pytestmark = pytest.mark.xdist_group("networks with spark")

SCRIPT = """
CREATE DATASET Reports (n BIGINT NOT NULL, area STRING);
CREATE FEED Wire INTO Reports FROM HTTP;
CREATE CHANNEL InArea(area STRING) CONTINUOUS AS SELECT r.n FROM NEW Reports r WHERE r.area = :area;
CREATE CHANNEL Everywhere(least BIGINT) CONTINUOUS AS
    SELECT r.n, r._parameters.area AS area, r._execution AS execution
    FROM NEW RESULTS OF InArea r WHERE r.n >= :least;
CREATE CHANNEL Busy(least BIGINT) EVERY 1 SECONDS AS
    SELECT r.area, COUNT(*) AS reports FROM NEW RESULTS OF Everywhere r
    GROUP BY r.area HAVING COUNT(*) >= :least;
"""
AREAS = ("harbour", "hill")


async def begin(talk: Talk) -> None:
    for statement in SCRIPT.strip().split(";\n"):  # each with a deadline of its own: Spark looks at channels
        await talk.sql(statement.rstrip(";\n"))
    for area in AREAS:
        await talk.subscribe("InArea", area, broker="north-1")
        await talk.subscribe("InArea", area, broker="south-1")
    await talk.subscribe("Everywhere", 0, broker="operators")
    await talk.subscribe("Busy", 1, broker="chiefs")


async def feed(talk: Talk, first: int, count: int) -> None:
    await talk.feed("Wire", *({"n": n, "area": AREAS[n % 2]} for n in range(first, first + count)))


async def check(talk: Talk, total: int) -> None:
    """Each record is one result of the first channel, read once by the second, and counted once by the third."""
    told = [json.loads(each.payload) for each in await talk.until_results(total, "operators")]
    assert Counter((each["n"], each["area"]) for each in told) == Counter(
        (n, AREAS[n % 2]) for n in range(total)
    )
    counted: Counter[str] = Counter()
    results = 0
    while sum(counted.values()) < total:
        results += 1
        counted = Counter()
        for each in await talk.until_results(results, "chiefs"):
            row = json.loads(each.payload)
            counted[row["area"]] += row["reports"]
    assert counted == Counter({area: total // 2 for area in AREAS})
    (kept,) = await talk.sql(
        "SELECT COUNT(*) AS n, COUNT(DISTINCT _parameters.area) AS areas FROM RESULTS OF InArea"
    )
    assert kept["rows"] == [[total, len(AREAS)]]


async def run(servers: LocalServers, state: Path, kills: Sequence[str]) -> None:
    """Feed, and be killed, again and again; then count."""
    pipeline = PipelineProcess(servers, state)
    try:
        async with talking(servers, state) as talk:
            for number, point in enumerate(kills):
                pipeline.start(point, mark=f"killed-{number}")
                if number == 0:
                    await begin(talk)
                await feed(talk, number * 10, 10)
                assert pipeline.wait() == -9, pipeline.output()[-3_000:]
            pipeline.start()
            await feed(talk, len(kills) * 10, 10)
            await check(talk, (len(kills) + 1) * 10)
    finally:
        pipeline.stop()


async def test_killed_between_commit_and_notice_each_result_is_read_once(
    servers: LocalServers, tmp_path: Path
) -> None:
    await run(servers, tmp_path / "state", [f"{points.AFTER_COMMIT}:1"])


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_killed_at_every_point_each_result_is_read_once(servers: LocalServers, tmp_path: Path) -> None:
    """In the tick of the channel that is read (1), and in one of those that read (2)."""
    named = (points.BEFORE_COMMIT, points.AFTER_COMMIT, points.AFTER_NOTICE)
    await run(servers, tmp_path / "state", [f"{point}:{count}" for point in named for count in (1, 2)])
