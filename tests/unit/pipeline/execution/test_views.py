"""What queries find under their names: nothing is made twice, few are known to be few, and no form finds other rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow", reason="install the extra tocsin[spark]")

from tests.unit.pipeline.execution.test_engine import ABOUT, REPORTS, Bench, channel  # noqa: E402
from tocsin.model.catalogue import Column, Dataset  # noqa: E402
from tocsin.pipeline.execution import compiled as plan  # noqa: E402
from tocsin.pipeline.execution import engine as engine_module  # noqa: E402
from tocsin.pipeline.execution.compiled import compile_channel  # noqa: E402
from tocsin.pipeline.execution.runs import Due, Stored  # noqa: E402
from tocsin.pipeline.execution.views import Views  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.xdist_group("spark")

SPOTS = Dataset("Spots", (Column("id", "BIGINT"), Column("place", "STRUCT<x: DOUBLE, y: DOUBLE>")))
NEAR = channel(
    "Near",
    "SELECT s.id FROM NEW Spots s WHERE WITHIN(s.place, XY(:x, :y), 100)",
    ("x", "DOUBLE"),
    ("y", "DOUBLE"),
)


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(spark, tmp_path)
    yield made
    made.engine.close()


class Asked:
    """A session that remembers what it was asked."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.texts: list[str] = []

    def sql(self, text: str) -> DataFrame:
        self.texts.append(text)
        return self._spark.sql(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


def optimized(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


def shown(bench: Bench, asked: Asked, since: int) -> tuple[Views, DataFrame]:
    """What a channel over ABOUT gives by views of its own, with one subscription."""
    views = Views(asked, bench.store)  # type: ignore[arg-type]
    template = compile_channel(ABOUT, {"Reports": REPORTS}).template
    subs = asked.createDataFrame([("c", "k.0", "ann")], "_channel STRING, _k STRING, p0 STRING")
    views.show_subscriptions(template, subs, 0)
    stored = Stored({"reports": bench.store.snapshot("Reports")})
    return views, views.results(template, 1, stored, {"reports": since})


def test_a_view_is_made_again_only_if_it_shows_something_else(
    bench: Bench, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store.append("People", pa.table({"name": ["ann"], "town": ["Ulm"]}), now_us=1)
    views = Views(spark, bench.store)
    made: list[str] = []
    kind = type(spark.range(1))
    real = kind.createOrReplaceTempView

    def make(frame: DataFrame, name: str) -> None:
        made.append(name)
        real(frame, name)

    monkeypatch.setattr(kind, "createOrReplaceTempView", make)
    for _ in range(3):
        views.show_dataset(bench.store.snapshot("People"))
    assert made == ["data_people"]
    bench.store.append("People", pa.table({"name": ["bob"], "town": ["Bonn"]}), now_us=2)
    views.show_dataset(bench.store.snapshot("People"))
    assert made == ["data_people"] * 2
    assert {row.name for row in spark.table("data_people").collect()} == {"ann", "bob"}


def test_of_news_that_are_few_spark_knows_how_many_they_are(bench: Bench, spark: SparkSession) -> None:
    bench.report(*((f"somebody with a name of some length {n}", 1.0) for n in range(5_000)))
    _, found = shown(bench, Asked(spark), since=0)
    assert "LocalRelation" in optimized(found) and "LogicalRDD" not in optimized(found).partition("Join")[0]


def test_news_that_are_none_leave_nothing_to_be_joined(bench: Bench, spark: SparkSession) -> None:
    bench.report(("ann", 1.0))
    _, found = shown(bench, Asked(spark), since=1)
    assert optimized(found).startswith("LocalRelation <empty>")
    assert found.collect() == []


def test_where_nothing_is_new_an_aggregate_still_has_its_row(bench: Bench) -> None:
    bench.define(
        channel("Count", "SELECT COUNT(*) AS n FROM NEW Reports r WHERE r.who = :who", ("who", "STRING"))
    )
    bench.hold("Count", "ann")
    bench.report(("ann", 1.0))
    assert bench.run(("count", 1))["x"] == [("Count", {"n": 0})]


@pytest.mark.parametrize("pairs", [0, 10**9], ids=["by cells", "all pairs"])
def test_whichever_form_is_run_finds_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: int
) -> None:
    monkeypatch.setattr(plan, "PLAIN_PAIRS", pairs)
    bench = Bench(spark, tmp_path)
    try:
        bench.store.create(SPOTS)
        bench.engine.define(compile_channel(NEAR, {"Spots": SPOTS}))
        for x, y in ((0.0, 0.0), (99.0, 0.0), (500.0, 500.0)):
            bench.hold("Near", x, y)
        places = [(0.0, 0.0), (0.0, 100.0), (0.0, 101.0), (450.0, 420.0)]
        rows = pa.table({"id": [0, 1, 2, 3], "place": [{"x": x, "y": y} for x, y in places]})
        bench.store.append("Spots", rows, now_us=1)
        ran = bench.engine.execute([Due("near", 1, {"spots": 0})], tick=1, at_us=1)
        assert (ran.done[0].error, ran.done[0].results, ran.done[0].matched) == ("", 4, 3)
    finally:
        bench.engine.close()


def test_the_form_is_chosen_by_the_rows_that_there_are(
    bench: Bench, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PLAIN_PAIRS", 6)
    bench.store.create(SPOTS)
    asked = Asked(spark)
    views = Views(asked, bench.store)  # type: ignore[arg-type]
    template = compile_channel(NEAR, {"Spots": SPOTS}).template
    columns = "_channel STRING, _k STRING, p0 DOUBLE, p1 DOUBLE, c0 DOUBLE"
    views.show_subscriptions(template, spark.createDataFrame([("c", "k.0", 0.0, 0.0, 100.0)], columns), 0)
    spots = pa.table({"id": [1, 2], "place": [{"x": 0.0, "y": 0.0}] * 2})
    bench.store.append("Spots", spots, now_us=1)
    stored = Stored({"spots": bench.store.snapshot("Spots")})
    for subscribed, form in ((3, template.plain), (4, template.sql)):
        views.results(template, subscribed, stored, {"spots": 0})
        assert f"({form})" in asked.texts[-1]


def test_a_base_stays_cached_when_something_stands_beside_it(bench: Bench) -> None:
    bench.define(ABOUT)
    bench.hold("About", "ann")
    bench.engine.fold()
    bench.report(("ann", 1.0), ("bob", 2.0))
    bench.run(("about", 0))
    bench.hold("About", "bob")
    assert len(bench.run(("about", 0))["x"]) == 2
    assert "InMemoryTableScan" in bench.engine.explain("About")


def test_spark_plans_as_it_goes_only_where_much_is_read(
    bench: Bench, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.define(ABOUT)
    bench.hold("About", "ann")
    bench.report(("ann", 1.0))
    bench.run(("about", 0))
    assert spark.conf.get(engine_module.ADAPTIVE) == "false"
    monkeypatch.setattr(engine_module, "ADAPTIVE_BYTES", 1)
    assert len(bench.run(("about", 0))["x"]) == 1
    assert spark.conf.get(engine_module.ADAPTIVE) == "true"
    monkeypatch.undo()
    monkeypatch.setattr(bench.engine, "_decided", True)
    bench.run(("about", 0))
    assert spark.conf.get(engine_module.ADAPTIVE) == "true", "the operator has decided"


def test_the_view_of_a_shape_that_nobody_has_any_more_is_gone(bench: Bench, spark: SparkSession) -> None:
    bench.define(ABOUT)
    bench.hold("About", "ann")
    bench.report(("ann", 1.0))
    bench.run(("about", 0))
    name = f"subs_{bench.engine.shape('About')}"
    assert spark.catalog.tableExists(name)
    bench.engine.drop("About")
    assert not spark.catalog.tableExists(name)
