"""The measurement of channels, small: what is counted is right, and the production classes run in it."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow", reason="install the extra tocsin[spark]")
pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")

from bench.channels import workloads as w  # noqa: E402
from bench.channels.executions import Plan, measure, measure_emergencies  # noqa: E402
from bench.channels.figures import ALONE, DUCKDB, SPARK, Execution, Report, growth_of, latency  # noqa: E402
from bench.channels.peers import Duck  # noqa: E402
from bench.channels.run import merged, targets  # noqa: E402
from bench.load.dialect import Mqtt, packet  # noqa: E402
from bench.load.figures import spread  # noqa: E402
from tocsin.pipeline.spark.session import Spark  # noqa: E402


def execution(how: str, subscriptions: int, ms: float, workload: str = "equality") -> Execution:
    return Execution(
        workload=workload,
        how=how,
        subscriptions=subscriptions,
        publications=1_000,
        results=subscriptions / 10,
        ms=spread([ms, ms]),
        turns=2,
    )


def report(*executions: Execution) -> Report:
    return Report(
        quick=True,
        machine="",
        load=(0.0, 0.0),
        executions=list(executions),
        ratios=[],
        growth=[],
        costs=[],
        due=[],
        fairness=None,
        latencies=[latency("SUBACK of a new subscription", [0.06, 0.07, 0.02])],
        rates=[],
        targets=[],
        notes=[],
    )


@pytest.mark.parametrize("workload", w.WORKLOADS, ids=lambda each: each.name)
def test_one_subscription_in_ten_thousand_is_interested_in_a_publication(workload: w.Workload) -> None:
    rows = workload.publications(random.Random(3), 100).to_pylist()
    values = [workload.values(i) for i in range(20_000)]
    assert len(set(values)) == len(values), "each is a subscription of its own"
    if workload is w.EQUALITY:
        matched = sum(row["about"] == about for row in rows for about, _ in values)
    else:
        matched = sum(
            math.hypot(row["place"]["x"] - float(x), row["place"]["y"] - float(y)) <= w.RADIUS_M
            for row in rows
            for x, y in values
        )
    assert 0.75 * 200 < matched < 1.25 * 200


def test_each_curve_has_its_growth_and_a_single_point_has_none() -> None:
    found = growth_of(
        [
            execution(SPARK, 10_000, 100.0),
            execution(SPARK, 1_000_000, 100.0),
            execution(ALONE, 10_000, 7.0),
            execution(ALONE, 1_000_000, 700.0),
            execution(SPARK, 100_000, 5.0, workload="emergencies"),
        ]
    )
    assert [(each.how, round(each.slope, 6)) for each in found] == [(SPARK, 0), (ALONE, 1)]


def test_a_target_is_reached_by_the_median_and_named_when_missed() -> None:
    found = {each.what.partition(",")[0]: each for each in targets(report(execution(SPARK, 100_000, 599.0)))}
    assert found["equality"].reached
    assert not found["SUBACK of a new subscription"].reached
    assert found["SUBACK of a new subscription"].best == "20 ms"
    (missed, _) = targets(report(execution(SPARK, 100_000, 601.0)))
    assert not missed.reached


def test_what_is_measured_again_takes_the_place_of_the_old() -> None:
    old = report(execution(SPARK, 10_000, 9.0), execution(SPARK, 100_000, 5.0, workload="emergencies"))
    new = report(execution(SPARK, 10_000, 7.0), execution(SPARK, 20_000, 7.0))
    found = merged(old, new)
    assert [(each.workload, each.ms.median) for each in found.executions] == [
        ("emergencies", 5.0),
        ("equality", 7.0),
        ("equality", 7.0),
    ]
    assert len(found.latencies) == 1 and [round(each.slope, 6) for each in found.growth] == [0]
    assert [each.results for each in found.rates] == [10_000], "of the execution with the most results"
    assert merged(None, new).executions == new.executions


def test_a_client_counts_what_comes_in_pieces_and_acknowledges_it() -> None:
    from bench.channels.network import BenchClient

    class Wire:
        def __init__(self) -> None:
            self.sent = b""

        def write(self, data: bytes) -> None:
            self.sent += data

    heard: list[bytes] = []
    client, wire = BenchClient(lambda data, now: heard.append(data)), Wire()
    client.transport = wire  # type: ignore[assignment]
    data = (
        Mqtt().publish_once_stored("a", b'{"id":1}', 7) + Mqtt().publish("a", b"x") + packet(0x40, b"\0\1\0")
    )
    for at in range(0, len(data), 3):
        client.data_received(data[at : at + 3])
    assert client.count == 2 and [each[-1:] for each in heard] == [b"}", b"x"]
    assert wire.sent == packet(0x40, b"\0\7")


@pytest.mark.parametrize("workload", w.WORKLOADS, ids=lambda each: each.name)
def test_duckdb_finds_what_comparing_all_pairs_does(workload: w.Workload, tmp_path: Path) -> None:
    rows = workload.publications(random.Random(5), 50)
    duck = Duck(workload, 20_000, tmp_path / "results")
    _, results = duck.run(rows)
    duck.close()
    values = [workload.values(i) for i in range(20_000)]
    if workload is w.EQUALITY:
        expected = sum(about == topic for about in rows["about"].to_pylist() for topic, _ in values)
    else:
        expected = sum(
            math.hypot(place["x"] - float(x), place["y"] - float(y)) <= w.RADIUS_M
            for place in rows["place"].to_pylist()
            for x, y in values
        )
    assert results == expected > 50


@pytest.mark.xdist_group("spark")
async def test_executions_are_measured_on_a_real_spark(started_spark: Spark, tmp_path: Path) -> None:
    plan = Plan((200,), (500,), warm=0, turns=2, lonely=1, people=200, emergencies=300)
    found, _ = await measure(started_spark, tmp_path, w.EQUALITY, 200, plan)
    people = await measure_emergencies(started_spark, tmp_path, plan)
    assert [each.how for each in found] == [SPARK, DUCKDB, ALONE]
    ours = found[0]
    assert ours.turns == 2 and ours.results > 0 and ours.cpu_ms > 0 and 0 < ours.ms.low <= ours.ms.high
    assert people.results > 0 and people.subscriptions == 200
