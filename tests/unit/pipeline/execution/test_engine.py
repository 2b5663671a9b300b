"""Executions on Spark: who gets what, what is new to whom, and that one's fault is not the others'."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

pa = pytest.importorskip("pyarrow", reason="install the extra tocsin[spark]")

from tocsin.model.catalogue import Channel, Column, Dataset, Parameter, ParameterType  # noqa: E402
from tocsin.model.results import BackendSubscription, encode_subscription  # noqa: E402
from tocsin.pipeline.execution import subscription_tables as tables  # noqa: E402
from tocsin.pipeline.execution.compiled import compile_channel, compile_select  # noqa: E402
from tocsin.pipeline.execution.engine import Engine  # noqa: E402
from tocsin.pipeline.execution.failures import first_words  # noqa: E402
from tocsin.pipeline.execution.runs import Due, Run  # noqa: E402
from tocsin.pipeline.execution.subscriptions import Subscriptions  # noqa: E402
from tocsin.pipeline.spark.warm_up import warm_up  # noqa: E402
from tocsin.pipeline.storage.datasets import DatasetStore  # noqa: E402
from tocsin.pipeline.storage.results import ResultsStore  # noqa: E402
from tocsin.ports import Change  # noqa: E402
from tocsin.results.reader import ResultsReader  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tocsin.pipeline.spark.session import Spark

pytestmark = pytest.mark.xdist_group("spark")

REPORTS = Dataset("Reports", (Column("who", "STRING"), Column("size", "DOUBLE")))
PEOPLE = Dataset("People", (Column("name", "STRING"), Column("town", "STRING")), key=("name",))
DATASETS = {each.name: each for each in (REPORTS, PEOPLE)}


def channel(name: str, query: str, *parameters: tuple[str, ParameterType], **more: Any) -> Channel:
    return Channel(name, tuple(Parameter(*each) for each in parameters), (), query, 10.0, **more)


ABOUT = channel("About", "SELECT r.who, r.size FROM NEW Reports r WHERE r.who = :who", ("who", "STRING"))


class Bench:
    """An engine with its storage."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.store = DatasetStore(root / "data")
        for dataset in DATASETS.values():
            self.store.create(dataset)
        self.results = ResultsStore(root / "results")
        self.subscriptions = Subscriptions()
        self.engine = Engine(
            spark,
            self.store,
            self.subscriptions,
            results=self.results,
            directory=root / "subscriptions",
            run="run",
            deadline_s=120.0,
        )
        self.tick = 0
        self.last: Run | None = None
        self.channels: dict[str, Channel] = {}

    def define(self, *channels: Channel) -> None:
        for each in channels:
            self.channels[each.name.lower()] = each
            self.engine.define(compile_channel(each, DATASETS))

    def hold(self, name: str, *values: Any, broker: str = "x") -> None:
        cell = BackendSubscription(name, values, broker)
        self.subscriptions.apply(Change("put", cell.key, encode_subscription(cell), 1))

    def release(self, name: str, *values: Any, broker: str = "x") -> None:
        self.subscriptions.apply(Change("delete", BackendSubscription(name, values, broker).key))

    def report(self, *rows: tuple[str, float]) -> int:
        table = pa.table({"who": [who for who, _ in rows], "size": [size for _, size in rows]})
        return self.store.append("Reports", table, now_us=1_000_000)

    def run(self, *due: tuple[str, int]) -> dict[str, list[tuple[str, Any]]]:
        """Execute channels that had read Reports up to a version; what each broker gets: (channel, payload)."""
        self.tick += 1
        self.last = self.engine.execute(
            [Due(name, self.tick, {"reports": since}) for name, since in due], tick=self.tick, at_us=2_000_000
        )
        committed = self.results.commit(self.tick, self.last.parts, at_us=2_000_000)
        reader = ResultsReader(self.results.root)
        found: dict[str, list[tuple[str, Any]]] = {}
        for notice in committed.notices():
            for broker in {file.broker for file in notice.files}:
                for each in reader.read(notice, broker):
                    assert each.execution == self.tick
                    found.setdefault(broker, []).append((each.channel, json.loads(each.payload)))
        for rows in found.values():
            rows.sort(key=str)
        return found

    def done(self, name: str) -> Any:
        assert self.last is not None
        return next(each for each in self.last.done if each.channel.lower() == name.lower())


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(spark, tmp_path)
    yield made
    made.engine.close()


def test_each_broker_gets_the_results_of_what_it_holds(bench: Bench) -> None:
    bench.define(ABOUT)
    bench.hold("About", "ann", broker="x")
    bench.hold("About", "ann", broker="y")
    bench.hold("About", "bob", broker="y")
    bench.report(("ann", 1.0), ("bob", 2.5), ("eve", 3.0))
    found = bench.run(("about", 0))
    ann, bob = ("About", {"who": "ann", "size": 1.0}), ("About", {"who": "bob", "size": 2.5})
    assert found == {"x": [ann], "y": [ann, bob]}
    done = bench.done("about")
    assert (done.results, done.matched, done.read, done.error) == (2, 2, {"reports": 1}, "")
    assert done.took_us > 0


def test_subscriptions_come_and_go_between_executions(bench: Bench) -> None:
    bench.define(ABOUT)
    bench.report(("ann", 1.0), ("bob", 2.0))
    assert bench.run(("about", 0)) == {}, "nobody holds anything"
    assert bench.done("about").read == {"reports": 1}
    bench.hold("About", "ann")
    assert list(bench.run(("about", 0))) == ["x"]
    bench.release("About", "ann")
    bench.hold("About", "bob", broker="y")
    assert bench.run(("about", 0)) == {"y": [("About", {"who": "bob", "size": 2.0})]}


def test_what_is_new_is_what_came_since_the_last_execution_of_each(bench: Bench) -> None:
    other = channel("Other", ABOUT.query, ("who", "STRING"))
    bench.define(ABOUT, other)
    for name in ("About", "Other"):
        bench.hold(name, "ann")
    bench.report(("ann", 1.0))
    bench.report(("ann", 2.0))
    bench.report(("ann", 3.0))
    found = bench.run(("about", 2), ("other", 1))["x"]
    sizes = [(name, row["size"]) for name, row in found]
    assert sizes == [("About", 3.0), ("Other", 2.0), ("Other", 3.0)]
    assert bench.engine.shape("about") == bench.engine.shape("other")


def test_channels_of_one_shape_differ_in_their_constants_and_nobody_else_runs(bench: Bench) -> None:
    query = "SELECT r.size FROM NEW Reports r WHERE r.who = :who AND r.size >= {}"
    many = [channel(f"Above{n}", query.format(f"{n}.0"), ("who", "STRING")) for n in range(5)]
    bench.define(*many)
    assert len({bench.engine.shape(each.name) for each in many}) == 1
    for each in many:
        bench.hold(each.name, "ann")
    bench.report(("ann", 2.5))
    names = [name for name, _ in bench.run(*((each.name.lower(), 0) for each in many))["x"]]
    assert names == ["Above0", "Above1", "Above2"]
    assert [name for name, _ in bench.run(("above1", 0), ("above4", 0))["x"]] == ["Above1"]


def test_a_table_that_is_folded_while_channels_run_gives_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FOLD_MIN", 3)
    bench.define(ABOUT)
    bench.report(*((f"p{n}", float(n)) for n in range(12)))
    for step in range(12):
        bench.hold("About", f"p{step}", broker="xy"[step % 2])
        if step >= 2:
            bench.release("About", f"p{step - 2}", broker="xy"[step % 2])
        found = bench.run(("about", 0))
        held = {f"p{n}" for n in range(max(step - 1, 0), step + 1)}
        assert {row["who"] for rows in found.values() for _, row in rows} == held
    table = bench.engine._tables[bench.engine.shape("about")]
    assert table.folds >= 2


def test_an_order_is_kept_for_each_subscription(bench: Bench) -> None:
    top = channel(
        "Top",
        "SELECT r.size FROM Reports r WHERE r.who = :who ORDER BY r.size DESC LIMIT 2",
        ("who", "STRING"),
    )
    bench.define(top)
    bench.hold("Top", "ann")
    bench.hold("Top", "bob")
    bench.report(("ann", 1.0), ("ann", 3.0), ("ann", 2.0), ("bob", 7.0), ("bob", 9.0), ("bob", 8.0))
    bench.run(("top", 0))
    committed = bench.results.committed()
    assert committed is not None
    rows = ResultsReader(bench.results.root).read(committed.notices()[0], "x")
    of_k: dict[str, list[float]] = {}
    for each in rows:
        of_k.setdefault(each.k, []).append(json.loads(each.payload)["size"])
    assert sorted(of_k.values()) == [[3.0, 2.0], [9.0, 8.0]]


def test_results_are_enriched_from_what_is_stored_and_say_null(bench: Bench) -> None:
    towns = channel(
        "Towns",
        "SELECT r.who, p.town FROM NEW Reports r LEFT JOIN People p ON p.name = r.who WHERE r.size > :least",
        ("least", "DOUBLE"),
    )
    bench.define(towns)
    bench.hold("Towns", 1.5)
    bench.store.append("People", pa.table({"name": ["ann"], "town": ["Ulm"]}), now_us=1)
    bench.store.append("People", pa.table({"name": ["ann"], "town": ["Köln"]}), now_us=2)
    bench.report(("ann", 2.0), ("bob", 2.0), ("eve", 1.0))
    found = bench.run(("towns", 0))["x"]
    assert [row for _, row in found] == [{"who": "ann", "town": "Köln"}, {"who": "bob", "town": None}]


def test_the_time_of_an_execution_is_the_same_for_all(bench: Bench) -> None:
    clock = channel("Clock", "SELECT NOW() AS at FROM Reports r WHERE r.who = :who", ("who", "STRING"))
    bench.define(clock)
    bench.hold("Clock", "ann")
    bench.report(("ann", 1.0))
    assert bench.run(("clock", 0))["x"] == [("Clock", {"at": "1970-01-01T00:00:02.000Z"})]


def test_one_that_fails_does_not_fail_those_of_its_shape(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [channel(f"Same{n}", ABOUT.query, ("who", "STRING")) for n in range(3)]
    bench.define(*many)
    for each in many:
        bench.hold(each.name, "ann")
    bench.report(("ann", 1.0))
    real = Engine._run

    def run(self: Engine, groups: Any, *arguments: Any) -> Run:
        if any(each.channel == "same1" for group in groups for each in group.due):
            raise RuntimeError("[DIVIDE_BY_ZERO] of no use\n  at org.apache.spark.X\nJVM stacktrace:\n…")
        return real(self, groups, *arguments)

    monkeypatch.setattr(Engine, "_run", run)
    found = bench.run(*((each.name.lower(), 0) for each in many))["x"]
    assert [name for name, _ in found] == ["Same0", "Same2"]
    assert bench.done("same1").error == "[DIVIDE_BY_ZERO] of no use"
    assert bench.done("same1").read == {"reports": 0} and bench.done("same0").error == ""


def test_different_channels_of_a_tick_share_a_job_and_keep_their_holders(
    bench: Bench, started_spark: Spark
) -> None:
    large = channel("Large", "SELECT r.size FROM NEW Reports r WHERE r.size > :least", ("least", "DOUBLE"))
    ranked = channel(
        "Ranked",
        "SELECT r.who FROM Reports r WHERE r.size > :least ORDER BY r.size DESC LIMIT 2",
        ("least", "DOUBLE"),
    )
    bench.define(ABOUT, large, ranked)
    bench.hold("About", "ann", broker="x")
    bench.hold("About", "ann", broker="y")
    bench.hold("Large", 2.0, broker="z")
    bench.hold("Large", 1.0, broker="x")
    bench.hold("Ranked", 0.0, broker="z")
    bench.report(("ann", 1.5), ("bob", 2.5), ("eve", 3.0))
    tracker = started_spark.session.sparkContext.statusTracker()
    names = ("about", "large", "ranked")
    apart = bench.run(*((name, 0) for name in names))  # each is new
    assert all(tracker.getJobIdsForGroup(f"tick 1, from {name} on") for name in names)
    bench.engine._quick = {bench.engine.shape(name) for name in names}  # whatever this machine took
    found = bench.run(*((name, 0) for name in names))
    assert [bool(tracker.getJobIdsForGroup(f"tick 2, from {name} on")) for name in names] == [
        True,
        False,
        False,
    ]
    assert found == apart
    assert found == {
        "x": [
            ("About", {"who": "ann", "size": 1.5}),
            *(("Large", {"size": size}) for size in (1.5, 2.5, 3.0)),
        ],
        "y": [("About", {"who": "ann", "size": 1.5})],
        "z": [
            ("Large", {"size": 2.5}),
            ("Large", {"size": 3.0}),
            ("Ranked", {"who": "bob"}),
            ("Ranked", {"who": "eve"}),
        ],
    }
    assert [bench.done(name).results for name in ("about", "large", "ranked")] == [1, 5, 2]
    assert [bench.done(name).matched for name in ("about", "large", "ranked")] == [1, 2, 1]


def test_a_failing_shape_runs_alone_until_it_succeeds_and_costs_others_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = channel("Large", "SELECT r.size FROM NEW Reports r WHERE r.size > :least", ("least", "DOUBLE"))
    bench.define(ABOUT, large)
    bench.hold("About", "ann")
    bench.hold("Large", 0.0)
    real, jobs, broken = Engine._run, [], [True]
    monkeypatch.setattr("tocsin.pipeline.execution.engine.QUICK_S", 1e6)
    bench.engine._quick = {bench.engine.shape(name) for name in ("about", "large")}

    def run(self: Engine, groups: Any, *arguments: Any) -> Run:
        names = [each.channel for group in groups for each in group.due]
        jobs.append(names)
        if broken[0] and "large" in names:
            raise RuntimeError("no")
        return real(self, groups, *arguments)

    monkeypatch.setattr(Engine, "_run", run)
    first = bench.report(("ann", 1.0))
    assert bench.run(("about", 0), ("large", 0)) == {"x": [("About", {"who": "ann", "size": 1.0})]}
    assert (bench.done("about").error, bench.done("large").error) == ("", "no")
    assert jobs == [["about", "large"], ["about"], ["large"]]
    broken[0], jobs[:] = False, []
    second = bench.report(("ann", 3.0))
    assert len(bench.run(("about", first), ("large", 0))["x"]) == 3
    assert sorted(jobs) == [["about"], ["large"]]
    jobs.clear()
    bench.report(("ann", 4.0))
    assert len(bench.run(("about", second), ("large", second))["x"]) == 2
    assert jobs == [["about", "large"]]


def test_an_execution_that_takes_too_long_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = channel(
        "Heavy",
        "SELECT COUNT(*) AS n FROM Reports a, Reports b, Reports c WHERE a.size + b.size + c.size > :least",
        ("least", "DOUBLE"),
    )
    bench.define(heavy, ABOUT)
    bench.hold("Heavy", 1.0)
    bench.hold("About", "p1")
    bench.report(*((f"p{n}", float(n)) for n in range(5_000)))
    bench.run(("about", 0))  # the first time takes longer
    monkeypatch.setattr(bench.engine, "_deadline_s", 6.0)
    found = bench.run(("heavy", 0), ("about", 0))
    assert bench.done("heavy").error == "it took longer than 6 s and was stopped"
    assert bench.done("about").error == "" and len(found["x"]) == 1


@pytest.mark.slow
def test_killed_python_workers_cost_at_most_an_execution_and_repeat_no_result(
    bench: Bench, started_spark: Spark
) -> None:
    bench.define(ABOUT)
    bench.hold("About", "ann")
    bench.report(("ann", 1.0))
    bench.run(("about", 0))
    family = psutil.Process(started_spark.pid).children(recursive=True)
    workers = [each for each in family if "python" in each.name()]
    assert workers, "there are none to kill"
    for each in workers:
        each.kill()
    bench.report(("ann", 2.0))
    for _ in range(5):
        found = bench.run(("about", 1))
        if not bench.done("about").error:
            break
        assert found == {}, "what has failed has told nobody"
    assert found == {"x": [("About", {"who": "ann", "size": 2.0})]}


def test_another_definition_under_the_same_name_takes_its_place(bench: Bench) -> None:
    bench.define(ABOUT)
    bench.hold("About", "ann")
    bench.report(("ann", 5.0))
    assert bench.run(("about", 0))["x"] == [("About", {"who": "ann", "size": 5.0})]
    bench.define(
        channel("About", "SELECT r.size * 2 AS twice FROM NEW Reports r WHERE r.who = :w", ("w", "STRING"))
    )
    assert bench.run(("about", 0))["x"] == [("About", {"twice": 10.0})]
    bench.define(channel("About", "SELECT r.who FROM NEW Reports r WHERE r.size = :s", ("s", "DOUBLE")))
    assert bench.run(("about", 0)) == {} and bench.engine.invalid("about") == 1
    bench.engine.drop("About")
    assert bench.engine.invalid("about") == 0


def test_another_priority_or_period_keeps_the_table(bench: Bench) -> None:
    bench.define(ABOUT)
    bench.hold("About", "ann")
    bench.report(("ann", 1.0))
    bench.run(("about", 0))
    before = bench.engine._tables[bench.engine.shape("about")]
    bench.define(channel("About", ABOUT.query, ("who", "STRING"), priority=7))
    assert bench.engine._tables[bench.engine.shape("about")] is before
    bench.run(("about", 0))
    committed = bench.results.committed()
    assert committed is not None
    (row,) = ResultsReader(bench.results.root).read(committed.notices()[0], "x")
    assert row.priority == 7


def test_people_can_ask_for_rows_results_and_plans(bench: Bench) -> None:
    bench.define(ABOUT)
    bench.hold("About", "ann", broker="x")
    bench.hold("About", "ann", broker="y")
    bench.report(("ann", 1.0), ("bob", 2.0))
    bench.run(("about", 0))
    channels = {
        "about": Channel(
            "About", ABOUT.parameters, (Column("who", "STRING"), Column("size", "DOUBLE")), ABOUT.query
        )
    }

    def select(text: str) -> list[dict[str, Any]]:
        selection = compile_select(text, DATASETS.values(), channels.values())
        rows: list[dict[str, Any]] = bench.engine.select(selection, 10).to_pylist()
        return rows

    assert select("SELECT who, size FROM Reports WHERE size > 1.5") == [{"who": "bob", "size": 2.0}]
    assert select("SELECT size, _tick, _parameters.who AS asked FROM RESULTS OF About") == [
        {"size": 1.0, "_tick": 1, "asked": "ann"}
    ]
    assert "Join" in bench.engine.explain("About")


def test_what_is_played_at_the_start_has_its_results_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert warm_up(spark, tmp_path / "play") == 1
    assert warm_up(spark, tmp_path / "play", thorough=True) == 3
    assert not (tmp_path / "play").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[A_B] something. SQLSTATE: 1\n== SQL (line 1) ==\nSELECT", "[A_B] something. SQLSTATE: 1"),
        ("Job aborted:\nTraceback (most recent call last):\n  File …\nValueError: bad\n\n\tat org.x", "bad"),
        ("Traceback …\ntocsin.pipeline.writer.TooManyResults: one task has\n", "one task has"),
        ("", "RuntimeError"),
        ("x" * 5_000, "x" * 1_000),
    ],
)
def test_errors_of_spark_are_made_short(text: str, words: str) -> None:
    assert first_words(RuntimeError(text)) == words
