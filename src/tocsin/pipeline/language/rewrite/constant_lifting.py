"""Constants that become columns of the subscriptions, so that channels that differ in nothing else share one plan.

Only where it changes nothing but the plan: a constant that a condition of WHERE, ON or HAVING compares with a value
of the same kind, or that a predicate of the library takes, or a text that stands in the result by itself. Constants
elsewhere (the digits of ROUND, patterns, intervals, LIMIT) are part of the query's form.
"""

from __future__ import annotations

from typing import Final

import msgspec
from sqlglot import exp

from tocsin.model.catalogue import ParameterType
from tocsin.pipeline.language.functions import geometry
from tocsin.pipeline.language.limits import CONSTANTS_MAX
from tocsin.pipeline.language.tree import trees
from tocsin.pipeline.language.tree.resolution import family_of

_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_BIGINT: Final = range(-(2**63), 2**63)

Value = str | int | float


class Constant(msgspec.Struct, frozen=True):
    value: Value
    type: ParameterType


def lift(select: exp.Select, alias: str, constants: list[Constant]) -> None:
    """Replace a block's constants by columns ``c0…`` of ``alias``; they are added to ``constants``."""
    for node in [node for part in _parts(select) for node in trees.own(part)]:
        if len(constants) == CONSTANTS_MAX:
            return
        constant = _constant(node)
        if constant is not None:
            node.replace(trees.column(alias, f"c{len(constants)}"))
            constants.append(constant)


def _parts(select: exp.Select) -> list[exp.Expr]:
    """Where constants may be taken from."""
    found: list[exp.Expr] = []
    if where := select.args.get("where"):
        found.append(where)
    found += [join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on")]
    if having := select.args.get("having"):
        found += [part for part in trees.conjuncts(having.this) if trees.aggregates(part)]
    plain = not select.args.get("distinct") and not select.args.get("group")
    if plain and not any(trees.aggregates(each) for each in select.selects):
        found += [each for each in select.selects if isinstance(each.unalias(), exp.Literal)]
    return found


def _constant(node: exp.Expr) -> Constant | None:
    value = _value(node)
    if value is None:
        return None
    parent = node.parent
    if isinstance(parent, exp.Anonymous):
        return _argument(parent, node, value)
    if isinstance(parent, exp.Alias):
        return Constant(value, "STRING") if isinstance(value, str) else None
    if isinstance(parent, exp.Cast) and isinstance(parent.parent, exp.PropertyEQ):
        inside = parent.find_ancestor(exp.Anonymous, exp.Query)
        return Constant(float(value), "DOUBLE") if isinstance(inside, exp.Anonymous) else None
    return _compared(parent, node, value)


def _compared(parent: exp.Expr | None, node: exp.Expr, value: Value) -> Constant | None:
    if isinstance(parent, exp.Between):
        other: exp.Expr = parent.this
    elif isinstance(parent, exp.In) and node is not parent.this:
        other = parent.this
    elif isinstance(parent, _COMPARISONS):
        other = parent.expression if node is parent.this else parent.this
    else:
        return None
    family = family_of(other)
    if isinstance(value, str):
        return Constant(value, "STRING") if family == "text" else None
    if family != "number" or isinstance(other, exp.Literal | exp.Neg):
        return None
    if isinstance(value, int):
        return Constant(value, "BIGINT")
    return Constant(value, "DOUBLE") if other.is_type(exp.DType.DOUBLE, exp.DType.FLOAT) else None


def _argument(call: exp.Anonymous, node: exp.Expr, value: Value) -> Constant | None:
    """The constant to lift: WITHIN's distance, whose level in the grid is noted; CONTAINS' polygon; MATCHES' words."""
    name = call.name.lower()
    if name == "within" and node is call.expressions[2] and not isinstance(value, str):
        call.meta["level"] = geometry.level_of(float(value) * 1.000001 + 0.001, step=1)
        return Constant(float(value), "DOUBLE")
    if name == "contains" and node is call.expressions[0] and isinstance(value, str):
        return Constant(value, "STRING")
    if name == "matches" and node is call.expressions[1] and isinstance(value, str):
        return Constant(value, "STRING")
    return None


def _value(node: exp.Expr) -> Value | None:
    """The value of a literal, with its sign."""
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        found = _value(node.this)
        return -found if isinstance(found, int | float) else None
    if not isinstance(node, exp.Literal) or isinstance(node.parent, exp.Neg):
        return None
    if node.is_string:
        return str(node.this)
    text = str(node.this)
    if text.isdigit():
        return int(text) if int(text) in _BIGINT else None
    try:
        return float(text)
    except ValueError:
        return None
