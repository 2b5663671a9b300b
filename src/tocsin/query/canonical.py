"""One form for all the ways to write a query.

    canonical(expression) -> an expression that is true for the same metadata, and the same for all ways to write it

``NOT`` is driven inwards (De Morgan, ``NOT a < b`` is ``a >= b``) until it stands only before ``EXISTS``, ``LIKE``,
``IN``, ``=~`` and ``XOR``. Parts of ``AND``, ``OR`` and ``XOR`` are flattened, sorted by their text and told once;
what is constant is calculated; a literal stands on the right; a value where a condition is wanted becomes ``= TRUE``.

Two promises, of which the second allows more:

- **exact**: the same outcome, failures included. Needed below ``XOR`` and inside values.
- otherwise: true for the same metadata. False and failed need not be kept apart, because after ``NOT`` has been driven
  inwards nothing above can tell them apart. So ``x IN ('a')`` is ``x = 'a'``, ``x = 'a' OR x = 'b'`` is
  ``x IN ('a', 'b')``, and ``a AND NOT a`` is ``FALSE``, although the two sides fail for different metadata.

Expressions that look equal and are not, because a cast is involved, stay apart: ``5 = x`` (as the type of x) and ``x =
5`` (as a number), ``x NOT IN ('a')`` (fails if x is a number) and ``x != 'a'``. It finds what the rules below find, not
every equality of logic. The text is printed and sorted a few times for each level of nesting, and never once a path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tocsin.query.evaluate import evaluate
from tocsin.query.expression import (
    And,
    Arithmetic,
    Call,
    Compare,
    Comparison,
    Expression,
    Has,
    In,
    Key,
    Like,
    Literal,
    Match,
    Negate,
    Not,
    Or,
    Xor,
    children,
    keys_of,
    type_of,
)
from tocsin.query.grammar import print_expression
from tocsin.query.patterns import like_pieces, like_text
from tocsin.query.values import CASTS, WHOLE_MAX, Failure, to_boolean, to_number, to_string

_OPPOSITE: Final[dict[Comparison, Comparison]] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
_TURNED: Final[dict[Comparison, Comparison]] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
TRUE: Final = Literal(True)
FALSE: Final = Literal(False)
FAILED: Final = Compare("=", Literal(""), TRUE)  # stands for every condition that fails whatever the metadata


def canonical(expression: Expression) -> Expression:
    """The canonical form of a condition."""
    return _condition(expression, negated=False, exact=False)


def _condition(node: Expression, *, negated: bool, exact: bool) -> Expression:
    """The node read as a boolean, or its negation."""
    match node:
        case Not(of) | Call("BOOL", (of,)):
            return _condition(of, negated=negated != isinstance(node, Not), exact=exact)
        case And(parts) | Or(parts):
            parts = tuple(_condition(part, negated=negated, exact=exact) for part in parts)
            return _join(And if isinstance(node, And) != negated else Or, parts, exact=exact)
        case Xor(parts):
            return _exclusive(parts, odd=negated, exact=exact)
        case Compare(op, left, right):
            return _compare(
                _OPPOSITE[op] if negated else op, canonical_value(left), canonical_value(right), exact=exact
            )
        case In(subject, options):
            return _member(
                canonical_value(subject), map(canonical_value, options), negated=negated, exact=exact
            )
        case Like(subject, pattern):
            return _like(canonical_value(subject), pattern, negated=negated, exact=exact)
        case Match(subject, regex):
            return _leaf(Match(canonical_value(subject), regex), negated=negated, exact=exact)
        case Has():
            return Not(node) if negated else node
        case _:
            return _compare("=", canonical_value(node), FALSE if negated else TRUE, exact=exact)


def canonical_value(node: Expression) -> Expression:
    """The canonical form of a value, or of a condition in its place: the same outcome, failures included."""
    match node:
        case Literal() | Key():
            return node
        case Arithmetic(op, left, right):
            left, right = _number(canonical_value(left)), _number(canonical_value(right))
            if op in "+*" and print_expression(right) < print_expression(left):
                left, right = right, left
            node = Arithmetic(op, left, right)
        case Negate(of):
            node = Negate(_number(canonical_value(of)))
        case Call("BOOL", _):
            return _condition(node, negated=False, exact=True)
        case Call(name, args):
            node = Call(name, tuple(map(canonical_value, args)))
        case _:
            return _condition(node, negated=False, exact=True)
    if all(isinstance(child, Literal) for child in children(node)):
        value, failure = evaluate(node, {})
        return node if failure else Literal(value)
    return node


def _leaf(node: Expression, *, negated: bool, exact: bool) -> Expression:
    """A condition that stays as it is, unless it is the same for all metadata."""
    if not keys_of(node):
        value, failure = evaluate(node, {})
        if failure:
            return _failed(exact=exact)
        return Literal(bool(value) != negated)
    return Not(node) if negated else node


def _failed(*, exact: bool) -> Expression:
    return FAILED if exact else FALSE


# ── AND, OR, XOR ─────────────────────────────────────────────────────────────────────────────────────────────


def _join(kind: type[And | Or], parts: Iterable[Expression], *, exact: bool) -> Expression:
    decider = kind is Or
    unique: dict[str, Expression] = {}
    for part in parts:
        for single in part.parts if isinstance(part, kind) else (part,):
            if isinstance(single, Literal):
                if single.value is decider:
                    return single
            else:
                unique[print_expression(single)] = single
    other = And if decider else Or
    absorbed = [
        text
        for text, part in unique.items()
        if isinstance(part, other) and any(print_expression(single) in unique for single in part.parts)
    ]
    for text in absorbed:
        del unique[text]
    if not exact and decider:
        unique = _gather(unique)
    elif not exact and any(print_expression(_negation(part)) in unique for part in unique.values()):
        return FALSE
    ordered = tuple(unique[text] for text in sorted(unique))
    if len(ordered) > 1:
        return kind(ordered)
    return ordered[0] if ordered else Literal(not decider)


def _negation(form: Expression) -> Expression:
    """The negation of a canonical form, canonical if that is exact; its parts are not looked at again."""
    match form:
        case And(parts) | Or(parts):
            negations = {print_expression(part): part for part in map(_negation, parts)}
            ordered = tuple(negations[text] for text in sorted(negations))
            return Or(ordered) if isinstance(form, And) else And(ordered)
        case Not(of):
            return of
        case Compare("=", left, Literal(bool() as wanted)):
            return form if form == FAILED else Compare("=", left, Literal(not wanted))
        case Compare(op, left, right):
            return _order(_OPPOSITE[op], left, right)
        case _:
            return Not(form)


def _gather(parts: dict[str, Expression]) -> dict[str, Expression]:
    """``x = 'a' OR x IN ('b', 'c')`` as one ``IN``."""
    rest: dict[str, Expression] = {}
    groups: dict[str, tuple[Expression, list[Expression]]] = {}
    for text, part in parts.items():
        match part:
            case Compare("=", subject, Literal() as option) if _is_plain(option):
                groups.setdefault(print_expression(subject), (subject, []))[1].append(option)
            case In(subject, options) if all(map(_is_plain, options)):
                groups.setdefault(print_expression(subject), (subject, []))[1].extend(options)
            case _:
                rest[text] = part
    for subject, gathered in groups.values():
        member = _member(subject, gathered, negated=False, exact=False)
        rest[print_expression(member)] = member
    return rest


def _exclusive(parts: Iterable[Expression], *, odd: bool, exact: bool) -> Expression:
    """``XOR``; ``odd`` if all of it is negated. A part stands for its negation too, whichever is first by text."""
    counted: dict[str, tuple[Expression, int]] = {}
    waiting = [_condition(part, negated=False, exact=True) for part in parts]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Not) and isinstance(part.of, Xor):
            odd, part = not odd, part.of
        if isinstance(part, Xor):
            waiting.extend(part.parts)
        elif isinstance(part, Literal):
            odd ^= bool(part.value)
        else:
            opposite = _negation(part)
            text, turned = print_expression(part), print_expression(opposite)
            if turned < text:
                odd, part, text = not odd, opposite, turned
            counted[text] = (part, counted.get(text, (part, 0))[1] + 1)
    # Two of the same are false, unless they fail: so of three one is left, but of two both.
    left = [part for _, (part, count) in sorted(counted.items()) for _ in range(2 - count % 2)]
    if len(left) > 1:
        return Not(Xor(tuple(left))) if odd else Xor(tuple(left))
    return _condition(left[0], negated=odd, exact=exact) if left else Literal(odd)


# ── comparisons ──────────────────────────────────────────────────────────────────────────────────────────────


def _compare(op: Comparison, left: Expression, right: Expression, *, exact: bool) -> Expression:
    if not keys_of(left) and not keys_of(right):
        return _leaf(Compare(op, left, right), negated=False, exact=exact)
    if op in ("=", "!="):
        return _equal(op, _whole(left), _whole(right), exact=exact)
    left, right = _whole(_number(left)), _whole(_number(right))
    if any(
        isinstance(side, Literal) and isinstance(to_number(side.value), Failure) for side in (left, right)
    ):
        return _failed(exact=exact)
    return _order(op, left, right)


def _order(op: Comparison, left: Expression, right: Expression) -> Compare:
    """A comparison with its sides in order, where they may change places."""
    if op in _TURNED and (_belongs_right(left, right) or (left == right and op in (">", ">="))):
        return Compare(_TURNED[op], right, left)
    return Compare(op, left, right)


def _equal(op: Comparison, left: Expression, right: Expression, *, exact: bool) -> Expression:
    """``=`` and ``!=``, which read the left side as the right side's type: they turn only where both have the same."""
    ours, theirs = type_of(left), type_of(right)
    if theirs == "boolean":
        return _same_truth(left, right, same=op == "=", exact=exact)
    if ours is not None and ours == theirs:
        return Compare(op, right, left) if _belongs_right(left, right) else Compare(op, left, right)
    if isinstance(left, Literal):
        if theirs is None:
            return _member(right, (left,), negated=op == "!=", exact=exact)
        value = CASTS[theirs](left.value)
        if isinstance(value, Failure):
            return _failed(exact=exact)
        return Compare(op, right, _whole(Literal(value)))
    return Compare(op, left, right)


def _same_truth(left: Expression, right: Expression, *, same: bool, exact: bool) -> Expression:
    """Equality with a condition, or with ``TRUE`` or ``FALSE``."""
    if not isinstance(right, Literal):
        return _exclusive((left, right), odd=same, exact=exact)
    wanted = bool(right.value) == same
    if type_of(left) == "boolean":
        return _condition(left, negated=not wanted, exact=exact)
    return Compare("=", left, Literal(wanted))


def _member(subject: Expression, options: Iterable[Expression], *, negated: bool, exact: bool) -> Expression:
    unique = {print_expression(option): option for option in map(_whole, options)}
    ordered = tuple(unique[text] for text in sorted(unique))
    node = In(_whole(subject), ordered)
    if not keys_of(node):
        return _leaf(node, negated=negated, exact=exact)
    if len(ordered) == 1:
        option = ordered[0]
        known = type_of(subject) is not None and type_of(subject) == type_of(option)
        if not isinstance(option, Literal) or known:
            return _equal("!=" if negated else "=", option, node.subject, exact=exact)
        if not exact and not negated and _is_plain(option):
            return Compare("=", subject, option)
    return Not(node) if negated else node


def _like(subject: Expression, pattern: str, *, negated: bool, exact: bool) -> Expression:
    pieces = like_pieces(pattern)
    if not any(wild for _, wild in pieces):
        text = Literal("".join(piece for piece, _ in pieces))
        return _compare("!=" if negated else "=", subject, text, exact=exact)
    return _leaf(Like(subject, like_text(pieces)), negated=negated, exact=exact)


def _belongs_right(left: Expression, right: Expression) -> bool:
    """Whether the left side should change places: literals are on the right, else the text decides."""
    if isinstance(left, Literal) or isinstance(right, Literal):
        return isinstance(left, Literal)
    return print_expression(right) < print_expression(left)


# ── literals ─────────────────────────────────────────────────────────────────────────────────────────────────


def _whole(node: Expression) -> Expression:
    """``5.0`` as ``5`` where they are compared: they are equal, and cast to the same."""
    if not isinstance(node, Literal) or not isinstance(node.value, float):
        return node
    whole = node.value.is_integer() and abs(node.value) < WHOLE_MAX
    return Literal(int(node.value)) if whole else node


def _number(node: Expression) -> Expression:
    """A literal as the number it will be read as."""
    if isinstance(node, Literal):
        number = to_number(node.value)
        return node if isinstance(number, Failure) else Literal(number)
    return node


def _is_plain(option: Expression) -> bool:
    """Whether ``x = option`` and ``x IN (option)`` are true for the same x: a string that no cast changes."""
    if not isinstance(option, Literal) or not isinstance(option.value, str):
        return False
    number, boolean = to_number(option.value), to_boolean(option.value)
    if not isinstance(number, Failure):
        # From WHOLE_MAX on one number is written in two ways.
        return to_string(number) == option.value and abs(number) < WHOLE_MAX
    return isinstance(boolean, Failure) or to_string(boolean) == option.value
