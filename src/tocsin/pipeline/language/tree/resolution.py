"""Resolves a query's names: datasets, channels, their columns, types, and which comparisons make sense.

After ``resolve`` every table of the tree is a view that the engine provides (``Read.view``) or a common table
expression, has an alias, and every column names its table. Names are in small letters;
``Resolved.spelling`` has them as they were written, for the results. Stars are written out. Types are noted where
sqlglot can tell them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify_columns import qualify_columns
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.schema import MappingSchema

from tocsin.errors import SqlInvalid
from tocsin.model.catalogue import Channel, Column, Dataset, Parameter
from tocsin.pipeline.language.functions import library
from tocsin.pipeline.language.names import meant
from tocsin.pipeline.language.tree.query import DIALECT, NEW, NEW_RESULTS, RESULTS, Query, Text, position

# By (results, new); no name of a dataset or channel makes two views of one name.
_PREFIXES: Final = {
    (False, False): "data_",
    (False, True): "new_",
    (True, False): "results_",
    (True, True): "newresults_",
}
NEWS: Final = tuple(prefix for (_, new), prefix in _PREFIXES.items() if new)  # views of what is new begin so
_TAKEN: Final = (*_PREFIXES.values(), "rows_", "subs_")

# Columns of a result besides its own.
RESULT_COLUMNS: Final = (
    Column("_tick", "BIGINT"),
    Column("_execution", "BIGINT"),
    Column("_at", "TIMESTAMP"),
    Column("_k", "STRING"),
    Column("_priority", "INT"),
)
PARAMETERS: Final = "_parameters"  # one more, of channels that have parameters: a struct of their values
METADATA: Final = frozenset((*(column.name for column in RESULT_COLUMNS), PARAMETERS))

Family = Literal["number", "text", "time", "truth", "other"]


class Read(msgspec.Struct, frozen=True, order=True):
    """A table that a query reads, as a whole or only what is new: a dataset, or the results of a channel."""

    name: str
    new: bool
    results: bool = False

    @property
    def key(self) -> str:
        """What positions are kept under."""
        return results_key(self.name) if self.results else self.name.lower()

    @property
    def view(self) -> str:
        """The view that stands for it."""
        return _PREFIXES[self.results, self.new] + self.name.lower()

    @property
    def words(self) -> str:
        """For people."""
        return f"the results of {self.name}" if self.results else self.name


def results_key(channel: str) -> str:
    """What a position in a channel's results is kept under; no dataset has such a name. The position is a tick."""
    return f"{_RESULTS_OF}{channel.lower()}"


def is_results_key(key: str) -> bool:
    return key.startswith(_RESULTS_OF)


_RESULTS_OF: Final = "results of "


class Resolved(msgspec.Struct, frozen=True):
    text: Text
    tree: exp.Query
    spelling: dict[str, str]  # a name in small letters → as it was written
    reads: tuple[Read, ...]


class Names(msgspec.Struct, frozen=True):
    """The readable tables, by names in lower case."""

    datasets: Mapping[str, Dataset]
    channels: Mapping[str, Channel]  # their results
    new: bool = True  # whether NEW has a meaning


def names_of(datasets: Iterable[Dataset], channels: Iterable[Channel], new: bool = True) -> Names:
    return Names(
        {each.name.lower(): each for each in datasets}, {each.name.lower(): each for each in channels}, new
    )


def resolve(query: Query, names: Names, parameters: tuple[Parameter, ...]) -> Resolved:
    """Give every name its meaning. Raises ``SqlInvalid``."""
    text, tree = query.text, query.tree
    spelling = _lower(tree)
    library.expand_early(text, tree)
    reads, columns = _tables(text, tree, names)
    for by_name in columns.values():
        spelling = {name.lower(): name for name in by_name} | spelling
    schema = MappingSchema(
        {view: {name.lower(): kind for name, kind in by_name.items()} for view, by_name in columns.items()},
        dialect=DIALECT,
        normalize=False,
    )
    try:
        tree = qualify_tables(tree, dialect=DIALECT)
        _check_joins(text, tree)
        tree = qualify_columns(tree, schema=schema, dialect=DIALECT)
        _check_columns(text, tree, columns)
        tree = _annotate(tree, schema, parameters)
    except SqlglotError as error:
        raise _unqualifiable(text, tree, error, columns) from None
    library.note_spaces(text, tree)
    _check_fields(text, tree)
    _check_comparisons(text, tree)
    return Resolved(text, tree, spelling, tuple(sorted(reads)))


def _annotate(tree: exp.Query, schema: MappingSchema, parameters: tuple[Parameter, ...]) -> exp.Query:
    """Give every expression its type. A parameter has its own: it is annotated as a cast, which says its type."""
    cast: list[exp.Cast] = []
    for placeholder in list(tree.find_all(exp.Placeholder)):
        kind = exp.DataType.build(parameters[int(placeholder.name)].type, dialect=DIALECT)
        cast.append(exp.Cast(this=placeholder.copy(), to=kind))
        placeholder.replace(cast[-1])
    tree = annotate_types(tree, schema=schema, dialect=DIALECT)
    for each in cast:
        placeholder = each.this
        placeholder.type = each.to
        each.replace(placeholder)
    return tree


def _unqualifiable(
    text: Text, tree: exp.Query, error: SqlglotError, columns: dict[str, dict[str, str]]
) -> SqlInvalid:
    """A parse error of sqlglot, as our own."""
    said = str(error).partition("\n")[0].partition(". Line")[0].rstrip(".")
    name = (re.search(r"olumn:? '?\"?(\w+)", said) or [said, ""])[1]
    found = next((column for column in tree.find_all(exp.Column) if column.name == name), None)
    if found is None:
        return text.wrong(0, said, "name the columns with their table, as t.column")
    tables = {table.alias_or_name: table.name for table in tree.find_all(exp.Table)}
    view = columns.get(tables.get(found.table, ""))
    every = {each for by_name in columns.values() for each in by_name} if view is None else set(view)
    owner = f"{found.table} has" if view is not None else "there is"
    return text.wrong(position(found.this), f"{owner} no column {name}", meant(name, every, "columns"))


def _lower(tree: exp.Query) -> dict[str, str]:
    """Write names in small letters; fields of structs and their values stay. Returns how they were written."""
    spelling: dict[str, str] = {}
    for identifier in tree.find_all(exp.Identifier):
        if isinstance(identifier.parent, exp.PropertyEQ):
            continue
        name = identifier.name
        identifier.set("this", name.lower())
        identifier.set("quoted", False)
        parent = identifier.parent
        if isinstance(parent, exp.Alias) or name.lower() not in spelling:
            spelling[name.lower()] = name
    return spelling


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────


def _tables(text: Text, tree: exp.Query, names: Names) -> tuple[set[Read], dict[str, dict[str, str]]]:
    reads: set[Read] = set()
    columns: dict[str, dict[str, str]] = {}
    for cte in tree.find_all(exp.CTE):
        if cte.alias.startswith(_TAKEN):
            raise text.wrong_at(cte, f"the name {cte.alias} is taken", "begin it with another word")
    for table in list(tree.find_all(exp.Table)):
        mark = table.meta.get("mark", "")
        name = table.name
        if not mark and name in _visible(table):
            continue
        new = mark in (NEW, NEW_RESULTS)
        if mark in (RESULTS, NEW_RESULTS):
            channel = _channel(text, table, names)
            read, of = Read(channel.name, new, True), results_columns(channel)
        else:
            dataset = _dataset(text, table, names)
            read, of = Read(dataset.name, new), dataset.columns
        if new and not names.new:
            raise text.wrong_at(table, "NEW means since the last execution of a channel", "leave it out here")
        reads.add(read)
        if table.alias_column_names:
            raise text.wrong_at(
                table, "a dataset's columns have their names", "rename them in a subquery, with AS"
            )
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
        table.this.set("this", read.view)
        columns[read.view] = {column.name: column.type for column in of}
    return reads, columns


def results_columns(channel: Channel) -> tuple[Column, ...]:
    """The columns of a channel's results, as a table that can be read."""
    fields = ", ".join(f"{each.name.lower()}: {each.type}" for each in channel.parameters)
    parameters = (Column(PARAMETERS, f"STRUCT<{fields}>"),) if fields else ()
    return (*channel.columns, *RESULT_COLUMNS, *parameters)


def _visible(table: exp.Table) -> set[str]:
    """The common table expressions that a table's name may mean: those before it, around it."""
    found: set[str] = set()
    node: exp.Expr = table
    while node.parent is not None:
        inside, node = node, node.parent
        with_ = node.args.get("with_") if isinstance(node, exp.Query) else None
        if isinstance(node, exp.With):
            found.update(cte.alias for cte in node.expressions[: node.expressions.index(inside)])
        elif with_ is not None and inside is not with_:
            found.update(cte.alias for cte in with_.expressions)
    return found


def _dataset(text: Text, table: exp.Table, names: Names) -> Dataset:
    found = names.datasets.get(table.name)
    if found is None:
        known = [dataset.name for dataset in names.datasets.values()]
        if (channel := names.channels.get(table.name)) is not None:
            what = f"{channel.name} is a channel: write RESULTS OF {channel.name}"
            raise text.wrong_at(table, f"there is no dataset {table.name}", what)
        remedy = meant(table.name, [*known, *_visible(table)], "datasets; make one with CREATE DATASET")
        raise text.wrong_at(table, f"there is no dataset {table.name}", remedy)
    return found


def _channel(text: Text, table: exp.Table, names: Names) -> Channel:
    found = names.channels.get(table.name)
    if found is None:
        known = [channel.name for channel in names.channels.values()]
        if (dataset := names.datasets.get(table.name)) is not None:
            what = f"{dataset.name} is a dataset: leave RESULTS OF out"
            raise text.wrong_at(table, f"there is no channel {table.name}", what)
        raise text.wrong_at(table, f"there is no channel {table.name}", meant(table.name, known, "channels"))
    return found


def _check_joins(text: Text, tree: exp.Query) -> None:
    """Every table of a FROM has a name of its own."""
    for select in tree.find_all(exp.Select):
        seen: set[str] = set()
        for source in sources_of(select):
            if source.alias_or_name in seen:
                raise text.wrong_at(
                    source, f"two tables are called {source.alias_or_name}", "give one another name, with AS"
                )
            seen.add(source.alias_or_name)


def sources_of(select: exp.Select) -> list[exp.Expr]:
    """The tables in FROM and JOIN, in order."""
    from_ = select.args.get("from_")
    found = [from_.this] if from_ is not None else []
    return found + [join.this for join in select.args.get("joins") or []]


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────


def _check_columns(text: Text, tree: exp.Query, columns: dict[str, dict[str, str]]) -> None:
    for scope in traverse_scope(tree):
        known = {name: _columns_of(source, columns) for name, source in scope.sources.items()}
        outputs = _outputs(scope)
        for column in scope.columns:
            if not column.table:
                if column.name in outputs and isinstance(
                    column.find_ancestor(exp.Order, exp.Query), exp.Order
                ):
                    continue
                _refuse_unqualified(text, column, known)
            own = known.get(column.table)
            if own is not None and column.name not in own:
                raise text.wrong(
                    position(column.this),
                    f"{column.table} has no column {column.name}",
                    meant(column.name, own, "columns"),
                )
            if own is None and not _is_outer(scope, column):
                raise text.wrong_at(
                    column, f"there is no table {column.table} here", meant(column.table, known, "tables")
                )


def _columns_of(source: exp.Expr | Scope, columns: dict[str, dict[str, str]]) -> set[str]:
    if isinstance(source, Scope):
        aliases = source.expression.parent
        renamed = aliases.alias_column_names if isinstance(aliases, exp.CTE | exp.Subquery) else []
        return set(renamed) or _outputs(source)
    return {name.lower() for name in columns.get(source.name, {})}


def _outputs(scope: Scope) -> set[str]:
    query = scope.expression
    return {select.alias_or_name for select in query.selects} if isinstance(query, exp.Query) else set()


def _is_outer(scope: Scope, column: exp.Column) -> bool:
    outer = scope.parent
    while outer is not None:
        if column.table in outer.sources:
            return True
        outer = outer.parent
    return False


def _refuse_unqualified(text: Text, column: exp.Column, known: dict[str, set[str]]) -> None:
    holders = [table for table, own in known.items() if column.name in own]
    if len(holders) > 1:
        raise text.wrong_at(
            column,
            f"{column.name} is a column of {' and of '.join(sorted(holders))}",
            f"say which, as {sorted(holders)[0]}.{column.name}",
        )
    every = {name for own in known.values() for name in own}
    remedy = meant(column.name, every, "columns here")
    raise text.wrong_at(column, f"there is no column {column.name}", remedy)


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────

_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_CALLED: Final[dict[Family, str]] = {
    "number": "a number",
    "text": "text",
    "time": "a time",
    "truth": "true or false",
    "other": "a structure",
}


def family_of(node: exp.Expr) -> Family | None:
    """The kind of a value, if it is known."""
    if node.type is None or node.is_type(exp.DType.UNKNOWN, exp.DType.NULL):
        return None
    if node.is_type(*exp.DataType.NUMERIC_TYPES):
        return "number"
    if node.is_type(*exp.DataType.TEXT_TYPES):
        return "text"
    if node.is_type(*exp.DataType.TEMPORAL_TYPES):
        return "time"
    if node.is_type(exp.DType.BOOLEAN):
        return "truth"
    if node.is_type(exp.DType.STRUCT, exp.DType.ARRAY, exp.DType.MAP):
        return "other"
    return None


def _check_comparisons(text: Text, tree: exp.Query) -> None:
    for comparison in tree.find_all(*_COMPARISONS):
        _check_pair(text, comparison.this, comparison.expression)
    for between in tree.find_all(exp.Between):
        _check_pair(text, between.this, between.args["low"])
        _check_pair(text, between.this, between.args["high"])
    for membership in tree.find_all(exp.In):
        for option in membership.expressions:
            _check_pair(text, membership.this, option)
    for match in tree.find_all(exp.Like, exp.ILike, exp.RegexpLike):
        family = family_of(match.this)
        if family not in (None, "text"):
            raise text.wrong_at(match, f"a pattern is compared with {_CALLED[family]}", "use text, or CAST")
    for interval in tree.find_all(exp.Interval):
        if interval.find(exp.Placeholder):
            raise text.wrong_at(
                interval, "an interval cannot have a parameter inside", "multiply: :n * INTERVAL '1' MINUTE"
            )


def _check_fields(text: Text, tree: exp.Query) -> None:
    for node in tree.find_all(exp.Dot):
        kind = node.this.type
        if kind is None or not kind.is_type(exp.DType.STRUCT) or not kind.expressions:
            continue
        fields = [field.name for field in kind.expressions]
        if node.name.lower() not in {field.lower() for field in fields}:
            raise text.wrong(
                position(node.expression),
                f"there is no field {node.name}",
                meant(node.name, fields, "fields"),
            )


def _check_pair(text: Text, left: exp.Expr, right: exp.Expr) -> None:
    families = family_of(left), family_of(right)
    if None in families or families[0] == families[1]:
        return
    if set(families) == {"text", "time"} and any(isinstance(side, exp.Literal) for side in (left, right)):
        return
    first, second = (_CALLED[family or "other"] for family in families)
    at = left if any("start" in each.meta for each in left.walk()) else right
    raise text.wrong_at(at, f"{first} is compared with {second}", _cast_remedy(left, right))


def _cast_remedy(left: exp.Expr, right: exp.Expr) -> str:
    for literal, other in ((left, right), (right, left)):
        if isinstance(literal, exp.Literal) and literal.is_string and family_of(other) == "number":
            return "write the number without quotes"
        if isinstance(literal, exp.Placeholder) and other.type is not None:
            kind = other.type.sql(dialect=DIALECT)
            return f"give the parameter the type of the other side, {kind}, or CAST one of them"
    return "CAST one of them, as CAST(x AS STRING)"
