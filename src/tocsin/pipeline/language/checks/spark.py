"""Have Spark look at a compiled channel before it is accepted: the last word on types, and the columns of its results.

Nothing is run. The views have the datasets' columns, and are in a session of their own, beside those that are at work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tocsin.errors import SqlInvalid
from tocsin.model.catalogue import Column, Dataset
from tocsin.pipeline.execution.compiled import SPARK_SETTINGS, Compiled
from tocsin.pipeline.language.tree.query import DIALECT
from tocsin.pipeline.storage.results import RESULTS_DDL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_with_spark(
    spark: SparkSession,
    compiled: Compiled,
    datasets: Iterable[Dataset],
    script: str | None = None,
    at: int = 0,
) -> tuple[Column, ...]:
    """The columns of the channel's results, as Spark sees them. Raises ``SqlInvalid``, pointing into ``script``."""
    template = compiled.template
    session = _session(spark)
    columns = ", ".join(f"{column.name} {column.type}" for column in template.subscription_columns)
    _view(session, template.subscriptions, columns)
    _dataset_views(session, datasets, {read.name.lower() for read in template.reads if not read.results})
    for view in template.results:
        _view(session, view.rows, RESULTS_DDL)
        session.sql(view.sql).createOrReplaceTempView(view.name)
    payload = ", ".join(f"`{name}`" for name in template.columns)
    with pointing(compiled.channel.query, script, at):
        frame = session.sql(template.sql)
        _plan(
            session.sql(
                f"SELECT _channel, _k, _rank, _priority, TO_JSON(STRUCT({payload})) FROM ({template.sql})"
            )
        )
    return tuple(_column(field) for field in frame.schema.fields[4:])


def _session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for key, value in SPARK_SETTINGS.items():
        session.conf.set(key, value)
    return session


def _dataset_views(session: SparkSession, datasets: Iterable[Dataset], wanted: set[str]) -> None:
    for dataset in datasets:
        if dataset.name.lower() in wanted:
            columns = ", ".join(f"`{column.name}` {column.type}" for column in dataset.columns)
            _view(session, f"data_{dataset.name.lower()}", columns)
            _view(session, f"new_{dataset.name.lower()}", columns)


def _view(session: SparkSession, name: str, columns: str) -> None:
    """A view with these columns. Its rows are not known, so that the optimiser cannot make short work of it."""
    session.createDataFrame(session.sparkContext.emptyRDD(), columns).createOrReplaceTempView(name)


def _plan(frame: Any) -> None:
    """Some of what Spark refuses, it refuses only when it plans."""
    frame._jdf.queryExecution().executedPlan()


def _column(field: Any) -> Column:
    kind = exp.DataType.build(field.dataType.simpleString(), dialect=DIALECT).sql(dialect=DIALECT)
    return Column(field.name, kind, field.nullable)


class pointing:
    """While Spark looks at a query: its errors, as ours, at the name that they speak of, if it is found there."""

    def __init__(self, query: str, script: str | None, at: int) -> None:
        self._query = query
        self._whole = query if script is None else script
        self._at = at

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not hasattr(error, "getCondition"):
            return
        said = str(error).partition(" SQLSTATE")[0].partition("\n")[0]
        said = re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", said).replace("`", "").rstrip(".")
        at = next((at for at in self._positions(str(error)) if at >= 0), 0)
        remedy = "change the query so that Spark accepts it"
        raise SqlInvalid(
            self._whole, self._at + at, f"Spark does not accept this: {said[:300]}", remedy
        ) from None

    def _positions(self, said: str) -> Iterator[int]:
        """Where names that Spark puts in backticks or quotes stand in the query."""
        for name in re.findall(r"[`\"](\w+)[`\"]", said):
            match = re.search(rf"\b{re.escape(name)}\b", self._query, re.IGNORECASE)
            yield match.start() if match and not name.startswith("_") else -1
