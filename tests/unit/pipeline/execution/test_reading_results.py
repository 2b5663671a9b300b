"""Channels over channels on Spark: what is new to whom, once however many brokers had it; and the how-to page."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import structlog

pa = pytest.importorskip("pyarrow", reason="install the extra tocsin[spark]")

from tests.unit.pipeline.execution.test_engine import ABOUT, DATASETS, Bench, channel  # noqa: E402
from tocsin.model.catalogue import Channel, Column, Dataset  # noqa: E402
from tocsin.pipeline.execution.compiled import compile_channel, compile_select  # noqa: E402
from tocsin.pipeline.execution.runs import Due  # noqa: E402
from tocsin.pipeline.language.checks.spark import check_with_spark  # noqa: E402
from tocsin.pipeline.language.text.script import read_script  # noqa: E402
from tocsin.pipeline.language.text.statements import CreateChannel, CreateDataset  # noqa: E402
from tocsin.pipeline.language.tree.resolution import results_key  # noqa: E402
from tocsin.pipeline.storage.tables import planning  # noqa: E402
from tocsin.results.reader import ResultsReader  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "channels-over-channels.md"
ABOUT_RESULTS = msgspec.structs.replace(ABOUT, columns=(Column("who", "STRING"), Column("size", "DOUBLE")))
COUNTS = channel(
    "Counts",
    "SELECT r._parameters.who AS who, COUNT(*) AS n, SUM(r.size) AS sum FROM NEW RESULTS OF About r "
    "GROUP BY r._parameters.who HAVING COUNT(*) >= :least",
    ("least", "BIGINT"),
)
ALL = channel("All", "SELECT COUNT(*) AS n FROM RESULTS OF About WHERE size > :least", ("least", "DOUBLE"))


class Chain(Bench):
    """A bench whose channels read each other; each reads what is new since it ran."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        super().__init__(spark, root)
        self.datasets: dict[str, Dataset] = dict(DATASETS)
        self.since: dict[str, dict[str, int]] = {}

    def define(self, *channels: Channel) -> None:
        for each in channels:
            compiled = compile_channel(each, self.datasets, channels=self.channels.values())
            self.channels[each.name.lower()] = each
            self.engine.define(compiled)
            self.since[each.name.lower()] = {read.key: 0 for read in compiled.template.reads if read.new}

    def execute(self, *names: str) -> dict[str, list[tuple[str, Any]]]:
        """A tick: what it committed, by broker: (channel, payload)."""
        self.tick += 1
        due = [Due(name, self.tick, self.since[name]) for name in names]
        ran = self.engine.execute(due, tick=self.tick, at_us=2_000_000 + self.tick)
        for done in ran.done:
            assert not done.error, done.error
            self.since[done.channel] = done.read
        found: dict[str, list[tuple[str, Any]]] = {}
        reader = ResultsReader(self.results.root)
        for notice in self.results.commit(self.tick, ran.parts, at_us=2_000_000 + self.tick).notices():
            for broker in {file.broker for file in notice.files}:
                rows = [(each.channel, json.loads(each.payload)) for each in reader.read(notice, broker)]
                found.setdefault(broker, []).extend(rows)
        return found


@pytest.fixture
def chain(spark: SparkSession, tmp_path: Path) -> Iterator[Chain]:
    made = Chain(spark, tmp_path)
    yield made
    made.engine.close()


def test_results_are_read_once_by_each_reader_over_many_ticks(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a count by hand: chance says what is reported, who runs, and when upkeep puts files together."""
    monkeypatch.setattr(planning, "COMPACT_FILES", 2)
    chance = random.Random(7)
    chain.define(ABOUT_RESULTS, COUNTS, ALL)
    for who, brokers in (("ann", "xy"), ("bob", "y"), ("eve", "z")):
        for broker in brokers:
            chain.hold("About", who, broker=broker)
    chain.hold("Counts", 1, broker="operators")
    chain.hold("Counts", 3, broker="chiefs")
    chain.hold("All", 0.5, broker="operators")
    unread: list[tuple[str, float]] = []  # by Counts
    everything: list[tuple[str, float]] = []
    for _ in range(7):
        reported = [
            (chance.choice(("ann", "bob", "eve", "nobody")), chance.random())
            for _ in range(chance.randrange(5))
        ]
        if reported:
            chain.report(*reported)
        runs = ["about", *(["counts", "all"] if chance.random() < 0.6 else [])]
        found = chain.execute(*runs)
        if "counts" in runs:
            groups = {who: [size for name, size in unread if name == who] for who, _ in unread}
            for broker, least in (("operators", 1), ("chiefs", 3)):
                told = [row for name, row in found.get(broker, []) if name == "Counts"]
                expected = {who: len(sizes) for who, sizes in groups.items() if len(sizes) >= least}
                assert {row["who"]: row["n"] for row in told} == expected and len(told) == len(expected)
                assert all(row["sum"] == pytest.approx(sum(groups[row["who"]])) for row in told)
            (count,) = [row["n"] for name, row in found["operators"] if name == "All"]
            assert count == sum(size > 0.5 for _, size in everything)
            unread = []
        new = [(who, size) for who, size in reported if who != "nobody"]
        unread, everything = unread + new, everything + new
        if chance.random() < 0.5:
            chain.results.upkeep(2_000_000 + 3_600_000_000, keep_s=None, floor=0)
    assert everything and Counter(who for who, _ in everything)["ann"] > 1


def test_a_reader_that_comes_late_is_told_that_results_are_gone(chain: Chain) -> None:
    chain.define(ABOUT_RESULTS, COUNTS)
    chain.hold("About", "ann")
    chain.hold("Counts", 1, broker="operators")
    for size in (1.0, 2.0, 3.0):
        chain.report(("ann", size))
        chain.execute("about")
    chain.results.upkeep(2_000_000 + 3_600_000_000, keep_s=60, floor=3)
    with structlog.testing.capture_logs() as logs:
        found = chain.execute("counts")
        chain.execute("counts")
    assert [row["n"] for _, row in found["operators"]] == [1]
    (said,) = [each for each in logs if "forgotten" in each["event"]]
    assert (said["channel"], said["missed"]) == ("counts", [results_key("About")])


def test_a_parameter_that_is_renamed_is_renamed_in_results_to_come(chain: Chain) -> None:
    renamed = channel("About", ABOUT.query.replace(":who", ":name"), ("name", "STRING"))
    renamed = msgspec.structs.replace(renamed, columns=ABOUT_RESULTS.columns)
    chain.define(ABOUT_RESULTS)
    chain.hold("About", "ann")
    chain.report(("ann", 1.0))
    chain.execute("about")
    chain.define(renamed)
    chain.execute("about")
    question = "SELECT _tick, _parameters.name AS name FROM RESULTS OF About"
    selection = compile_select(question, chain.datasets.values(), [renamed])
    older = compile_select(question.replace("name", "who"), chain.datasets.values(), [ABOUT_RESULTS])
    assert len(chain.engine.select(older, 10)) == 2
    rows = chain.engine.select(selection, 10).to_pylist()
    assert {row["_tick"]: row["name"] for row in rows} == {1: None, 2: "ann"}


def test_the_plan_of_a_reader_can_be_seen(chain: Chain) -> None:
    chain.define(ABOUT_RESULTS, COUNTS, ALL)
    chain.hold("About", "ann")
    chain.report(("ann", 1.0))
    chain.execute("about")
    assert "Join" in chain.engine.explain("Counts") and "parquet" in chain.engine.explain("All")


def test_the_how_to_page_alerts_operators_of_busy_areas_once(chain: Chain, spark: SparkSession) -> None:
    (script,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    chain.datasets = {}
    for statement in read_script(script):
        match statement:
            case CreateDataset(dataset=dataset):
                chain.datasets[dataset.name] = dataset
                chain.store.create(dataset)
            case CreateChannel(channel=made, query_at=at):
                compiled = compile_channel(
                    made, chain.datasets, script, at, channels=tuple(chain.channels.values())
                )
                columns = check_with_spark(spark, compiled, chain.datasets.values(), script, at)
                chain.define(msgspec.structs.replace(made, columns=columns))
    centers = {"harbour": (8.0, 50.0), "hill": (9.0, 51.0), "meadow": (10.0, 52.0)}
    places = {name: {"lon": lon, "lat": lat} for name, (lon, lat) in centers.items()}
    areas = {"name": list(places), "center": list(places.values()), "radius": [1_000.0] * 3}
    chain.store.append("Areas", pa.table(areas), now_us=1)
    for area in places:
        chain.hold("EmergenciesIn", area, broker="north-1")
    chain.hold("EmergenciesIn", "hill", broker="south-1")
    chain.hold("BusyAreas", 2, broker="operators")
    happened = ["harbour"] * 4 + ["hill"] * 3 + ["meadow"] * 2
    emergencies = {
        "id": list(range(9)),
        "kind": ["flood"] * 9,
        "place": [places[area] for area in happened],
    }
    chain.store.append("Emergencies", pa.table(emergencies), now_us=1)
    assert len(chain.execute("emergenciesin")["north-1"]) == 9
    assert chain.execute("busyareas") == {
        "operators": [("BusyAreas", {"areas": "harbour, hill", "emergencies": 7})]
    }
    assert chain.execute("busyareas") == {}, "they were alerted"
