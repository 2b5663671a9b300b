"""What is written down of the experiments, and the pictures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import pytest

from labs.tests.landmark.test_latency import outcome
from labs.tests.landmark.test_scale import fate, kill
from tocsin.errors import OperatorError
from tocsin_labs import drawing
from tocsin_labs.figures import Spread
from tocsin_labs.landmark import control, latency, objects, scale, sequence
from tocsin_labs.landmark.bandwidth import Narrowed
from tocsin_labs.landmark.control import Controlled
from tocsin_labs.landmark.crowd import Account
from tocsin_labs.landmark.latency import Trial
from tocsin_labs.landmark.objects import Recovered
from tocsin_labs.landmark.plan import QUICK, Condition, Latency, Plan, plan
from tocsin_labs.landmark.run import (
    EXPERIMENTS,
    Results,
    begin,
    comparisons,
    draw,
    heading,
    run,
    summary,
    write,
)
from tocsin_labs.landmark.scale import Effort, Kill, Rest
from tocsin_labs.landmark.sequence import Message, Sequenced, Visit
from tocsin_labs.landmark.tables import LATE, REPLACED
from tocsin_labs.stage import Stage

PICTURES = ("control", "objects", "latency", "sequence", "scale", "bandwidth")


def controlled(brokers: int, rate: float) -> Controlled:
    spread = Spread.of([rate - 1, rate + 1])
    assert spread is not None
    return Controlled(
        brokers=brokers, total=spread, payload=rate / 2, coordinator=1.0, heartbeats=0.1 * brokers, busy=0.1
    )


def recovered(kind: objects.Kind, count: int, kb: float) -> Recovered:
    return Recovered(
        kind=kind, count=count, run=1, total=kb, payload=kb / 2, coordinator=kb / 4, clients=1.0, idle=2.0,
        home_s=None,
    )  # fmt: skip


def trial(failures: int, seconds: float | None, lost: int = 0) -> Trial:
    outcomes = tuple(outcome(f"b{number}", served_s=seconds) for number in range(failures))
    return Trial(
        detect="aggressive",
        failures=failures,
        run=1,
        outcomes=outcomes,
        account=Account(100, lost),
        wrongly=0,
    )


def results() -> Results:
    found = begin(Plan(), "tocsin lab landmark --seed 7")
    found.control = [controlled(10, 20.0), controlled(40, 80.0)]
    found.objects = [
        recovered("queues", 0, 100.0),
        recovered("queues", 10, 140.0),
        recovered("routes", 5, 90.0),
    ]
    found.latency = [trial(1, 1.2), trial(5, 1.5)]
    found.resting = {"aggressive": 0.2}
    found.sequence = [
        Sequenced(
            way="standby",
            messages=(Message(1, 0.0, 0.1), Message(2, 1.0, 4.0, expires=True), Message(3, 2.0, None)),
            visits=(Visit(-1.0, "north-1"), Visit(2.0, "north-2")),
            killed_s=0.5,
            detected_s=1.5,
            replaced_s=None,
            back_s=5.0,
            account=Account(3, 1),
            duplicates=0,
            expired=2,
        )
    ]
    found.bandwidth = [
        Narrowed(condition=condition, trials=(trial(1, 1.2),), carried_mbit=3.0)
        for condition in (Condition(), Condition(10.0, 0.5))
    ]
    found.rests = [rest(40, 4.0), rest(1_000, 100.0)]
    large = msgspec.structs.replace(kill(*[fate()] * 100), brokers=1_000, what=scale.TENTH)
    found.kills = [kill(fate()), kill(fate(), fate(taken_over_s=3.0)), large]
    return found


def rest(brokers: int, rate: float) -> Rest:
    effort = Effort(span_s=10.0, leader_s=1.0)
    return Rest(
        brokers=brokers, detect="default", messages=3.0 * brokers, heartbeats=rate, wrongly=0, effort=effort
    )


def figure(name: str, words: str, found: Results) -> tuple[float | None, float | None, float | None]:
    (row,) = [row for row in comparisons(found) if row.experiment == name and row.figure == words]
    return row.paper, row.ours, row.target


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_each_table_stands_beside_the_papers() -> None:
    found = results()
    assert figure("Table 1, 40 brokers", "control traffic, with headers", found) == (89.49, 80.0, None)
    assert figure("Table 1, 40 brokers", "of one broker, with headers", found) == (89.49 / 40, 2.0, None)
    paper, ours, target = figure("Table 1, 10 brokers", "of one broker, heartbeats", found)
    assert (paper, target) == (2.397, 0.2)
    assert ours == pytest.approx(0.1)
    assert figure("Table 2, 10 queues", "recovery traffic", found) == (595.80, 140.0, None)
    paper, ours, _ = figure("Table 2", "each of the queues adds", found)
    assert paper == 10.0
    assert ours == pytest.approx(4.0)
    assert figure("Table 3, 5 routes", "recovery traffic", found) == (627.87, 90.0, None)
    assert figure("Table 4, aggressive, 5 at once", "recovered, mean", found) == (14.37, 1.5, 1.0)
    assert figure("Table 4, aggressive, 5 at once", f"{REPLACED}, mean", found) == (14.37, 1.0, None)
    assert figure("Table 4, aggressive, 5 at once", f"{REPLACED}, longest", found) == (15.71, 1.0, None)
    paper, ours, target = figure("Table 4, aggressive", "5 at once, against one", found)
    assert paper == pytest.approx(14.37 / 2.92)
    assert ours == pytest.approx(1.25)
    assert figure("Fig 8, standby", "messages lost", found) == (0, 1, 1)
    assert figure("Fig 8, standby", "longest from sending to arrival", found) == (None, 3.0, None)
    assert figure("Fig 8, standby", "oldest delivered message that expires", found) == (None, 3.0, None)
    assert figure("Fig 8, standby", "messages that expired undelivered", found) == (None, 2, None)
    name = "Table 4, 10 Mbit/s, 50% of it taken, 1 at once"
    assert figure(name, f"{REPLACED}, mean", found) == (2.92, 1.0, None)
    assert figure("Table 4, no limit", LATE, found) == (None, 0, None)
    name = "Table 4, no limit, 1 at once"
    assert figure(name, f"{REPLACED}, mean", found) == (None, 1.0, None)


def test_what_is_simulated_stands_beside_the_paper_where_it_has_that_size() -> None:
    found = results()
    name = "Table 1, simulated, 40 brokers, default"
    assert figure(name, "heartbeats alone", found) == (89.49, 4.0, None)
    assert figure(name, "of one broker, heartbeats", found) == (89.49 / 40, 0.1, 0.2)
    name = "Table 1, simulated, 1000 brokers, default"
    assert figure(name, "heartbeats alone", found) == (None, 100.0, None)
    assert figure(name, "the leader at rest", found) == (None, 10.0, None)
    name = "Table 4, simulated, 24 brokers, default"
    assert figure(f"{name}, 2 at once", "all recorded as lost, mean", found) == (None, 1.0, None)
    assert figure(f"{name}, 2 at once", "somebody stands in for each, mean", found) == (5.50, 3.0, 3.0)
    assert figure(f"{name}, 2 at once", "a standby in a broker's place, mean", found) == (5.50, 6.0, None)
    assert figure(name, "2 at once, against one", found) == (5.50 / 2.92, 2.0, 1.5)
    assert figure(name, "brokers taken for lost wrongly", found) == (None, 0, 1)
    assert figure(name, "the leader while brokers recover", found) == (None, 25.0, None)
    name = "Table 4, simulated, 1000 brokers, default, a tenth at once"
    assert figure(name, "somebody stands in for each, mean", found) == (None, 1.5, 3.0)
    assert figure(name, "all have backups again, mean", found) == (None, 3.0, None)
    assert figure(name, "the leader meanwhile, mean", found) == (None, 1.0, 1.0)
    assert "virtual time" in heading(found)


def test_sizes_beyond_the_paper_show_only_fewest_and_most_failures() -> None:
    found = results()
    several = [kill(*[fate()] * count) for count in (1, 2, 3)]
    found.kills = [msgspec.structs.replace(each, brokers=100) for each in several]
    shown = {row.experiment for row in comparisons(found) if "100 brokers" in row.experiment}
    name = "Table 4, simulated, 100 brokers, default"
    assert shown == {name, f"{name}, 1 at once", f"{name}, 3 at once"}


def test_a_simulated_run_that_is_not_over_in_time_is_said() -> None:
    found = results()
    found.kills = [kill(fate()), kill(fate(), planned_s=None)]
    name = "Table 4, simulated, 24 brokers, default, 1 at once"
    assert figure(name, "runs that did not recover in time", found)[1] == 1


def test_a_run_without_recovery_is_reported_and_left_out_of_means() -> None:
    found = results()
    found.latency = [trial(1, 1.2), trial(1, None)]
    assert figure("Table 4, aggressive, 1 at once", "recovered, mean", found)[1] == pytest.approx(1.2)
    assert figure("Table 4, aggressive, 1 at once", "runs that did not recover in time", found)[1] == 1


def test_a_condition_under_which_one_run_did_not_recover_has_no_mean() -> None:
    found = results()
    trials = (trial(1, 1.2), trial(1, None))
    found.bandwidth = [Narrowed(condition=Condition(2.0), trials=trials, carried_mbit=2.0)]
    words = "all subscribers have a new message, mean"
    assert figure("Table 4, 2 Mbit/s, 1 at once", words, found)[1] is None


def test_places_that_no_standby_took_in_time_are_counted() -> None:
    found = results()
    empty = outcome("b", replaced_s=None)
    found.latency = [trial(1, 1.2), msgspec.structs.replace(trial(1, 1.2), outcomes=(empty,))]
    words = "runs with a place that no standby took in time"
    assert figure("Table 4, aggressive, 1 at once", words, found)[1] == 1


def test_lost_messages_are_in_the_table() -> None:
    found = results()
    found.latency = [trial(1, 1.2, lost=3), trial(2, 1.2, lost=4)]
    assert figure("Table 4, aggressive", "messages lost", found)[1] == 7


def test_everything_is_written_and_can_be_read_back(tmp_path: Path) -> None:
    found = results()
    write(found, tmp_path)
    known = json.loads((tmp_path / "results.json").read_text())
    assert known["latency"][1]["failures"] == 5
    assert "`tocsin lab landmark --seed 7` wrote this page on" in (tmp_path / "summary.md").read_text()
    rows = table(tmp_path / "latency.csv")
    assert [row["broker"] for row in rows] == ["b0", "b0", "b1", "b2", "b3", "b4"]
    assert [row["mbit"] for row in table(tmp_path / "bandwidth.csv")] == ["", "10.000000"]
    assert float(rows[-1]["recovered_s"]) == 1.5
    assert len(table(tmp_path / "control.csv")) == 2
    assert [row["kind"] for row in table(tmp_path / "objects.csv")][-1] == "routes"
    arrivals = [row["arrived_s"] for row in table(tmp_path / "sequence.csv")]
    assert arrivals == ["0.100000", "4.000000", ""]
    rows = table(tmp_path / "scale.csv")
    assert [row["failed"] for row in rows] == ["1", "2", "100"]
    assert rows[1]["taken_over_s"] == "3.000000"
    assert (rows[1]["span_s"], rows[1]["leader_s"]) == ("4.000000", "1.000000")
    rows = table(tmp_path / "scale-rest.csv")
    assert [(row["brokers"], row["leader"]) for row in rows] == [("40", "0.100000"), ("1000", "0.100000")]


def test_nothing_found_is_an_empty_table(tmp_path: Path) -> None:
    found = begin(Plan())
    write(found, tmp_path)
    assert comparisons(found) == []
    assert summary(found).startswith("# Figures of the Landmark experiments\n")
    assert not (tmp_path / "latency.csv").exists()


def test_the_heading_says_what_the_figures_are_of() -> None:
    found = results()
    assert "seed 1" in heading(found)
    found.partial = True
    assert "cut short" in heading(found)
    assert "not to be compared" in heading(begin(plan(quick=True, seed=2)))
    assert plan(quick=True, seed=2).seed == 2
    assert plan(quick=False, seed=1) == Plan()
    assert QUICK.latency != Latency()


def test_the_heading_does_not_call_real_what_was_simulated() -> None:
    found = results()
    assert "real processes" in heading(found) and "*simulated* are of one process" in heading(found)
    found.rests = []
    assert "simulated" not in heading(found)
    alone = begin(Plan())
    alone.rests = [rest(40, 4.0)]
    assert heading(alone).startswith("Simulated with") and "real" not in heading(alone)


async def test_experiments_run_in_order_and_only_those_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    whole = results()

    async def controls(given: object, stage: Stage, found: list[Controlled]) -> None:
        done.append("control")
        found += whole.control

    async def recoveries(given: object, stage: Stage, found: list[Recovered]) -> None:
        done.append("objects")
        found += whole.objects

    async def latencies(
        given: object, seed: int, stage: Stage, found: list[Trial], resting: dict[str, float]
    ) -> None:
        done.append("latency")
        found += whole.latency
        stage.cut()

    async def sequences(given: object, stage: Stage, found: list[Sequenced]) -> None:
        done.append("sequence")
        found += whole.sequence
        raise OperatorError("the network is gone", "Try again")

    async def scales(given: object, seed: int, stage: Stage, rests: list[Rest], kills: list[Kill]) -> None:
        done.append("scale")
        rests += whole.rests
        kills += whole.kills

    for module, stand_in in (
        (control, controls), (objects, recoveries), (latency, latencies), (sequence, sequences), (scale, scales)
    ):  # fmt: skip
        monkeypatch.setattr(module, "run", stand_in)
    stage = Stage(tmp_path, lambda words, part: None)
    found = await run(Plan(), stage, ("control", "latency", "sequence"))
    assert done == ["control", "latency"], "nothing begins after it was cut short"
    assert found.partial
    known = json.loads((tmp_path / "results.json").read_text())
    assert known["partial"]
    assert len(known["latency"]) == 2
    done.clear()
    stage = Stage(tmp_path, lambda words, part: None)
    await run(Plan(), stage, EXPERIMENTS[:2])
    assert done == ["control", "objects"]
    assert not json.loads((tmp_path / "results.json").read_text())["partial"]
    done.clear()
    assert (await run(Plan(), stage, ("scale",))).kills == whole.kills
    assert done == ["scale"]
    with pytest.raises(OperatorError):
        await run(Plan(), stage, ("sequence",))
    known = json.loads((tmp_path / "results.json").read_text())
    assert known["partial"], "and what there was is kept"
    assert len(known["sequence"]) == 1


def test_there_is_a_picture_of_each_experiment(tmp_path: Path) -> None:
    assert draw(results(), tmp_path) == f"pictures are in {tmp_path}"
    for name in PICTURES:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "available", lambda: False)
    assert "tocsin[lab]" in draw(results(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_subscriber_that_stays_away_over_several_runs_counts_once() -> None:
    found = results()
    away = "c1-b1-1 is at 127.0.0.1:2, and not at 127.0.0.1:1"
    found.latency = [msgspec.structs.replace(trial(1, 1.2), strays=(away,)) for _ in range(3)]
    assert figure("Table 4, aggressive", "subscribers not home again in time", found)[1] == 1


def test_subscribers_not_served_after_recovery_are_counted_against_a_target_of_none() -> None:
    found = results()
    found.latency = [
        msgspec.structs.replace(trial(1, 1.2), unserved=("c1-b1-1 is nowhere (…), and tries again",))
    ]
    assert figure("Table 4, aggressive", "subscribers not served when all are back", found) == (None, 1, 1)
