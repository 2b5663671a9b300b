"""What is written down of the experiments, and the pictures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import pytest

from tocsin.errors import OperatorError
from tocsin_labs import drawing, recorded
from tocsin_labs.figures import Spread
from tocsin_labs.pubsubcoord import failure, locality
from tocsin_labs.pubsubcoord.crowd import Heard
from tocsin_labs.pubsubcoord.failure import Failed
from tocsin_labs.pubsubcoord.joiners import Told
from tocsin_labs.pubsubcoord.joining import Joined
from tocsin_labs.pubsubcoord.locality import Kept, Point, System
from tocsin_labs.pubsubcoord.plan import Plan, Way, plan
from tocsin_labs.pubsubcoord.run import (
    COMMAND,
    Results,
    begin,
    comparisons,
    draw,
    heading,
    run,
    summary,
    write,
)
from tocsin_labs.pubsubcoord.site import Cost
from tocsin_labs.stage import Stage

COST = Cost(share=0.1, share_most=0.2, mb=80.0, mb_most=90.0)


def spread(mean: float) -> Spread:
    found = Spread.of([mean - 1, mean + 1])
    assert found is not None
    return found


def heard(mean: float, lost: int = 0) -> Heard:
    return Heard(
        sent=1_000, lost=lost, doubled=0, disordered=0, all_ms=spread(mean), local_ms=None, across_ms=spread(mean),
        between_ms=spread(50.0), late_ms=spread(1.0), bins=tuple(range(20)), silences_s=(0.06, 0.2, 0.3),
    )  # fmt: skip


def point(system: System, share: float, mean: float, topics: int = 100) -> Point:
    floor = Plan().wan.floor_ms(share)
    return Point(
        system=system, topics=topics, locality=share, floor_ms=floor, heard=heard(mean), edges=COST, hubs=COST
    )


def failed(way: Way, lost: int = 0) -> Failed:
    return Failed(
        way=way, hub="hub-1", part=0.2, happened_s=0.1, empty_s=1.5 if way == "drained" else None,
        period_s=0.05, flight=144, heard=heard(100.0, lost),
    )  # fmt: skip


def joined(count: int) -> Joined:
    told = Told(count, 0, spread(15.0), 2.5)
    return Joined(told=told, log_entries=100, log_bytes=60 * count, leader_s=0.5, leader_mb=70.0)


def results() -> Results:
    found = begin(Plan())
    found.points = [point("tocsin", 0.1, 95.0), point("tocsin", 0.9, 30.0), point("nats", 0.1, 94.0)]
    found.kept = [Kept(100, 10_000.0, 900.0, 901.0)]
    found.joined = [joined(2_000), joined(4_000)]
    found.failures = [failed("nothing"), failed("drained"), failed("killed", 120)]
    return found


def test_each_point_stands_beside_the_paper_the_floor_and_its_target() -> None:
    rows = {(row.experiment, row.figure): row for row in comparisons(results())}
    row = rows["Figure 6, 100 topics, locality 0.1", "mean; floor 92"]
    assert (row.paper, row.ours) == (152.4, 95.0)
    assert row.target == pytest.approx(98.0)
    assert rows["Figure 6, 100 topics, locality 0.9", "an edge broker, of one processor"].paper == 22.3
    peer = rows["Figure 6, NATS leaf nodes, 100 topics, locality 0.1", "mean; floor 92"]
    assert (peer.paper, peer.ours, peer.target) == (None, 94.0, None)
    local = rows["Figure 6, 100 topics, all local (10000 messages/s)", "for a local message"]
    assert local.ours == pytest.approx(1e-4)


def test_a_failure_says_who_was_interrupted_and_what_was_lost() -> None:
    rows = {(row.experiment, row.figure): row for row in comparisons(results())}
    name = "Failure, a hub is killed"
    assert rows[name, "longest silence of a topic"].ours == 300
    assert rows[name, "topics interrupted"].ours == pytest.approx(200 / 3)
    assert rows[name, "silence of an interrupted topic, median"].ours == 200
    assert rows[name, "lost, of 1,000; on the hub's ways at a time 144"].ours == 120
    drained = "Failure, a hub is drained, and stopped"
    assert rows[drained, "from the order until it carried nothing"].ours == 1.5


def test_a_join_has_its_part_of_the_log() -> None:
    rows = {(row.experiment, row.figure): row for row in comparisons(results())}
    row = rows["Figure 7c, 2,000 joins", "in force, median"]
    assert (row.paper, row.target) == (10, 10)
    assert rows["Figure 7c, 4,000 joins", "log, for each"].ours == 60


def test_everything_is_written_and_a_partial_run_says_so(tmp_path: Path) -> None:
    found = results()
    found.partial = True
    write(found, tmp_path)
    assert msgspec.convert(json.loads((tmp_path / "results.json").read_text()), Results) == found
    assert "cut short" in (tmp_path / "summary.md").read_text()
    for name, rows in (("locality", 3), ("failure", 3), ("joining", 2)):
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == rows
    assert "round trips of 20 ms in a LAN and 80 ms to the cloud" in heading(found)
    assert f"`{COMMAND}` wrote this page" in summary(found)


def test_a_run_is_drawn_from_its_directory_alone(tmp_path: Path) -> None:
    if not drawing.available():
        pytest.skip("matplotlib is not installed")
    write(results(), tmp_path)
    out = tmp_path / "pictures"
    out.mkdir()
    assert [each.name for each in recorded.draw(tmp_path, out)] == [
        "failure.png",
        "joining.png",
        "locality.png",
    ]


def test_without_matplotlib_a_remedy_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(drawing, "available", lambda: False)
    assert "pip install" in draw(results(), tmp_path)


async def test_only_what_is_asked_for_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def fail(given: Plan, stage: Stage, found: list[Failed]) -> None:
        found.append(failed("killed"))
        raise OperatorError("the network is gone", "Try again")

    async def never(*_: object) -> None:
        raise AssertionError("it was not asked for")

    monkeypatch.setattr(failure, "run", fail)
    monkeypatch.setattr(locality, "run", never)
    stage = Stage(tmp_path, lambda words, part: None)
    with pytest.raises(OperatorError):
        await run(plan(quick=True, seed=2), stage, ("failure",))
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["partial"] and len(kept["failures"]) == 1, "what there was is kept"
