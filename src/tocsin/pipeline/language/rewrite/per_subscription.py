"""Rewrites one query with parameters into one query for all subscriptions.

The subscriptions are a table: a row for each k, the parameters its columns p0…, lifted constants c0…. **Carrying** a
query means that each of its blocks joins that table (under an alias of its own, ``_s0``, ``_s1``, …), takes parameters
from it, and has ``_channel`` and ``_k`` in front of its columns. Each step of a query is done once for each k:

    rows         FROM subscriptions × what was there: WHERE and ON make joins of the parameters
    GROUP BY     _channel, _k, and what is used of the subscription, then what was there
    aggregates   without GROUP BY: one row for each subscription, also where nothing matched
    windows      PARTITION BY _k, then what was there
    DISTINCT, UNION, INTERSECT, EXCEPT    compare _k too
    LIMIT        numbers of rows within k
    subqueries   in expressions: carried, and looked up by _k; if they speak of tables around them, the
                 parameters come from there
    tables       in FROM or WITH that use parameters: carried, and joined by _k; others are left as they are,
                 and computed once for all
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from tocsin.model.catalogue import Parameter
from tocsin.pipeline.language.explaining import uses
from tocsin.pipeline.language.functions.library import calls, parsed, sql_of
from tocsin.pipeline.language.rewrite.constant_lifting import Constant, lift
from tocsin.pipeline.language.rewrite.per_subscription_limit import (
    KEYS,
    cut,
    hide,
    order_keys,
    table_alias,
    take,
)
from tocsin.pipeline.language.tree import trees
from tocsin.pipeline.language.tree.query import Text
from tocsin.pipeline.language.tree.resolution import NEWS, sources_of
from tocsin.pipeline.language.tree.trees import column, conjoin

SUBSCRIPTIONS: Final = "subs_"  # the table's name until the plan has an id


class Carrier:
    """Carries one query; ``constants`` and ``notes`` grow with it."""

    def __init__(self, text: Text, parameters: tuple[Parameter, ...] = ()) -> None:
        self.constants: list[Constant] = []
        self.notes: list[str] = []
        self._text = text
        self._parameters = parameters
        self._carried: set[str] = set()  # common table expressions that were
        self._aliases = 0

    def carry(self, query: exp.Query, *, ranked: bool = False) -> exp.Query:
        """The query for all subscriptions; with ``ranked``, ORDER BY becomes a column ``_rank``."""
        query = self._bare(query)
        with_ = query.args.get("with_")
        query.set("with_", None)
        if with_ is not None:
            self._carry_with(with_)
        names = [select.alias_or_name for select in query.selects]
        if isinstance(query, exp.SetOperation):
            made = self._set_operation(query, names, ranked)
        else:
            assert isinstance(query, exp.Select)
            made = self._select(query, names, ranked)
        if with_ is not None:
            made.set("with_", with_)
        return made

    def _bare(self, query: exp.Query) -> exp.Query:
        while isinstance(query, exp.Subquery):
            if any(query.args.get(part) for part in ("with_", "order", "limit", "offset")):
                raise self._text.wrong_at(
                    query,
                    "ORDER BY and LIMIT stand behind a bracket",
                    "put them inside, or leave the brackets out",
                )
            query = query.this
        return query

    def depends(self, node: exp.Expr) -> bool:
        """Whether something is different for different subscriptions."""
        if node.find(exp.Placeholder):
            return True
        return any(table.name in self._carried for table in node.find_all(exp.Table))

    def _carry_with(self, with_: exp.With) -> None:
        for cte in with_.expressions:
            if self.depends(cte.this):
                cte.set("this", self.carry(cte.this))
                self._carried.add(cte.alias)
                self.notes.append(f"WITH {cte.alias}: computed for each subscription, as it uses parameters")
            else:
                self.notes.append(f"WITH {cte.alias}: computed once for all subscriptions")

    # ── set operations ───────────────────────────────────────────────────────────────────────────────────────

    def _set_operation(self, query: exp.SetOperation, names: list[str], ranked: bool) -> exp.Query:
        order, limit, offset = take(query)
        for side in ("this", "expression"):
            query.set(side, exp.Subquery(this=self.carry(query.args[side])))
        if order is None and limit is None and offset is None:
            return query
        body = exp.select("*").from_(exp.Subquery(this=query, alias=table_alias("_q")))
        keys = [(item, item.this) for item in order.expressions] if order is not None else []
        for _, key in keys:
            for each in list(key.find_all(exp.Column)):
                each.set("table", None)
        return cut(body, names, keys, limit, offset, ranked)

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────

    def _select(self, select: exp.Select, names: list[str], ranked: bool) -> exp.Query:
        order, limit, offset = take(select)
        keys = (
            order_keys(self._text, select, order) if order is not None and (ranked or limit or offset) else []
        )
        alias = f"_s{self._aliases}"
        self._aliases += 1
        single = select.args.get("group") is None and bool(_grouped_parts(select))
        if single and keys:
            keys = []  # one row has no order
        hidden = hide(select, keys, limit, offset)
        self.notes += uses(select, self._parameters)
        self._sources(select, alias)
        lift(select, alias, self.constants)
        self._bind(select, alias)
        _partition(select, alias)
        made = self._single_row(select, alias) if single else self._rows(select, alias)
        if not (keys or limit or offset):
            return made
        return cut(made, names, hidden, limit, offset, ranked)

    def _sources(self, select: exp.Select, alias: str) -> None:
        """Put the subscriptions into FROM, and join what depends on them by k.

        Spark joins inner tables in the order in which they stand, as far as conditions connect them: what is new
        comes first, as it is small; then the others; the subscriptions last. Without anything new they come first.
        """
        joins: list[exp.Join] = list(select.args.get("joins") or [])
        from_ = select.args.get("from_")
        subscriptions = exp.to_table(SUBSCRIPTIONS)
        subscriptions.set("alias", table_alias(alias))
        conditions: list[exp.Expr] = []
        tables = [] if from_ is None else [self._outer_part(from_.this, joins)]
        inner = len(joins)
        for index, join in enumerate(joins):
            if join.side or join.kind in ("SEMI", "ANTI"):
                inner = min(inner, index)
            if self._carry_source(join.this):
                join.set("on", conjoin(join.args.get("on"), _same_k(join.this, alias)))
                join.set("kind", "INNER" if join.kind == "CROSS" else join.args.get("kind"))
        if tables and self._carry_source(tables[0]):
            conditions.append(_same_k(tables[0], alias))
        conditions += [join.args["on"] for join in joins[:inner] if join.args.get("on") is not None]
        tables += [join.this for join in joins[:inner]]
        tables.sort(key=lambda table: not _is_new(table))
        tables.insert(len(tables) if tables and _is_new(tables[0]) else 0, subscriptions)
        made = [exp.Join(this=table, kind="CROSS") for table in tables[1:]]
        if conditions:
            made[-1] = exp.Join(this=tables[-1], kind="INNER", on=conjoin(*conditions))
        select.set("from_", exp.From(this=tables[0]))
        select.set("joins", made + joins[inner:])

    def _outer_part(self, first: exp.Expr, joins: list[exp.Join]) -> exp.Expr:
        """RIGHT and FULL joins, and all before them, go into brackets: they do not know of subscriptions."""
        last = max((at for at, join in enumerate(joins) if join.side in ("RIGHT", "FULL")), default=-1)
        if last < 0:
            return first
        part, joins[:] = joins[: last + 1], joins[last + 1 :]
        for node in (first, *part):
            if self.depends(node):
                raise self._text.wrong_at(
                    part[-1], f"a parameter in a {part[-1].side} JOIN", "swap the tables, and write LEFT JOIN"
                )
        first.set("joins", part)
        return exp.Subquery(this=first)

    def _carry_source(self, source: exp.Expr) -> bool:
        if isinstance(source, exp.Table):
            return source.name in self._carried
        if (
            isinstance(source, exp.Subquery)
            and isinstance(source.this, exp.Query)
            and self.depends(source.this)
        ):
            source.set("this", self.carry(source.this))
            self.notes.append(f"{source.alias}: computed for each subscription, as it uses parameters")
            return True
        return False

    # ── parameters ───────────────────────────────────────────────────────────────────────────────────────────

    def _bind(self, select: exp.Select, alias: str) -> None:
        """Take parameters and the time from the subscriptions."""
        for subquery in trees.subqueries(select):
            if self.depends(subquery):
                self._bind_subquery(subquery, alias)
        every_new = all(
            isinstance(source, exp.Table) and source.name.startswith((*NEWS, SUBSCRIPTIONS))
            for source in sources_of(select)
        )
        for node in list(trees.own(select)):
            if isinstance(node, exp.Placeholder):
                node.replace(column(alias, f"p{node.name}"))
            elif every_new and isinstance(node, exp.Anonymous) and node.name.lower() == "now":
                node.replace(column(alias, "_now"))

    def _bind_subquery(self, subquery: exp.Query, alias: str) -> None:
        if subquery.find_ancestor(exp.Join, exp.Select) is not subquery.parent_select:
            raise self._text.wrong_at(
                subquery, "a parameter in a subquery in ON", "put the condition into WHERE"
            )
        query = trees.unwrapped(subquery)
        if trees.is_correlated(query):
            self._bind_correlated(query, alias)
            return
        parent = subquery.parent
        value: exp.Expr = exp.column(query.selects[0].alias_or_name, table="_q")
        if not isinstance(parent, exp.Exists | exp.In):
            if not trees.has_one_row(query):
                raise self._text.wrong_at(
                    subquery, "this subquery may give several rows", "aggregate it, or end it with LIMIT 1"
                )
            value = exp.AnyValue(this=value)
        inner = exp.Subquery(this=self.carry(subquery.copy()), alias=table_alias("_q"))
        made = (
            exp.select(value)
            .from_(inner)
            .where(exp.EQ(this=column("_q", "_k"), expression=column(alias, "_k")))
        )
        subquery.replace(made if isinstance(parent, exp.Exists) else exp.Subquery(this=made))

    def _bind_correlated(self, query: exp.Query, alias: str) -> None:
        deep = not isinstance(query, exp.Select) or any(
            self.depends(part) for part in (*trees.subqueries(query), *sources_of(query))
        )
        if deep or query.args.get("with_"):
            raise self._text.wrong_at(
                query,
                "a parameter too deep in a subquery that speaks of tables around it",
                "join with a subquery in FROM instead",
            )
        for node in list(trees.own(query)):
            if isinstance(node, exp.Placeholder):
                node.replace(column(alias, f"p{node.name}"))

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────

    def _rows(self, select: exp.Select, alias: str) -> exp.Select:
        """``_channel`` and ``_k`` in front; also of GROUP BY, with all that is used of the subscription."""
        group = select.args.get("group")
        if group is not None:
            used: dict[str, exp.Column] = {}
            for part in (*select.selects, select.args.get("having")):
                for each in part.find_all(exp.Column) if part is not None else ():
                    if each.table == alias and each.name not in KEYS:
                        used[each.name] = column(alias, each.name)
            keys = [column(alias, key) for key in KEYS]
            group.set("expressions", [*keys, *(used[name] for name in sorted(used)), *group.expressions])
        select.set("expressions", [*(exp.alias_(column(alias, key), key) for key in KEYS), *select.selects])
        return select

    def _single_row(self, select: exp.Select, alias: str) -> exp.Select:
        """Aggregate what there is for each k, then have a row for every subscription."""
        found: dict[str, tuple[str, exp.Expr]] = {}
        outer = exp.select()
        having = select.args.get("having")
        for part in (*select.selects, *([having.this] if having is not None else [])):
            outer_part = part.copy()
            if trees.aggregates(outer_part)[:1] == [outer_part]:
                outer_part = exp.paren(outer_part, copy=False)
            for node in trees.aggregates(outer_part):
                name = found.setdefault(sql_of(node), (f"_a{len(found)}", node.copy()))[0]
                node.replace(_or_empty(node, name))
            self._check_aggregated(outer_part, alias)
            if having is not None and part is having.this:
                outer.where(outer_part, copy=False)
            else:
                outer.select(outer_part, copy=False)
        outer.set("expressions", [*(exp.alias_(column(alias, key), key) for key in KEYS), *outer.selects])
        select.set("having", None)
        select.set("distinct", None)
        select.set("expressions", [exp.alias_(column(alias, "_k"), "_k")])
        select.select(*(exp.alias_(node, name) for name, node in found.values()), copy=False)
        select.set("group", exp.Group(expressions=[column(alias, "_k")]))
        subscriptions = exp.to_table(SUBSCRIPTIONS)
        subscriptions.set("alias", table_alias(alias))
        outer.from_(subscriptions, copy=False)
        matched = exp.Subquery(this=select, alias=table_alias("_g"))
        same = exp.EQ(this=column("_g", "_k"), expression=column(alias, "_k"))
        outer.append("joins", exp.Join(this=matched, side="LEFT", on=same))
        self.notes.append(
            "an aggregate without GROUP BY: one result for each subscription, also if nothing matches"
        )
        return outer

    def _check_aggregated(self, part: exp.Expr, alias: str) -> None:
        for node in trees.own(part):
            if isinstance(node, exp.Window):
                raise self._text.wrong_at(node, "a window over one row", "leave OVER out, or use GROUP BY")
            if isinstance(node, exp.Column) and node.table not in (alias, "_g"):
                raise self._text.wrong_at(
                    node,
                    f"{node.name} is neither aggregated nor in GROUP BY",
                    "add GROUP BY, or use ANY_VALUE",
                )


def _grouped_parts(select: exp.Select) -> list[exp.Expr]:
    having = select.args.get("having")
    parts = [*select.selects, *([having] if having is not None else [])]
    return [node for part in parts for node in trees.aggregates(part)]


def _partition(select: exp.Select, alias: str) -> None:
    """Windows see the rows of one k."""
    for node in trees.own(select):
        if isinstance(node, exp.Window) and not node.args.get("alias"):
            node.set("partition_by", [column(alias, "_k"), *(node.args.get("partition_by") or [])])


def _or_empty(node: exp.Expr, name: str) -> exp.Expr:
    value = column("_g", name)
    function = node.this if isinstance(node, exp.Filter) else node
    empty = trees.EMPTY.get(type(function))
    return value if empty is None else parsed(f"COALESCE({sql_of(value)}, {empty})")


def _is_new(table: exp.Expr) -> bool:
    return isinstance(table, exp.Table) and table.name.startswith(NEWS)


def _same_k(source: exp.Expr, alias: str) -> exp.Expr:
    return exp.EQ(this=column(source.alias_or_name, "_k"), expression=column(alias, "_k"))


def bind_time(tree: exp.Expr) -> None:
    """The time of the execution, for blocks that did not take it from their own subscriptions."""
    for node in calls(tree, "now"):
        node.replace(parsed(f"(SELECT _now FROM {SUBSCRIPTIONS} LIMIT 1)"))
