"""A channel that reads the results of another, wherever the pipeline is killed: it reads each of them once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pq = pytest.importorskip("pyarrow.parquet", reason="install the extra tocsin[spark]")

from tests.unit.pipeline.test_tick import FakeEngine, Killed, World  # noqa: E402
from tocsin.pipeline.execution.runs import Due  # noqa: E402
from tocsin.pipeline.ingest.progress import ChannelProgress  # noqa: E402
from tocsin.pipeline.language.tree.resolution import Read, results_key  # noqa: E402
from tocsin.pipeline.storage.results import ResultsStore  # noqa: E402
from tocsin.runtime.faults import kill_points as points  # noqa: E402

NEAR = results_key("near")


class ReadingEngine(FakeEngine):
    """``far`` reads what is new of the results of ``near``, and tells them on."""

    def reads(self, name: str) -> list[Read]:
        return [Read("Near", new=True, results=True)] if name == "far" else super().reads(name)

    def read(self, due: Due) -> dict[str, int]:
        if due.channel != "far":
            return super().read(due)
        return {NEAR: ResultsStore(self.root).snapshot().tick}

    def payload(self, due: Due) -> str:
        if due.channel != "far":
            return super().payload(due)
        found = []
        for file in ResultsStore(self.root).snapshot().since(due.since[NEAR]):
            rows = pq.read_table(
                self.root / file.path, columns=["channel", "payload"], partitioning=None
            ).to_pylist()
            found += [row["payload"] for row in rows if row["channel"] == "near"]
        return " & ".join(sorted(found))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "results", ReadingEngine)
    yield made
    made.threads.shutdown()


async def results(world: World, channel: str) -> list[str]:
    """All payloads of a channel, in the order of ticks."""
    found = []
    for file in sorted(ResultsStore(world.root).snapshot().files, key=lambda each: each.path):
        rows = pq.read_table(
            world.root / file.path, columns=["channel", "payload"], partitioning=None
        ).to_pylist()
        found += [row["payload"] for row in rows if row["channel"] == channel]
    return found


async def read_by_far(world: World) -> list[str]:
    return [each for payload in await results(world, "far") for each in payload.split(" & ") if each]


async def test_a_reader_sees_the_results_of_earlier_ticks(world: World) -> None:
    ticker, engine, progress = await world.start()
    await ticker.run(["far", "near"], {"reports": 0}, seen=0)
    assert await read_by_far(world) == [], "those of its own tick are not committed yet"
    engine.version = 2
    await ticker.run(["far", "near"], {}, seen=0)
    await ticker.run(["far"], {}, seen=0)
    assert await read_by_far(world) == await results(world, "near") == ["near 1: 0–1", "near 2: 1–2"]
    assert progress.channels["far"].read == {NEAR: 2}


@pytest.mark.parametrize("point", [points.BEFORE_COMMIT, points.AFTER_COMMIT, points.AFTER_NOTICE])
@pytest.mark.parametrize("killed", [["near"], ["far"], ["near", "far"]], ids="+".join)
async def test_killed_anywhere_each_result_is_read_once(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, killed: list[str]
) -> None:
    ticker, engine, _ = await world.start()
    await ticker.run(["far", "near"], {"reports": 0}, seen=0)
    await ticker.run(["far"], {"reports": 0}, seen=0)

    def reach(where: str) -> None:
        if where == point:
            raise Killed

    for version in range(2, 5):
        engine.version = version
        if "near" not in killed:
            await ticker.run(["near"], {"reports": 0}, seen=0)
        monkeypatch.setattr(points, "reach", reach)
        with pytest.raises(Killed):
            await ticker.run(killed, {"reports": 0}, seen=0)
        monkeypatch.undo()
        ticker, engine, _ = await world.start()
        engine.version = version
        await ticker.run(["near", "far"], {"reports": 0}, seen=0)
    await ticker.run(["far"], {"reports": 0}, seen=0)
    own = await results(world, "near")
    assert len(own) > 3 and len(set(own)) == len(own)
    assert await read_by_far(world) == own


async def test_a_position_beyond_the_newest_tick_hides_nothing_that_comes(world: World) -> None:
    ticker, _, progress = await world.start()
    progress.note_channel("far", ChannelProgress(9, {NEAR: 700}, 1))  # of results that are gone
    await ticker.run(["near"], {"reports": 0}, seen=0)
    await ticker.run(["far"], {}, seen=0)
    await ticker.run(["near"], {}, seen=0)
    await ticker.run(["far"], {}, seen=0)
    assert await read_by_far(world) == ["near 2: 1–1"]
