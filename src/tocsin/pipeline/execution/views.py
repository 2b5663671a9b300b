"""Views of Spark's session: subscriptions, datasets and results under the names that queries use.

A view costs Spark several milliseconds, so that a view with an unchanged frame is left as it is. How many rows each
has is known without asking Spark, and decides which form of a query is run (``Template.sql_for``).

Spark looks a name up when it is handed a query, and not later: a caller that shows something here and asks for it holds
a lock until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tocsin.pipeline.execution.compiled import ResultsView, Selection, Template
from tocsin.pipeline.execution.runs import Stored
from tocsin.pipeline.storage.datasets import DatasetStore, Snapshot
from tocsin.pipeline.storage.frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Views:
    """The views of one session."""

    def __init__(self, spark: SparkSession, store: DatasetStore) -> None:
        self._spark = spark
        self._frames = Frames(spark, store)
        self._shown: dict[str, DataFrame] = {}  # by name: what it stands for
        self._result_views: dict[str, ResultsView] = {}  # by name: what was made of its rows
        self._texts: dict[tuple[str, str], str] = {}  # template and form → what Spark is asked

    def show(self, name: str, frame: DataFrame) -> None:
        if self._shown.get(name) is not frame:
            frame.createOrReplaceTempView(name)
            self._shown[name] = frame

    def show_dataset(self, snapshot: Snapshot) -> None:
        """The rows that count."""
        self.show(f"data_{snapshot.name.lower()}", self._frames.current(snapshot))

    def show_subscriptions(self, template: Template, subscriptions: DataFrame, at_us: int) -> None:
        if "_now" in template.sql:
            # A row beside every other: as a literal it would have Spark compile again at each execution.
            now = self._spark.sql(f"SELECT timestamp_micros(at) AS _now FROM VALUES ({at_us}L) AS t(at)")
            subscriptions = subscriptions.crossJoin(now)
        self.show(template.subscriptions, subscriptions)

    def show_results(self, view: ResultsView, rows: DataFrame) -> None:
        """A view of results, over these rows of the results dataset."""
        if self._shown.get(view.rows) is not rows or self._result_views.get(view.name) != view:
            self.show(view.rows, rows)
            self.show(view.name, self._spark.sql(view.sql))
            self._result_views[view.name] = view

    def show_all(self, selection: Selection, stored: Stored) -> None:
        """All that a query reads that is run once."""
        for snapshot in stored.datasets.values():
            self.show_dataset(snapshot)
        for view in selection.results:
            self.show_results(view, self._frames.results(stored.found, 0))

    def results(
        self, template: Template, subscribed: int, stored: Stored, since: Mapping[str, int]
    ) -> DataFrame:
        """The rows of a query over ``subscribed`` subscriptions, their columns as one text of JSON.

        ``since``: of each dataset or channel that is read as NEW the position after which rows are new; of one that is
        not there, nothing is.
        """
        rows = {template.subscriptions: subscribed}
        for read in template.reads:
            position = since.get(read.key, stored.position(read)) if read.new else 0
            if read.results:
                self.show_results(template.view_of(read), self._frames.results(stored.found, position))
            elif read.new:
                self.show(read.view, self._frames.new(stored.datasets[read.key], position))
            else:
                self.show_dataset(stored.datasets[read.key])
            rows[read.view] = stored.rows(read, position)
        return self._spark.sql(self._text(template, template.sql_for(rows)))

    def planned(self, template: Template, stored: Stored) -> DataFrame:
        """The same for who only wants to see the plan: with news that are few, but not known to be none."""
        for read in template.reads:
            if read.results:
                some = self._frames.some_results() if read.new else self._frames.results(stored.found, 0)
                self.show_results(template.view_of(read), some)
            elif read.new:
                self.show(read.view, self._frames.some(stored.datasets[read.key]))
            else:
                self.show_dataset(stored.datasets[read.key])
        return self._spark.sql(self._text(template, template.sql))

    def forget(self, template: Template) -> None:
        """A template that nobody has any more."""
        self._shown.pop(template.subscriptions, None)
        for key in [key for key in self._texts if key[0] == template.id]:
            del self._texts[key]
        self._spark.catalog.dropTempView(template.subscriptions)

    def _text(self, template: Template, sql: str) -> str:
        found = self._texts.get((template.id, sql))
        if found is None:
            fields = ", ".join(f"{_text(name)}, {_name(name)}" for name in template.columns)
            payload = f"to_json(named_struct({fields}), map('ignoreNullFields', 'false')) AS payload"
            found = f"SELECT _channel, _k, _rank, _priority, {payload} FROM ({sql})"
            self._texts[template.id, sql] = found
        return found


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _name(value: str) -> str:
    return "`" + value.replace("`", "``") + "`"
