"""ORDER BY, LIMIT and OFFSET, for each subscription: rows are numbered within k, and those that are wanted are kept."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from tocsin.pipeline.language.tree.query import Text
from tocsin.pipeline.language.tree.trees import column

KEYS: Final = ("_channel", "_k")
RANK: Final = "_rank"


def take(query: exp.Query) -> tuple[exp.Order | None, exp.Expr | None, exp.Expr | None]:
    """Take ORDER BY, LIMIT and OFFSET off a query."""
    order, limit, offset = (query.args.get(part) for part in ("order", "limit", "offset"))
    for part in ("order", "limit", "offset"):
        query.set(part, None)
    return order, limit and limit.expression, offset and offset.expression


def order_keys(text: Text, select: exp.Select, order: exp.Order) -> list[tuple[exp.Ordered, exp.Expr]]:
    """The sort keys of rows, in terms of the block: names of results are written out."""
    outputs = {each.alias_or_name: each.unalias() for each in select.selects}
    keys: list[tuple[exp.Ordered, exp.Expr]] = []
    for item in order.expressions:
        key: exp.Expr = item.this
        if isinstance(key, exp.Literal) and not key.is_string:
            index = int(key.name) - 1 if key.name.isdigit() else -1
            if not 0 <= index < len(select.selects):
                raise text.wrong_at(key, f"there is no result {key.name}", "write the column's name")
            key = exp.column(select.selects[index].alias_or_name)
        if isinstance(key, exp.Column) and not key.table and key.name in outputs:
            keys.append((item, key))
            continue
        if select.args.get("distinct"):
            key = _among_outputs(text, select, key)
        else:
            for each in list(key.find_all(exp.Column)):
                if not each.table and each.name in outputs:
                    each.replace(outputs[each.name].copy())
        keys.append((item, key))
    return keys


def _among_outputs(text: Text, select: exp.Select, key: exp.Expr) -> exp.Expr:
    for each in select.selects:
        if each.unalias() == key:
            return exp.column(each.alias_or_name)
    raise text.wrong_at(
        key,
        "with DISTINCT, rows are ordered by what is selected",
        "select this too, or order by a result",
    )


def hide(
    select: exp.Select,
    keys: list[tuple[exp.Ordered, exp.Expr]],
    limit: exp.Expr | None,
    offset: exp.Expr | None,
) -> list[tuple[exp.Ordered, exp.Expr]]:
    """Add what rows are ordered and cut by to the block's columns, where it is no result."""
    hidden: list[tuple[exp.Ordered, exp.Expr]] = []
    for index, (item, key) in enumerate(keys):
        if isinstance(key, exp.Column) and not key.table:
            hidden.append((item, key))
        else:
            select.select(exp.alias_(key.copy(), f"_o{index}"), copy=False)
            hidden.append((item, exp.column(f"_o{index}")))
    for name, bound in (("_limit", limit), ("_offset", offset)):
        if isinstance(bound, exp.Placeholder):
            select.select(exp.alias_(bound.copy(), name), copy=False)
    return hidden


def cut(
    body: exp.Query,
    names: list[str],
    keys: list[tuple[exp.Ordered, exp.Expr]],
    limit: exp.Expr | None,
    offset: exp.Expr | None,
    ranked: bool,
) -> exp.Select:
    """Number the rows of each k, and keep those that LIMIT and OFFSET mean."""
    order = [
        exp.Ordered(this=key.copy(), desc=item.args.get("desc"), nulls_first=item.args.get("nulls_first"))
        for item, key in keys
    ]
    window = exp.Window(
        this=exp.RowNumber(),
        partition_by=[exp.column("_k", table="_q")],
        order=exp.Order(expressions=order or [exp.Ordered(this=exp.column("_k", table="_q"))]),
    )
    numbered = exp.select("_q.*", exp.alias_(window, RANK)).from_(
        exp.Subquery(this=body, alias=table_alias("_q"))
    )
    if limit is None and offset is None:
        return numbered
    wanted = [*KEYS, *names, *([RANK] if ranked else [])]
    made = exp.select(*(column("_r", name) for name in wanted)).from_(
        exp.Subquery(this=numbered, alias=table_alias("_r"))
    )
    first = bound_of(offset, "_offset") if offset is not None else None
    if limit is not None:
        last = bound_of(limit, "_limit")
        bound = last if first is None else exp.Add(this=first.copy(), expression=last)
        made.where(exp.LTE(this=column("_r", RANK), expression=bound), copy=False)
    if first is not None:
        made.where(exp.GT(this=column("_r", RANK), expression=first), copy=False)
    return made


def bound_of(node: exp.Expr, name: str) -> exp.Expr:
    return column("_r", name) if isinstance(node, exp.Placeholder) else node.copy()


def table_alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name))
