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
from tocsin_labs.pubsubcoord import deadline, failure, locality, places, quota
from tocsin_labs.pubsubcoord.crowd import Heard, Own, Window
from tocsin_labs.pubsubcoord.deadline import Flow, Kind
from tocsin_labs.pubsubcoord.failure import Failed
from tocsin_labs.pubsubcoord.hubs import Added, Stand, Step
from tocsin_labs.pubsubcoord.joiners import Told
from tocsin_labs.pubsubcoord.joining import Joined
from tocsin_labs.pubsubcoord.locality import Kept, Point, System
from tocsin_labs.pubsubcoord.overlay import Leg, Paths, Sent
from tocsin_labs.pubsubcoord.plan import Plan, Way, plan
from tocsin_labs.pubsubcoord.run import (
    COMMAND,
    Results,
    begin,
    comparisons,
    draw,
    heading,
    impossible,
    run,
    stated,
    summary,
    write,
)
from tocsin_labs.pubsubcoord.site import Cost
from tocsin_labs.pubsubcoord.topics import Shape, Weighed, fitted
from tocsin_labs.pubsubcoord.virtual import Size, Virtual
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
        way=way, hub="hub-1", part=0.2, happened_s=0.1, empty_s={"drained": 1.5, "moved": 2.5}.get(way),
        period_s=0.05, flight=144, heard=heard(100.0, lost),
    )  # fmt: skip


def joined(count: int) -> Joined:
    told = Told(count, 0, spread(15.0), 2.5)
    return Joined(told=told, log_entries=100, log_bytes=60 * count, leader_s=0.5, leader_mb=70.0)


def weighed(topics: int, share: float, readers: int = 1, lans: int = 1) -> Weighed:
    cost = Cost(share=share, share_most=share, mb=80.0, mb_most=80.0)
    return Weighed(
        shape=Shape(topics, readers, lans), messages_s=20.0 * topics, floor_ms=100.0, heard=heard(103.0), source=cost,
        hub=cost, target=cost,
    )  # fmt: skip


def virtual(hubs: int, share: float) -> Virtual:
    size = Size(20, 100, hubs, 1_000, 10, 0.05, 0.010, 0.040)
    return Virtual(
        size=size, in_s=20_000.0, out_s=200_000.0, floor_ms=100.0, all_ms=spread(101.0), source_share=0.1,
        hub_share=share / 1.1, hub_share_most=share, target_share=0.2, uneven=1.1,
    )  # fmt: skip


def stand(hubs: int, capacity_s: float) -> Stand:
    step = Step(
        offered_s=capacity_s, p50_ms=110.0, p99_ms=130.0, lost=0, late_p99_ms=2.0, hub=COST, follows=True
    )
    over = msgspec.structs.replace(step, offered_s=1.1 * capacity_s, follows=False)
    windows = tuple(Window(at / 2, 100, 110.0, 900.0 if at < 4 else 120.0) for at in range(20))
    added = None if hubs == 1 else Added(1.2 * capacity_s, 1.5, 2.0, 0, 0, 0, windows)
    return Stand(
        hubs=hubs, share=0.025, by="control groups, version 1", rest_p99_ms=120.0, steps=(step, over), uneven=1.05,
        added=added,
    )  # fmt: skip


def flow(kind: Kind, case: int, delay_s: float, mean: float, loss: float = 0.0, size: int = 200_000) -> Flow:
    leg = Leg(delay_s, loss)
    own = Own(sent=1_000, lost=0, doubled=0, disordered=0, all_ms=spread(mean))
    return Flow(
        kind=kind, case=case, paths=Paths(leg, leg, leg), lasts_s=50.0, rest=Sent(), sent=Sent(size // 2, size // 2),
        own=own, late_p99_ms=1.0, message_bytes=size / 1_000, further_bytes=size / 2_000,
    )  # fmt: skip


def results() -> Results:
    found = begin(Plan())
    found.weighed = [
        weighed(20, 0.01),
        weighed(50, 0.02),
        weighed(200, 0.08),
        weighed(50, 0.04, 3),
        weighed(50, 0.03, 1, 5),
    ]
    found.crowded = [virtual(40, 0.1)]
    found.stands = [stand(1, 1_000.0), stand(2, 1_900.0)]
    found.clouds = [virtual(5, 0.5), virtual(10, 0.25)]
    found.flows = [
        flow("single", 0, 0.030, 62.0), flow("single", 0, 0.125, 277.0, 0.01), flow("single", 1, 0.030, 62.0),
        *(flow("twin", case, 0.030, 32.0 + case, size=380_000) for case in range(1, 9)),
    ]  # fmt: skip
    found.points = [point("tocsin", 0.1, 95.0), point("tocsin", 0.9, 30.0), point("nats", 0.1, 94.0)]
    found.kept = [Kept(100, 10_000.0, 900.0, 901.0)]
    found.joined = [joined(2_000), joined(4_000)]
    found.failures = [failed("nothing"), failed("moved"), failed("drained"), failed("killed", 120)]
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
    moved = "Failure, every slot moves to another hub"
    assert rows[moved, "from the order until every slot had moved"].ours == 2.5


def test_a_join_has_its_part_of_the_log() -> None:
    rows = {(row.experiment, row.figure): row for row in comparisons(results())}
    row = rows["Figure 7c, 2,000 joins", "in force, median"]
    assert (row.paper, row.target) == (10, 10)
    assert rows["Figure 7c, 4,000 joins", "log, for each"].ours == 60


def test_what_messages_cost_is_found_from_loads_that_differ_in_one_thing() -> None:
    costs = fitted(results().weighed)
    assert costs.hub_s == pytest.approx(0.08 / 4_000)
    assert costs.reader_s == pytest.approx(0.02 / 1_000 / 2)
    assert costs.out_s == pytest.approx(0.01 / 1_000 / 4)
    assert costs.hub_line.slope == pytest.approx(2e-5, rel=0.1)
    rows = {(row.experiment, row.figure): row for row in comparisons(results())}
    assert rows["Figure 7a, 50 topics, 1 subscriber each", "mean; floor 100"].target == 106
    assert rows["Figure 7a, 200 topics, 1 subscriber each", "mean; floor 100"].target is None
    assert rows["Figure 7d, a message", "a processor forwards, one to one"].ours == pytest.approx(50_000)
    assert rows["Figure 7d, a message", "a processor sends out, one to ten"].ours == pytest.approx(
        10 / 42.5e-6
    )


def test_hubs_stand_beside_so_many_times_the_first() -> None:
    rows = {(row.experiment, row.figure): row for row in comparisons(results())}
    name = "Figure 7b, 2 hubs of 2.5 % of a processor"
    assert rows[name, "followed, highest"].ours == 1_900
    assert rows[name, "2 × one hub's, over that"].ours == pytest.approx(2 / 1.9)
    assert rows[name, "and has helped after"].ours == 2.0
    busiest = rows[
        "Figure 7b, virtual, 5 hubs (20,000 messages/s in, 200,000 out)", "busiest hub, of one processor"
    ]
    assert busiest.ours == 50


def test_what_the_paper_says_in_words_is_held_against_the_figures() -> None:
    said = {claim.words: claim for claim in stated(results())}
    assert said["the tier carries more with more routing brokers"].holds
    assert not said["5 routing brokers are saturated by the paper's load"].holds
    assert said["10 are not"].holds
    assert said["processor use of edge brokers grows linearly with the topics"].figure == "7d"
    assert "| 7b | 10 are not | holds |" in summary(results())


def test_a_flow_says_what_a_message_brought_to_the_links() -> None:
    single = flow("single", 1, 0.030, 62.0)
    assert (single.message_bytes, single.direct_bytes, single.floor_ms) == (200.0, 100.0, 60.0)
    rows = {(row.experiment, row.figure): row for row in comparisons(results())}
    assert rows["Figure 8a, 125 ms 1 %", "mean; floor 250"].ours == 277
    assert rows["Table 1, case 1 (AAA), one path", "on the links, for a message"].ours == 200
    name = "Table 1, case 1 (AAA), with a twin"
    assert rows[name, "mean; floor 30"].target == 36
    assert rows[name, "bytes against one path"].ours == pytest.approx(1.9)
    assert rows[name, "of a further topic, against one with a budget and no copies"].ours == pytest.approx(
        1.0
    )
    said = {claim.words: claim for claim in stated(results())}
    assert said["cases 1 to 4 (of 5) beat every single path (with a twin)"].holds
    assert said["all cases beat a single path of 125 ms and 1 % (with a twin)"].holds


def test_a_case_has_the_least_budget_that_its_best_way_can_keep() -> None:
    asked = [deadline.budget_s(Plan(), paths) for paths in deadline.cases(Plan())]
    assert asked == [0.05, 0.05, 0.05, 0.05, 0.1, 0.3, 0.3, 0.3]


def test_what_cannot_run_here_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "problem", lambda: "Operation not permitted (/dev/net/tun)")
    monkeypatch.setattr(quota, "place", lambda: None)
    assert set(impossible()) == {"deadline", "hubs"}
    with pytest.raises(OperatorError, match="TUN"):
        deadline.check()
    with pytest.raises(OperatorError, match="control group"), quota.quotas():
        raise AssertionError("there are none")


def test_everything_is_written_and_a_partial_run_says_so(tmp_path: Path) -> None:
    found = results()
    found.partial = True
    write(found, tmp_path)
    assert msgspec.convert(json.loads((tmp_path / "results.json").read_text()), Results) == found
    assert "cut short" in (tmp_path / "summary.md").read_text()
    for name, rows in (
        ("locality", 3),
        ("failure", 4),
        ("joining", 2),
        ("topics", 5),
        ("hubs", 4),
        ("virtual", 3),
        ("deadline", 11),
    ):
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
        "deadline.png",
        "failure.png",
        "hubs.png",
        "joining.png",
        "locality.png",
        "topics.png",
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
