"""The dumb model of a channel: one query for each tuple of parameters, with the values written into it as literals."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tocsin.model.catalogue import Channel, Dataset
from tocsin.model.results import Value, k_of
from tocsin.pipeline.execution.compiled import SPARK_SETTINGS, Compiled, compile_channel, rows_of
from tocsin.pipeline.language.text.script import read_script
from tocsin.pipeline.language.text.statements import CreateChannel, CreateDataset
from tocsin.pipeline.language.tree.resolution import results_columns
from tocsin.pipeline.storage.results import RESULTS_DDL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = "2026-03-01 12:00:00"
Row = Sequence[Any]
Result = tuple[int, tuple[Value, ...], Row]  # of a channel: its tick, the parameters, and the columns
Tuples = Sequence[tuple[Value, ...]]
Outcomes = dict[tuple[str, tuple[Value, ...]], list[str]]  # (channel, values) → payloads, sorted

# Queries of a few rows: no generated code, no shuffle, no plan that changes meanwhile.
_QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# What may follow a table's name without being its alias.
_CLAUSES = (
    "JOIN|WHERE|LEFT|RIGHT|FULL|ORDER|GROUP|CROSS|INNER|UNION|ON|USING|LIMIT|HAVING|EXCEPT|INTERSECT|"
    "WINDOW|SEMI|ANTI"
)


def datasets_of(script: str) -> list[Dataset]:
    return [each.dataset for each in read_script(script) if isinstance(each, CreateDataset)]


def channel_of(text: str) -> Channel:
    (statement,) = read_script(text)
    assert isinstance(statement, CreateChannel)
    return statement.channel


def channel(parameters: str, query: str, name: str = "C") -> Channel:
    return channel_of(f"CREATE CHANNEL {name}({parameters}) CONTINUOUS AS {query}")


class World:
    """Datasets with rows, as views of a session of its own."""

    def __init__(self, spark: SparkSession, datasets: Sequence[Dataset]) -> None:
        self.session = spark.newSession()
        self.datasets = {dataset.name: dataset for dataset in datasets}
        self.channels: dict[str, Channel] = {}  # whose results can be read
        for key, value in {**_QUICK, **SPARK_SETTINGS}.items():
            self.session.conf.set(key, value)

    def fill(self, name: str, rows: Sequence[Row], new: Sequence[Row] = ()) -> None:
        """The rows of a dataset, and those that are new, which it has too."""
        dataset = self.datasets[name]
        schema = ", ".join(f"`{column.name}` {column.type}" for column in dataset.columns)
        for prefix, content in (("data_", [*rows, *new]), ("new_", [*new])):
            frame = self.session.createDataFrame([tuple(row) for row in content], schema)
            frame.createOrReplaceTempView(f"{prefix}{name.lower()}")

    def fill_results(self, channel: Channel, results: Sequence[Result], since: int) -> None:
        """The results of a channel, of which those of ticks behind ``since`` are new: as they are stored, each for two
        brokers, and as a table of typed columns.
        """
        self.channels[channel.name] = channel
        columns = results_columns(channel)
        stored, typed = [], []
        for number, (tick, values, row) in enumerate(results):
            k = k_of(channel.name, values)
            said = dict(zip([each.name.lower() for each in channel.parameters], values, strict=True))
            payload = dict(zip([each.name for each in channel.columns], row, strict=True))
            written = [msgspec.json.encode(each).decode() for each in (payload, said)]
            stored += [
                (tick, channel.name, tick * 10, k, 0, number, _typed(NOW, "TIMESTAMP"), 2, *written)
            ] * 2
            typed.append((*row, tick, tick * 10, _typed(NOW, "TIMESTAMP"), k, 2, tuple(said.values())))
        schema = ", ".join(f"`{column.name}` {column.type}" for column in columns)
        for prefix, after in (("results_", 0), ("newresults_", since)):
            name = f"{prefix}{channel.name.lower()}"
            some = [row for row in typed if row[len(channel.columns)] > after]
            self.session.createDataFrame(some, schema).createOrReplaceTempView(f"plain_{name}")
            rows = [row for row in stored if row[0] > after]
            self.session.createDataFrame(rows, RESULTS_DDL).createOrReplaceTempView(rows_of(name))

    def compile(self, channel: Channel) -> Compiled:
        compiled = compile_channel(channel, self.datasets, channels=self.channels.values())
        for view in compiled.template.results:
            self.session.sql(view.sql).createOrReplaceTempView(view.name)
        return compiled

    def run(self, *subscribed: tuple[Compiled, Tuples], plain: bool = False) -> Outcomes:
        """What each subscription gets."""
        return {
            key: sorted(payload for _, payload in rows) for key, rows in self._run(subscribed, plain).items()
        }

    def run_in_order(self, *subscribed: tuple[Compiled, Tuples]) -> Outcomes:
        found = self._run(subscribed, plain=False)
        for rows in found.values():
            ranks = [rank for rank, _ in rows]
            assert None not in ranks and len(set(ranks)) == len(ranks), "no order"
        return {key: [payload for _, payload in sorted(rows)] for key, rows in found.items()}

    def _run(
        self, subscribed: Sequence[tuple[Compiled, Tuples]], plain: bool
    ) -> dict[tuple[str, tuple[Value, ...]], list[tuple[Any, str]]]:
        template = subscribed[0][0].template
        assert all(compiled.template == template for compiled, _ in subscribed)
        rows, whose = [], {}
        now = dt.datetime.fromisoformat(NOW).replace(tzinfo=dt.UTC)
        for compiled, tuples in subscribed:
            name, parameters = compiled.channel.name, compiled.channel.parameters
            for values in dict.fromkeys(tuples):
                k = k_of(name, values)
                whose[k] = (name, values)
                typed = [_typed(value, each.type) for value, each in zip(values, parameters, strict=True)]
                rows.append((name, k, *typed, *compiled.constants, now))
        schema = ", ".join(f"{column.name} {column.type}" for column in template.subscription_columns)
        self.session.createDataFrame(rows, schema).createOrReplaceTempView(template.subscriptions)
        sql = template.plain if plain else template.sql
        columns = ", ".join(f"`{name}`" for name in template.columns)
        payload = f"TO_JSON(STRUCT({columns}), MAP('ignoreNullFields', 'false'))"
        found: dict[tuple[str, tuple[Value, ...]], list[tuple[Any, str]]] = {
            key: [] for key in whose.values()
        }
        for channel, k, rank, said in self.session.sql(
            f"SELECT _channel, _k, _rank, {payload} FROM ({sql})"
        ).collect():
            assert whose[k][0] == channel
            found[whose[k]].append((rank, said))
        return found

    def expected(self, channel: Channel, tuples: Tuples, query: str | None = None) -> Outcomes:
        """The same, from one query for each tuple. All run at once, which is quicker; each is one by itself."""
        keys = list(dict.fromkeys(tuples))
        parts = [
            f"SELECT {index}, TO_JSON(STRUCT(*), MAP('ignoreNullFields', 'false')) "
            f"FROM ({self.written_out(channel, values, query)})"
            for index, values in enumerate(keys)
        ]
        found: Outcomes = {(channel.name, values): [] for values in keys}
        for index, payload in self.session.sql(" UNION ALL ".join(parts)).collect():
            found[(channel.name, keys[index])].append(payload)
        return {key: sorted(each) for key, each in found.items()}

    def expected_in_order(self, channel: Channel, tuples: Tuples) -> Outcomes:
        payload = "TO_JSON(STRUCT(*), MAP('ignoreNullFields', 'false'))"
        return {
            (channel.name, values): [
                row[0]
                for row in self.session.sql(self.written_out(channel, values)).selectExpr(payload).collect()
            ]
            for values in dict.fromkeys(tuples)
        }

    def written_out(self, channel: Channel, values: tuple[Value, ...], query: str | None = None) -> str:
        """The query with the names of views, the time and the values in it."""
        names, channels = "|".join(self.datasets), "|".join(self.channels) or "-"
        sql = query or channel.query
        for pattern, prefix in (
            (rf"NEW\s+RESULTS\s+OF\s+({channels})\b", "plain_newresults_"),
            (rf"RESULTS\s+OF\s+({channels})\b", "plain_results_"),
            (rf"NEW\s+({names})\b", "new_"),
            (rf"(?<=FROM )({names})\b|(?<=JOIN )({names})\b", "data_"),
        ):
            sql = re.sub(
                rf"(?i)(?:{pattern})(?:\s+(?:AS\s+)?(?!(?:{_CLAUSES})\b)(\w+))?",
                lambda match, prefix=prefix: _view(match, prefix),  # type: ignore[misc]
                sql,
            )
        sql = re.sub(r"(?i)\bNOW\(\)", f"TIMESTAMP'{NOW}'", sql)
        for parameter, value in zip(channel.parameters, values, strict=True):
            literal = literal_of(value, parameter.type)
            sql = re.sub(rf"(?i):{parameter.name}\b", lambda _, literal=literal: literal, sql)  # type: ignore[misc]
        return sql


def _view(match: re.Match[str], prefix: str) -> str:
    *names, alias = match.groups()
    name = next(each for each in names if each)
    return f"{prefix}{name.lower()} AS {alias or name}"


def _typed(value: Value, kind: str) -> Any:
    if kind == "DATE":
        return dt.date.fromisoformat(str(value))
    if kind == "TIMESTAMP":
        return dt.datetime.fromisoformat(str(value)).replace(tzinfo=dt.UTC)
    return value


def literal_of(value: Value, kind: str) -> str:
    if kind == "STRING":
        escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if kind in ("DATE", "TIMESTAMP"):
        return f"{kind}'{value}'"
    if kind == "DOUBLE":
        return f"CAST({value!r} AS DOUBLE)"
    return str(value).upper()
