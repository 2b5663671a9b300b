"""Datasets and results as Spark's DataFrames. The only module here that knows Spark.

A frame reads the active files of a snapshot, with an explicit schema: Spark infers nothing and looks for no partitions.
The last small appends come from memory instead.

The rows of a keyed dataset that count are its changes, and those of the base that no change speaks of, if the
changes are settled (see ``keyed``). Until they are, the greatest row of each key has to be found here, which takes
twice as long.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.pipeline.storage.datasets import DatasetStore, Snapshot
from tocsin.pipeline.storage.parts import FILE
from tocsin.pipeline.storage.results import RESULTS_DDL, TICK, Results
from tocsin.pipeline.storage.rows.schema import DELETED, VERSION, Schema
from tocsin.pipeline.storage.tables.files import DataFile

FRAMES_KEPT: Final = 64  # of files that do not change, so that Spark does not look at them again


class Frames:
    """DataFrames of a store's datasets."""

    def __init__(self, spark: SparkSession, store: DatasetStore) -> None:
        self._spark = spark
        self._store = store
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], DataFrame] = OrderedDict()
        self._current: dict[
            str, tuple[tuple[str, tuple[DataFile, ...]], DataFrame]
        ] = {}  # the newest of each
        self._found: Results | None = None  # whose frames are kept …
        self._of_results: dict[int, DataFrame] = {}  # … by the tick after which their rows are

    def current(self, snapshot: Snapshot) -> DataFrame:
        """The rows that count, with the dataset's columns; the same frame as long as the dataset is."""
        name, key = snapshot.name.lower(), (snapshot.schema.ddl, snapshot.files)
        known = self._current.get(name)
        if known is not None and known[0] == key:
            return known[1]
        frame = self._rows(snapshot).select(*_quoted(snapshot.schema.columns))
        self._current[name] = (key, frame)
        return frame

    def new(self, snapshot: Snapshot, since: int) -> DataFrame:
        """The current rows that came after version ``since``, up to the snapshot's."""
        schema = snapshot.schema
        if snapshot.version <= since:
            # Known to be none: Spark leaves out whatever is joined with them.
            return self._spark.createDataFrame(
                schema.arrow.empty_table().select(schema.columns), _ddl(schema, schema.columns)
            )
        if schema.keyed:
            rows = self._rows(snapshot).where(F.col(VERSION) > since)
        elif (recent := self._recent(snapshot, since)) is not None:
            return self._spark.createDataFrame(recent, _ddl(schema, schema.columns))
        else:
            rows = self._read(snapshot, snapshot.since(since)).where(F.col(VERSION) > since)
        return rows.select(*_quoted(schema.columns))

    def results(self, found: Results, since: int) -> DataFrame:
        """The rows of results of later ticks than ``since``: of a result one for each broker that had it.

        The same frame for all who ask for the same.
        """
        if found != self._found:
            self._found, self._of_results = found, {}
        if since not in self._of_results:
            self._of_results[since] = self._results(found, since)
        return self._of_results[since]

    def _results(self, found: Results, since: int) -> DataFrame:
        files = found.since(since)
        if not files:  # known to be none, as above
            return self._spark.createDataFrame(FILE.empty_table(), RESULTS_DDL)
        rows = self._spark.read.schema(RESULTS_DDL).parquet(*(str(found.root / file.path) for file in files))
        mixed = any(file.least[TICK] <= since for file in files)  # with rows of earlier ticks, by upkeep
        return rows.where(F.col(TICK) > since) if mixed else rows

    def some_results(self) -> DataFrame:
        """A frame with the columns of the results dataset, of a few rows as far as Spark knows."""
        return F.broadcast(self._spark.createDataFrame([], RESULTS_DDL))

    def some(self, snapshot: Snapshot) -> DataFrame:
        """A frame with the dataset's columns, of a few rows as far as Spark knows."""
        return F.broadcast(self._empty(snapshot.schema).select(*_quoted(snapshot.schema.columns)))

    def _recent(self, snapshot: Snapshot, since: int) -> pa.Table | None:
        name = snapshot.name.lower()
        rows = self._store.recent.between(name, since, snapshot.version)
        return None if rows is None else rows.select(snapshot.schema.columns)

    def _rows(self, snapshot: Snapshot) -> DataFrame:
        """The rows that count, with our columns."""
        schema = snapshot.schema
        if not schema.keyed:
            return self._read(snapshot, snapshot.files)
        base = self._read(snapshot, snapshot.base)
        if not snapshot.changes:
            return base.where(~F.col(DELETED))
        changes = self._read(snapshot, snapshot.changes)
        if not snapshot.settled:
            changes = _newest(changes, schema)
        if not snapshot.base:
            return changes.where(~F.col(DELETED))
        keys = F.broadcast(changes.select(*(F.col(f"`{name}`").alias(f"_key_{name}") for name in schema.key)))
        same = [base[f"`{name}`"] == keys[f"`_key_{name}`"] for name in schema.key]
        if not snapshot.settled and snapshot.late_before is not None:
            changes = _newest(changes.union(base.join(keys, same, how="left_semi")), schema)
        rest = base.join(keys, same, how="left_anti")
        return rest.union(changes).where(~F.col(DELETED))

    def _read(self, snapshot: Snapshot, files: Sequence[DataFile]) -> DataFrame:
        if not files:
            return self._empty(snapshot.schema)
        paths = snapshot.paths(files)
        key = (snapshot.schema.ddl, tuple(paths))
        frame = self._kept.pop(key, None)
        if frame is None:
            frame = self._spark.read.schema(snapshot.schema.ddl).parquet(*paths)
        self._kept[key] = frame
        while len(self._kept) > FRAMES_KEPT:
            self._kept.popitem(last=False)
        return frame

    def _empty(self, schema: Schema) -> DataFrame:
        return self._spark.createDataFrame([], schema.ddl)


def _newest(rows: DataFrame, schema: Schema) -> DataFrame:
    """The greatest row of each key; the order has no ties."""
    order = F.struct(*_quoted(schema.order))
    whole = F.struct(*_quoted(rows.columns))
    best = rows.groupBy(*_quoted(schema.key)).agg(F.max_by(whole, order).alias("_row"))
    return best.select("_row.*")


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def _ddl(schema: Schema, columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {schema.type_of(name).text}" for name in columns)
