"""A pipeline in small, to have Spark do once, out of anybody's way, what it is slow at the first time.

A dataset, a channel over what is new in it, a subscription, an append, an execution, a commit; all in a directory
that is removed. The first time Spark loads and compiles for seconds what then takes tens of milliseconds. It runs when
the pipeline starts, before anybody waits for a result, and when the archive of classes is built. That build is
*thorough*: it runs what else channels and questions are made of, so that their classes are in the archive too.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from tocsin.model.catalogue import Channel, Dataset
from tocsin.model.results import BackendSubscription, encode_subscription
from tocsin.pipeline.execution.compiled import compile_channel, compile_select
from tocsin.pipeline.execution.engine import Engine
from tocsin.pipeline.execution.runs import Due
from tocsin.pipeline.execution.subscriptions import Subscriptions
from tocsin.pipeline.language.checks.spark import check_with_spark
from tocsin.pipeline.language.text.script import read_script
from tocsin.pipeline.language.text.statements import CreateChannel, CreateDataset
from tocsin.pipeline.storage.landing import Landing
from tocsin.pipeline.storage.results import ResultsStore
from tocsin.ports import Change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S: Final = 120.0
WORKERS_MAX: Final = 8
SCRIPT: Final = """
CREATE DATASET Played (about STRING, size DOUBLE);
CREATE CHANNEL Play(about STRING) CONTINUOUS AS
  SELECT p.about, p.size FROM NEW Played p WHERE p.about = :about AND p.size > 1.0;
"""
RECORDS: Final = {"Played": [b'{"about": "rain", "size": 2.0}', b'{"about": "wind", "size": 3.0}']}
MORE_SCRIPT: Final = """
CREATE DATASET People (about STRING NOT NULL, place POINT) KEY (about);
CREATE DATASET Happened (id STRING, place POINT, radius DOUBLE, note STRING, at TIMESTAMP);
CREATE CHANNEL Near(about STRING) EVERY 1 SECONDS AS
  SELECT h.id, CAST(ROUND(DISTANCE(p.place, h.place)) AS BIGINT) AS metres, n.others
  FROM NEW Happened h
  JOIN People p ON p.about = :about AND WITHIN(p.place, h.place, h.radius)
  LEFT JOIN (SELECT x.id, SLICE(ARRAY_SORT(COLLECT_LIST(STRUCT(DISTANCE(x.place, y.place) AS metres, y.about))), 1, 2)
               AS others
             FROM NEW Happened x CROSS JOIN People y GROUP BY x.id) n ON n.id = h.id
  WHERE h.at IS NULL OR SINCE(h.at, INTERVAL '1' DAY)
  ORDER BY h.at, h.id LIMIT 5;
CREATE CHANNEL Counted(about STRING) EVERY 1 SECONDS AS
  SELECT TUMBLE(h.at, INTERVAL '1' HOUR) AS hour, COUNT(*) AS n, AVG(h.radius) AS mean, MAX(h.note) AS note
  FROM Happened h WHERE MATCHES(h.note, :about)
  GROUP BY TUMBLE(h.at, INTERVAL '1' HOUR) HAVING COUNT(*) > 0 ORDER BY n DESC;
"""
MORE_RECORDS: Final = {
    "People": [b'{"about": "rain", "place": {"lon": 8.5, "lat": 47.4}}'],
    "Happened": [b'{"id": "a", "place": {"lon": 8.5, "lat": 47.4}, "radius": 9, "note": "much rain"}'],
}
QUESTION: Final = "SELECT id, COUNT(*) AS n FROM RESULTS OF Near GROUP BY id ORDER BY n DESC, id LIMIT 3"


def warm_up(spark: SparkSession, directory: Path, *, thorough: bool = False) -> int:
    """Run it; the number of results, which is 1, and if ``thorough`` 3."""
    shutil.rmtree(directory, ignore_errors=True)
    waking = threading.Thread(target=wake_workers, args=(spark,), daemon=True)
    waking.start()
    try:
        pipeline = _SmallPipeline(spark, directory)
        try:
            return pipeline.run_thoroughly() if thorough else pipeline.run(SCRIPT, RECORDS, tick=1)
        finally:
            pipeline.engine.close()
    finally:
        waking.join()
        shutil.rmtree(directory, ignore_errors=True)


class _SmallPipeline:
    """Everything that an execution needs."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._landing = Landing(directory)
        self._results = ResultsStore(directory / "results")
        self._subscriptions = Subscriptions()
        self._datasets: dict[str, Dataset] = {}
        self._channels: dict[str, Channel] = {}  # by their names in small letters
        self.engine = Engine(
            spark,
            self._landing.data,
            self._subscriptions,
            results=self._results,
            directory=directory / "subscriptions",
            run="play",
            deadline_s=DEADLINE_S,
        )

    def run(self, script: str, records: dict[str, list[bytes]], tick: int) -> int:
        """Define it, let records come, and execute all channels in one tick; the number of their results."""
        defined: list[str] = []
        for statement in read_script(script):
            match statement:
                case CreateDataset(dataset=dataset):
                    self._datasets[dataset.name] = dataset
                    self._landing.create(dataset)
                case CreateChannel(channel=channel, query_at=at):
                    compiled = compile_channel(channel, self._datasets)
                    columns = check_with_spark(self._spark, compiled, self._datasets.values(), script, at)
                    self._channels[channel.name.lower()] = msgspec.structs.replace(channel, columns=columns)
                    self._subscribe(channel.name, tick)
                    self.engine.define(compiled)
                    defined.append(channel.name)
        for name, some in records.items():
            self._landing.land(name, self._landing.fitter(name).fit(some), feed="play", now_us=tick)
        due = [Due(name, 1, dict.fromkeys(map(str.lower, self._datasets), 0)) for name in defined]
        ran = self.engine.execute(due, tick=tick, at_us=tick)
        return self._results.commit(tick, ran.parts, at_us=tick).rows

    def _subscribe(self, channel: str, revision: int) -> None:
        subscription = BackendSubscription(channel, ("rain",), "nobody")
        self._subscriptions.apply(
            Change("put", subscription.key, encode_subscription(subscription), revision)
        )

    def run_thoroughly(self) -> int:
        """Both scripts, then from a table of subscriptions that is folded, and cached; and a question about it all."""
        found = self.run(SCRIPT, RECORDS, tick=1) + self.run(MORE_SCRIPT, MORE_RECORDS, tick=2)
        self.engine.fold()
        since = dict.fromkeys(map(str.lower, self._datasets), 0)
        self.engine.execute([Due(name, 2, since) for name in self._channels], tick=3, at_us=3)
        asked = compile_select(QUESTION, self._datasets.values(), self._channels.values())
        self.engine.select(asked, limit=10)
        return found


def wake_workers(spark: SparkSession) -> None:
    """Start Spark's Python workers, and have them import what they will need. Nothing depends on it."""
    count = min(spark.sparkContext.defaultParallelism, WORKERS_MAX)
    with contextlib.suppress(Exception):
        spark.range(0, count, 1, count).mapInArrow(_load, "id BIGINT").collect()


def _load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import tocsin.pipeline.execution.writer  # noqa: F401

    return batches
