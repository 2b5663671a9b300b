"""Questions about a query's tree, one block at a time. A block is a SELECT; what is inside its subqueries is not its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

# Aggregates whose value is not NULL where there is nothing to aggregate.
EMPTY: Final[dict[type[exp.Expr], str]] = {
    exp.Count: "0",
    exp.CountIf: "0",
    exp.ApproxDistinct: "0",
    exp.ArrayAgg: "ARRAY()",
    exp.ArrayUniqueAgg: "ARRAY()",
}


def own(node: exp.Expr, *, into: bool = True) -> Iterator[exp.Expr]:
    """The nodes of a block, in the order of the text; a subquery in it is given, but not what is inside."""
    yield node
    if isinstance(node, exp.Query) and not into:
        return
    for child in node.iter_expressions():
        if isinstance(child, exp.Query | exp.With):
            yield child
        else:
            yield from own(child, into=False)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether this node aggregates rows of its block; a function OVER a window does not."""
    if not isinstance(node, exp.AggFunc):
        return False
    parent = node.parent
    while isinstance(parent, exp.Filter):
        parent = parent.parent
    return not (isinstance(parent, exp.Window) and _function_of(parent) is node)


def _function_of(window: exp.Window) -> exp.Expr:
    node: exp.Expr = window.this
    while isinstance(node, exp.Filter):
        node = node.this
    return node


def with_filter(node: exp.Expr) -> exp.Expr:
    """An aggregate with the FILTER around it."""
    return node.parent if isinstance(node.parent, exp.Filter) else node


def aggregates(node: exp.Expr) -> list[exp.Expr]:
    return [with_filter(each) for each in own(node) if is_aggregate(each)]


def subqueries(select: exp.Select) -> list[exp.Query]:
    """The subqueries in a block's expressions, not those in FROM."""
    found: list[exp.Query] = []
    for node in own(select):
        if node is select or not isinstance(node, exp.Query):
            continue
        if not isinstance(node.parent, exp.From | exp.Join):
            found.append(node)
    return found


def is_correlated(query: exp.Query) -> bool:
    """Whether a subquery speaks of tables around it."""
    inside = {source.alias_or_name for source in query.find_all(exp.Table, exp.Subquery)}
    inside |= {cte.alias for cte in query.find_all(exp.CTE)}
    return any(column.table and column.table not in inside for column in query.find_all(exp.Column))


def unwrapped(query: exp.Query) -> exp.Query:
    """A query without the brackets around it."""
    while isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query):
        query = query.this
    return query


def has_one_row(query: exp.Query) -> bool:
    """Whether a subquery gives one row at most, seen from its form."""
    query = unwrapped(query)
    limit = query.args.get("limit")
    if limit is not None and limit.expression.name in ("0", "1"):
        return True
    if not isinstance(query, exp.Select):
        return False
    return query.args.get("group") is None and any(aggregates(each) for each in query.selects)


def column(table: str, name: str) -> exp.Column:
    return exp.column(name, table=table)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts of an AND, without brackets."""
    if condition is None:
        return []
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        return conjuncts(condition.left) + conjuncts(condition.right)
    return [condition]


def conjoin(*parts: exp.Expr | None) -> exp.Expr | None:
    found = [part for part in parts if part is not None]
    if not found:
        return None
    return exp.and_(*found, copy=False) if len(found) > 1 else found[0]
