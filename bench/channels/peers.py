"""The same work done otherwise: by DuckDB on this machine, and with a query of Spark's for each subscription.

DuckDB has the subscriptions in a table of its own, joins them with the publications, and its rows go through the same
writer into the same files and the same commit. Without DuckDB the other figures are still measured.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.channels.stage import BROKERS, now_us
from bench.channels.workloads import Workload
from tocsin.model.results import k_of
from tocsin.pipeline.execution.subscription_tables import Holders
from tocsin.pipeline.execution.writer import Running, Writer, written
from tocsin.pipeline.storage.parts import TaskOutput
from tocsin.pipeline.storage.results import ResultsStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HAS_DUCKDB = importlib.util.find_spec("duckdb") is not None


class Duck:
    """DuckDB with the subscriptions of one workload."""

    def __init__(self, workload: Workload, subscriptions: int, root: Path) -> None:
        duckdb: Any = importlib.import_module("duckdb")
        self._workload = workload
        self._connection: Any = duckdb.connect()
        self._connection.execute(f"SET threads = {len(os.sched_getaffinity(0))}")
        name = workload.channel.name
        values = [workload.values(i) for i in range(subscriptions)]
        subs = pa.table(
            {
                "_channel": pa.repeat(name, subscriptions),
                "_k": [f"{k_of(name, each)}.{i % len(BROKERS)}.{{}}" for i, each in enumerate(values)],
                "p0": [each[0] for each in values],
                "p1": [each[1] for each in values],
            }
        )
        self._connection.register("arrow_subs", subs)
        self._connection.execute("CREATE TABLE subs AS SELECT * FROM arrow_subs")
        self._connection.unregister("arrow_subs")
        self._results = ResultsStore(root)
        self._tick = 0

    def run(self, publications: pa.Table) -> tuple[float, int]:
        """From publications in memory to a commit: seconds, and how many results."""
        began = time.perf_counter()
        self._tick += 1
        name = self._workload.channel.name
        self._connection.register("new", publications)
        found = self._connection.sql(self._workload.duckdb).to_arrow_reader(50_000)
        place = TaskOutput(str(self._results.root), self._tick, "duck", now_us())
        holders = Holders(tuple((broker,) for broker in BROKERS), {})
        writer = Writer(place, 0, {name: Running(name, self._tick, 3)}, holders)
        parts, _ = written([writer.write(map(_ranked, found), 0, self._tick)])
        committed = self._results.commit(self._tick, parts, at_us=place.at_us)
        return time.perf_counter() - began, committed.rows

    def close(self) -> None:
        self._connection.close()


def _ranked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with the columns that the writer looks for besides."""
    nothing = pa.nulls(batch.num_rows, pa.int64())
    columns = [batch["_channel"], batch["_k"], nothing, nothing.cast(pa.int32()), batch["payload"]]
    names = ["_channel", "_k", "_rank", "_priority", "payload"]
    return pa.record_batch(
        [each.cast(pa.string()) if each.type == pa.large_string() else each for each in columns], names
    )


def alone(
    spark: SparkSession, workload: Workload, publications: pa.Table, numbers: Sequence[int]
) -> list[float]:
    """Seconds that each of these subscriptions takes if it is asked by itself; nothing is written or committed."""
    spark.createDataFrame(publications).createOrReplaceTempView("new")
    taken = []
    for number in numbers:
        began = time.perf_counter()
        spark.sql(workload.alone.format(*workload.values(number))).toArrow()
        taken.append(time.perf_counter() - began)
    return taken
