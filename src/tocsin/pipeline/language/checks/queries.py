"""Checks of a query beyond names and types: the results' names, bounds, and patterns from parameters."""

from __future__ import annotations

from sqlglot import exp

from tocsin.model.catalogue import COLUMNS_MAX, Channel
from tocsin.pipeline.language.functions.library import parsed, sql_of
from tocsin.pipeline.language.limits import WILDCARDS_MAX
from tocsin.pipeline.language.names import meant
from tocsin.pipeline.language.tree.resolution import METADATA, Resolved


def check_outputs(resolved: Resolved, channel: Channel) -> dict[str, str]:
    """The results' columns: in small letters → as they are written."""
    text = resolved.text
    outputs: dict[str, str] = {}
    for select in resolved.tree.selects:
        name = select.alias_or_name
        if name in METADATA:
            raise text.wrong_at(
                select, f"a result has a column {name} of its own", f"give this one another name: {name} AS …"
            )
        if not name or name.startswith("_") or not name.isidentifier():
            raise text.wrong_at(select, "this column of the result has no name", "give it one, with AS")
        if name in outputs:
            raise text.wrong_at(
                select, f"two columns of the result are called {name}", "give one another name, with AS"
            )
        outputs[name] = resolved.spelling.get(name, name)
    if len(outputs) > COLUMNS_MAX:
        raise text.wrong(0, f"a result of {len(outputs)} columns", f"at most {COLUMNS_MAX} are allowed")
    column = channel.priority_column
    if column is not None and column.lower() not in outputs:
        raise text.wrong(
            0,
            f"PRIORITY BY {column}: the result has no such column",
            meant(column, outputs.values(), "columns"),
        )
    return outputs


def check_bounds(resolved: Resolved) -> None:
    """LIMIT and OFFSET are numbers or parameters; common table expressions have different names."""
    text = resolved.text
    for node in resolved.tree.find_all(exp.Limit, exp.Offset):
        bound = node.expression
        if isinstance(bound, exp.Placeholder) and bound.is_type(exp.DType.BIGINT):
            continue
        if not isinstance(bound, exp.Literal) or bound.is_string or not bound.name.isdigit():
            raise text.wrong_at(
                node, "LIMIT and OFFSET take a number", "write it out, or use a parameter of type BIGINT"
            )
    seen: set[str] = set()
    for cte in resolved.tree.find_all(exp.CTE):
        if cte.alias in seen:
            raise text.wrong_at(cte, f"two tables of WITH are called {cte.alias}", "name them apart")
        seen.add(cte.alias)


def guard_patterns(tree: exp.Expr) -> None:
    """Let a LIKE pattern that is not written out match nothing if its many wildcards could take forever."""
    for node in list(tree.find_all(exp.Like, exp.ILike)):
        pattern = node.expression
        if isinstance(pattern, exp.Literal):
            continue
        sql = sql_of(pattern)
        few = parsed(f"LENGTH({sql}) - LENGTH(REPLACE({sql}, '%', '')) <= {WILDCARDS_MAX}")
        whole = node.parent if isinstance(node.parent, exp.Escape) else node
        guarded = exp.If(this=few, true=whole.copy(), false=exp.null())
        whole.replace(guarded)
