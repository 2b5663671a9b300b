"""A channel, compiled: what the language hands to the engine.

``Template.sql`` is Spark SQL for **all** subscriptions of **all** channels of one shape, over views that the engine
provides:

    subs_<id>         a row for each k: ``Template.subscription_columns`` (_channel, _k, p0…, c0…, _now)
    data_<dataset>    the dataset's current rows (the name in small letters)
    new_<dataset>     the rows that are new since the last execution
    results_<channel>, newresults_<channel>    the same of a channel's results: ``Template.results`` says how
                      each is made of ``rows_<its name>``, which has the columns of the results dataset

It gives ``_channel``, ``_k``, ``_rank`` (BIGINT: the order of results within k; NULL without ORDER BY),
``_priority`` (INT or NULL), then the results' columns, in ``Template.columns``'s order. Channels that differ only in
constants have one template; ``Compiled.constants`` are the values of c0….

A ``Selection`` is a query that is run once: it reads ``data_…`` and ``results_<channel>``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from tocsin.model.catalogue import Channel, Dataset, ParameterType
from tocsin.pipeline.language.checks.queries import check_bounds, check_outputs, guard_patterns
from tocsin.pipeline.language.functions import library
from tocsin.pipeline.language.rewrite.constant_lifting import Value
from tocsin.pipeline.language.rewrite.per_subscription import SUBSCRIPTIONS, Carrier, bind_time
from tocsin.pipeline.language.rewrite.per_subscription_limit import KEYS, RANK
from tocsin.pipeline.language.rewrite.spatial_join_keys import Accelerator
from tocsin.pipeline.language.tree.query import Text, read_query
from tocsin.pipeline.language.tree.resolution import PARAMETERS, RESULT_COLUMNS, Read, names_of, resolve

# Settings of a session, so that the values of one subscription cannot fail the execution for all others.
SPARK_SETTINGS: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.session.timeZone": "UTC",
}


class SubscriptionColumn(msgspec.Struct, frozen=True):
    """A column of ``subs_<id>``."""

    name: str
    type: str


class ResultsView(msgspec.Struct, frozen=True):
    """A view of a channel's results, and the query that it stands for, over the view ``rows``."""

    name: str
    sql: str

    @property
    def rows(self) -> str:
        return rows_of(self.name)


def rows_of(view: str) -> str:
    return f"rows_{view}"


# Pairs of rows up to which comparing them all is quicker than spreading one side over a grid and joining.
PLAIN_PAIRS: Final = 1_000_000


class Template(msgspec.Struct, frozen=True):
    """The compiled query that channels of one shape share. ``sql`` is always right; ``sql_for`` may know a quicker
    way.
    """

    id: str
    sql: str
    plain: str  # the same without help for predicates that no equality decides: quicker for few rows
    pairs: tuple[tuple[str, str], ...]  # the views between which ``sql`` helps; "" for a subquery
    reads: tuple[Read, ...]
    results: tuple[ResultsView, ...]  # those of ``reads`` that are results
    subscription_columns: tuple[SubscriptionColumn, ...]
    columns: tuple[str, ...]  # the names of a result's columns, as they are written

    @property
    def subscriptions(self) -> str:
        """The view of the subscriptions."""
        return SUBSCRIPTIONS + self.id

    def view_of(self, read: Read) -> ResultsView:
        """The view of results that are read."""
        return next(view for view in self.results if view.name == read.view)

    def sql_for(self, rows: Mapping[str, int]) -> str:
        """The quicker way, given how many rows the views have; those that are not named have many."""
        few = all(
            rows.get(first, PLAIN_PAIRS) * rows.get(second, PLAIN_PAIRS) <= PLAIN_PAIRS
            for first, second in self.pairs
        )
        return self.plain if few else self.sql


class Compiled(msgspec.Struct, frozen=True):
    """A channel, its template, and its constants in the template's order."""

    channel: Channel
    template: Template
    constants: tuple[Value, ...]
    notes: tuple[str, ...]  # how it is run, as text


class Selection(msgspec.Struct, frozen=True):
    """A query that is run once."""

    sql: str
    reads: tuple[Read, ...]
    results: tuple[ResultsView, ...]


def compile_channel(
    channel: Channel,
    datasets: Mapping[str, Dataset] | Iterable[Dataset],
    script: str | None = None,
    at: int = 0,
    *,
    channels: Iterable[Channel] = (),
) -> Compiled:
    """The channel's plan. Raises ``SqlInvalid``, which points into ``script`` if the query stands there, at ``at``.

    ``channels``: those whose results it may read.
    """
    channels = tuple(channels)
    text = Text(channel.query, channel.query if script is None else script, at)
    query = read_query(text, channel.parameters)
    resolved = resolve(query, names_of(_values(datasets), channels), channel.parameters)
    outputs = check_outputs(resolved, channel)
    check_bounds(resolved)
    carrier = Carrier(text, channel.parameters)
    tree = carrier.carry(resolved.tree, ranked=True)
    bind_time(tree)
    guard_patterns(tree)
    plain = _results(library.expand_late(tree.copy()), outputs, channel)
    accelerator = Accelerator()
    accelerator.help(tree)
    final = _results(library.expand_late(tree), outputs, channel)
    types: list[ParameterType] = [parameter.type for parameter in channel.parameters]
    columns = _subscription_columns(types, [constant.type for constant in carrier.constants])
    names = tuple(outputs.values())
    results = _results_views(resolved.reads, channels)
    template = _template(final, plain, accelerator, resolved.reads, results, columns, names)
    constants = tuple(constant.value for constant in carrier.constants)
    return Compiled(channel, template, constants, (*carrier.notes, *accelerator.notes))


def _values(datasets: Mapping[str, Dataset] | Iterable[Dataset]) -> Iterable[Dataset]:
    return datasets.values() if isinstance(datasets, Mapping) else datasets


def _results(tree: exp.Expr, outputs: dict[str, str], channel: Channel) -> exp.Select:
    """The last block: the engine's columns, then the results' under the names that were written."""
    ranked = bool(tree.find(exp.Select)) and any(each.alias_or_name == RANK for each in _selects(tree))
    rank = exp.column(RANK, table="_q") if ranked else exp.null()
    chosen = (channel.priority_column or "").lower()
    priority = exp.column(chosen, table="_q") if chosen else exp.null()
    made = exp.select(
        *(exp.alias_(exp.column(key, table="_q"), key) for key in KEYS),
        exp.alias_(exp.cast(rank, "bigint"), RANK),
        exp.alias_(exp.cast(priority, "int"), "_priority"),
        *(
            exp.alias_(exp.column(name, table="_q"), written, quoted=True)
            for name, written in outputs.items()
        ),
    )
    return made.from_(exp.Subquery(this=tree, alias=exp.TableAlias(this=exp.to_identifier("_q"))))


def _selects(tree: exp.Expr) -> list[exp.Expr]:
    return tree.selects if isinstance(tree, exp.Query) else []


def _subscription_columns(
    parameters: list[ParameterType], constants: list[ParameterType]
) -> tuple[SubscriptionColumn, ...]:
    return (
        SubscriptionColumn("_channel", "STRING"),
        SubscriptionColumn("_k", "STRING"),
        *(SubscriptionColumn(f"p{index}", type_) for index, type_ in enumerate(parameters)),
        *(SubscriptionColumn(f"c{index}", type_) for index, type_ in enumerate(constants)),
        SubscriptionColumn("_now", "TIMESTAMP"),
    )


def _template(
    tree: exp.Select,
    plain: exp.Select,
    accelerator: Accelerator,
    reads: tuple[Read, ...],
    results: tuple[ResultsView, ...],
    columns: tuple[SubscriptionColumn, ...],
    names: tuple[str, ...],
) -> Template:
    shape = library.sql_of(tree) + "".join(f"\n{column.name} {column.type}" for column in columns)
    shape += "".join(f"\n{each.sql}" for each in results)
    found = hashlib.blake2b(shape.encode(), digest_size=8).hexdigest()
    for each in (tree, plain):
        for table in each.find_all(exp.Table):
            if table.name == SUBSCRIPTIONS:
                table.this.set("this", SUBSCRIPTIONS + found)
    sql, plain_sql = library.sql_of(tree), library.sql_of(plain)
    pairs = [
        (
            first.replace(SUBSCRIPTIONS, SUBSCRIPTIONS + found),
            second.replace(SUBSCRIPTIONS, SUBSCRIPTIONS + found),
        )
        for first, second in accelerator.pairs
    ]
    return Template(found, sql, plain_sql, tuple(pairs), reads, results, columns, names)


def compile_select(
    text: str,
    datasets: Iterable[Dataset],
    channels: Iterable[Channel],
    script: str | None = None,
    at: int = 0,
) -> Selection:
    """A query that is run once, over datasets and results. Raises ``SqlInvalid``."""
    query = read_query(Text(text, text if script is None else script, at), ())
    channels = tuple(channels)
    resolved = resolve(query, names_of(datasets, channels, new=False), ())
    tree = resolved.tree
    for node in library.calls(tree, "now"):
        node.replace(exp.CurrentTimestamp())
    check_bounds(resolved)
    accelerator = Accelerator()
    accelerator.help(tree)
    tree_sql = library.sql_of(library.expand_late(_spelled(tree, resolved.spelling)))
    return Selection(tree_sql, resolved.reads, _results_views(resolved.reads, channels))


def _spelled(tree: exp.Query, spelling: Mapping[str, str]) -> exp.Query:
    """The names of results as they were written."""
    query = tree
    while isinstance(query, exp.Subquery | exp.SetOperation):
        query = query.this
    if isinstance(query, exp.Select):
        for select in query.selects:
            if isinstance(select, exp.Alias):
                written = spelling.get(select.alias, select.alias)
                select.set("alias", exp.to_identifier(written, quoted=True))
    return tree


def _results_views(reads: Iterable[Read], channels: Iterable[Channel]) -> tuple[ResultsView, ...]:
    by_name = {each.name.lower(): each for each in channels}
    return tuple(
        ResultsView(read.view, results_query(by_name[read.name.lower()], rows_of(read.view)))
        for read in reads
        if read.results
    )


def results_query(channel: Channel, rows: str) -> str:
    """A row for each result of a channel, once, over a view with rows of the results dataset."""
    fields = ", ".join(f"`{column.name}` {column.type}" for column in channel.columns)
    schema = library.sql_of(exp.Literal.string(fields))
    name = library.sql_of(exp.Literal.string(channel.name.lower()))
    own = ", ".join(f"_x._p.`{column.name}` AS `{column.name}`" for column in channel.columns)
    origin = ("tick", "execution", "at", "k", "priority")
    meta = ", ".join(
        f"_x.{source} AS {column.name}" for source, column in zip(origin, RESULT_COLUMNS, strict=True)
    )
    values = ""
    if channel.parameters:
        kinds = ", ".join(f"`{each.name.lower()}` {each.type}" for each in channel.parameters)
        values = f", FROM_JSON(_x.parameters, {library.sql_of(exp.Literal.string(kinds))}) AS {PARAMETERS}"
    once = (
        "SELECT tick, part, row, ANY_VALUE(execution) AS execution, ANY_VALUE(at) AS at, ANY_VALUE(k) AS k, "
        f"ANY_VALUE(priority) AS priority, FROM_JSON(ANY_VALUE(payload), {schema}) AS _p, "
        "ANY_VALUE(parameters) AS parameters "
        f"FROM {rows} WHERE LOWER(channel) = {name} GROUP BY tick, part, row"
    )
    return f"SELECT {own}{', ' if own else ''}{meta}{values} FROM ({once}) AS _x"
