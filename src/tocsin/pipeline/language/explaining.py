"""EXPLAIN CHANNEL: how a channel is run, as text, without Spark's own plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from tocsin.model.catalogue import Parameter
from tocsin.pipeline.language.functions.library import sql_of
from tocsin.pipeline.language.tree import trees

if TYPE_CHECKING:
    from tocsin.pipeline.execution.compiled import Compiled

_RANGES: Final = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.NEQ)
_SHOWN_MAX: Final = 60


def uses(select: exp.Select, parameters: tuple[Parameter, ...]) -> list[str]:
    """A block's use of each of its parameters."""
    found: dict[str, None] = {}
    for node in trees.own(select):
        if isinstance(node, exp.Placeholder):
            name = f":{parameters[int(node.name)].name}"
            found[f"{name} {_use(node)}"] = None
    return list(found)


def _use(node: exp.Placeholder) -> str:
    parent = node.parent
    if isinstance(parent, exp.EQ | exp.NullSafeEQ):
        other = parent.expression if parent.this is node else parent.this
        inside = node.find_ancestor(exp.Where, exp.Join, exp.Select, exp.Or, exp.Not, exp.Case)
        if isinstance(other, exp.Column) and isinstance(inside, exp.Where | exp.Join):
            return f"= {other.table}.{other.name}: subscriptions are joined by this equality"
    if isinstance(parent, exp.In):
        return f"in a list of {_short(parent.this)}: compared for each candidate"
    if isinstance(parent, _RANGES):
        return f"in {_short(parent)}: compared for each candidate"
    if isinstance(parent, exp.Like | exp.ILike):
        return f"as a pattern of {_short(parent.this)}: matched for each candidate"
    call = node.find_ancestor(exp.Anonymous, exp.Query)
    if isinstance(call, exp.Anonymous):
        return f"in {call.name.upper()}"
    return "as a value"


def _short(node: exp.Expr) -> str:
    copy = node.copy()
    for placeholder in copy.find_all(exp.Placeholder):
        placeholder.replace(exp.Var(this="?"))
    text = sql_of(copy)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def explain(compiled: Compiled) -> str:
    """The plan as text, one line for each step."""
    channel, template = compiled.channel, compiled.template
    period = "whenever there is something new" if channel.every_s is None else f"every {channel.every_s:g} s"
    lines = [
        f"{channel.signature}, {period}",
        f"one query for all subscriptions, shared by all channels of this shape ({template.id})",
    ]
    if compiled.constants:
        values = ", ".join(_value(value) for value in compiled.constants)
        lines.append(f"constants that another channel of this shape may have differently: {values}")
    for read in template.reads:
        what = "only what is new since the last execution" if read.new else "as a whole"
        lines.append(f"reads {read.words}, {what}")
        if read.results:
            lines.append(f"runs in a tick after {read.name}, if both are due")
    lines += compiled.notes
    if "ROW_NUMBER() OVER (PARTITION BY _q._k" in template.sql:
        lines.append("results are ordered, and cut by LIMIT, within each subscription")
    return "\n".join(lines)


def _value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
