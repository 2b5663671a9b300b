"""Expressions as functions of metadata: compiled once, run often.

    compile_condition(expression) -> (metadata) -> bool          does it hold?
    compile_value(expression) -> (metadata) -> value or Failure
    evaluate(expression, metadata) -> (value, failure or None)   what CloudEvents SQL calls value and error

A failure goes through every operator and function (``missing + 1`` fails, and so does ``missing != 1``), except that
**a part which decides, decides**: a false part makes ``AND`` false and a true part makes ``OR`` true, whatever the
others do and in whichever order they are written. A condition that fails does not hold, nor does its ``NOT``. This is
SQL's logic of three values with failure as the third. It is CloudEvents SQL's short circuit made independent of order:
what that evaluates without error has the same value here.

``compile_condition`` uses that at the top a failure is as good as false, and so it is in the parts of an ``AND`` or
``OR`` there (but not below ``NOT``): it stops at the first part that is not true.

``=`` reads the left side as the right side's type, ``IN`` its options as the subject's, and an order both sides as
numbers. ``IN`` is true if an option is equal, fails if none is and one failed, and is false otherwise: an ``OR``. Each
has a short way for a key and literals.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tocsin.query.arithmetic import calculate, negate
from tocsin.query.expression import (
    And,
    Arithmetic,
    Call,
    Compare,
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
    type_of,
)
from tocsin.query.functions import FUNCTIONS
from tocsin.query.patterns import compile_like, compile_regex
from tocsin.query.values import (
    CAST_LIKE,
    Failure,
    Kind,
    Metadata,
    Number,
    Outcome,
    Value,
    kind_of,
    to_boolean,
    to_number,
    to_string,
)

Condition: TypeAlias = Callable[[Metadata], bool]
Evaluator: TypeAlias = Callable[[Metadata], Outcome]
Truth: TypeAlias = Callable[[Metadata], bool | Failure]
Order: TypeAlias = Callable[[Any, Any], bool]

_ORDERS: Final[Mapping[str, Order]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ZEROS: Final[Mapping[Kind | None, Value]] = {"string": "", "number": 0, "boolean": False, None: False}


def equal(left: Evaluator, right: Evaluator) -> Truth:
    def check(metadata: Metadata) -> bool | Failure:
        ours = left(metadata)
        if isinstance(ours, Failure):
            return ours
        theirs = right(metadata)
        if isinstance(theirs, Failure):
            return theirs
        cast = CAST_LIKE[theirs.__class__](ours)
        return cast if isinstance(cast, Failure) else cast == theirs

    return check


def key_equal(name: str, value: Value) -> Truth:
    """``name = value``."""
    own = value.__class__
    cast_to = CAST_LIKE[own]

    def check(metadata: Metadata) -> bool | Failure:
        ours = metadata.get(name)
        if ours.__class__ is own:
            return ours == value
        if ours is None:
            return Failure.MISSING
        cast = cast_to(ours)
        return cast if isinstance(cast, Failure) else cast == value

    return check


def ordered(order: Order, left: Evaluator, right: Evaluator) -> Truth:
    def check(metadata: Metadata) -> bool | Failure:
        ours, theirs = left(metadata), right(metadata)
        if isinstance(ours, Failure):
            return ours
        if isinstance(theirs, Failure):
            return theirs
        low, high = to_number(ours), to_number(theirs)
        if isinstance(low, Failure):
            return low
        return high if isinstance(high, Failure) else order(low, high)

    return check


def key_ordered(order: Order, name: str, bound: Number) -> Truth:
    """``name < bound`` and its like."""

    def check(metadata: Metadata) -> bool | Failure:
        ours = metadata.get(name)
        if ours.__class__ is int or ours.__class__ is float:
            return order(ours, bound)
        if ours is None:
            return Failure.MISSING
        cast = to_number(ours)
        return cast if isinstance(cast, Failure) else order(cast, bound)

    return check


def key_test(name: str, fits: Callable[[str], bool]) -> Truth:
    """The value of a key, as a string, against a pattern."""

    def check(metadata: Metadata) -> bool | Failure:
        ours = metadata.get(name)
        if ours is None:
            return Failure.MISSING
        return fits(ours if ours.__class__ is str else to_string(ours))

    return check


def one_of(subject: Evaluator, options: Sequence[Evaluator]) -> Truth:
    def check(metadata: Metadata) -> bool | Failure:
        ours = subject(metadata)
        if isinstance(ours, Failure):
            return ours
        cast_to = CAST_LIKE[ours.__class__]
        failure: Failure | None = None
        for option in options:
            theirs = option(metadata)
            if not isinstance(theirs, Failure):
                theirs = cast_to(theirs)
            if isinstance(theirs, Failure):
                failure = theirs
            elif ours == theirs:
                return True
        return failure or False

    return check


def key_one_of(name: str, options: Sequence[Value]) -> Truth:
    """``name IN (…)`` with literals: a look-up in the options as its value's type sees them."""
    strings = frozenset(map(to_string, options))
    numbers, no_number = _cast_all(map(to_number, options))
    booleans, no_boolean = _cast_all(map(to_boolean, options))
    seen: dict[Kind, tuple[frozenset[Value], bool | Failure]] = {
        "number": (numbers, no_number),
        "boolean": (booleans, no_boolean),
    }

    def check(metadata: Metadata) -> bool | Failure:
        ours = metadata.get(name)
        if ours.__class__ is str:
            return ours in strings
        if ours is None:
            return Failure.MISSING
        among, otherwise = seen[kind_of(ours)]
        return True if ours in among else otherwise

    return check


def _cast_all(options: Iterable[Outcome]) -> tuple[frozenset[Value], bool | Failure]:
    """The values that can be cast, and the meaning of the others."""
    outcomes = tuple(options)
    values = frozenset(outcome for outcome in outcomes if not isinstance(outcome, Failure))
    return values, Failure.CAST if Failure.CAST in outcomes else False


def compile_condition(expression: Expression) -> Condition:
    """Whether the expression, read as a boolean, is true."""
    match expression:
        case And(parts):
            return _all(tuple(map(_part, parts)))
        case Or(parts):
            return _any(tuple(map(_part, parts)))
    truth = compile_truth(expression)
    return lambda metadata: truth(metadata) is True


def _part(expression: Expression) -> Truth:
    """A part of a condition, of which only matters whether it is true."""
    return (compile_condition if isinstance(expression, And | Or) else compile_truth)(expression)


def compile_truth(expression: Expression) -> Truth:
    """The expression read as a boolean."""
    evaluator = compile_value(expression)
    if type_of(expression) == "boolean":
        return evaluator  # type: ignore[return-value]  # a condition gives nothing but booleans and failures

    def truth(metadata: Metadata) -> bool | Failure:
        value = evaluator(metadata)
        return value if isinstance(value, Failure) else to_boolean(value)

    return truth


def compile_value(expression: Expression) -> Evaluator:
    """The expression's own value."""
    match expression:
        case Literal(value):
            return lambda metadata: value
        case Key(name):
            return lambda metadata: metadata.get(name, Failure.MISSING)
        case Has(name):
            return lambda metadata: name in metadata
        case Compare():
            return _compare(expression)
        case Like(subject, pattern):
            return _test(subject, compile_like(pattern))
        case Match(subject, regex):
            return _test(subject, compile_regex(regex))
        case In(Key(name), options) if all(isinstance(option, Literal) for option in options):
            return key_one_of(name, [option.value for option in options if isinstance(option, Literal)])
        case In(subject, options):
            return one_of(compile_value(subject), tuple(map(compile_value, options)))
        case Not(of):
            return _not(compile_truth(of))
        case And(parts):
            return _decided(tuple(map(compile_truth, parts)), by=False)
        case Or(parts):
            return _decided(tuple(map(compile_truth, parts)), by=True)
        case Xor(parts):
            return _odd(tuple(map(compile_truth, parts)))
        case Arithmetic(op, left, right):
            return _arithmetic(op, compile_value(left), compile_value(right))
        case Negate(of):
            return _negate(compile_value(of))
        case Call(name, args):
            return _call(name, tuple(map(compile_value, args)))


def evaluate(expression: Expression, metadata: Metadata) -> tuple[Value, Failure | None]:
    """The value and no failure; or a failure, and the value that CloudEvents SQL wants beside it."""
    found = compile_value(expression)(metadata)
    if not isinstance(found, Failure):
        return found, None
    if isinstance(expression, Call):
        return _fallback(expression, metadata), found
    return _ZEROS[type_of(expression)], found


def _fallback(call: Call, metadata: Metadata) -> Value:
    function = FUNCTIONS[call.name]
    args = _cast_args(call.name, tuple(map(compile_value, call.args)), metadata)
    if isinstance(args, Failure) or function.fallback is None:
        return _ZEROS[function.result]
    return function.fallback(*args)


# ── conditions ───────────────────────────────────────────────────────────────────────────────────────────────


def _all(parts: tuple[Truth, ...]) -> Condition:
    if len(parts) == 2:
        first, second = parts
        return lambda metadata: first(metadata) is True and second(metadata) is True

    def holds(metadata: Metadata) -> bool:
        for part in parts:  # noqa: SIM110  (a generator would cost more than the parts)
            if part(metadata) is not True:
                return False
        return True

    return holds


def _any(parts: tuple[Truth, ...]) -> Condition:
    def holds(metadata: Metadata) -> bool:
        for part in parts:  # noqa: SIM110
            if part(metadata) is True:
                return True
        return False

    return holds


def _decided(parts: tuple[Truth, ...], *, by: bool) -> Truth:
    """``AND`` (decided by a false part) and ``OR`` (by a true one)."""

    def truth(metadata: Metadata) -> bool | Failure:
        failure: Failure | None = None
        for part in parts:
            found = part(metadata)
            if found is by:
                return by
            if isinstance(found, Failure):
                failure = failure or found
        return failure or not by

    return truth


def _odd(parts: tuple[Truth, ...]) -> Truth:
    def truth(metadata: Metadata) -> bool | Failure:
        odd = False
        for part in parts:
            found = part(metadata)
            if isinstance(found, Failure):
                return found
            odd ^= found
        return odd

    return truth


def _not(of: Truth) -> Truth:
    def truth(metadata: Metadata) -> bool | Failure:
        found = of(metadata)
        return found if isinstance(found, Failure) else not found

    return truth


def _compare(expression: Compare) -> Truth:
    match expression:
        case Compare("!=", left, right):
            return _not(_compare(Compare("=", left, right)))
        case Compare("=", Key(name), Literal(value)):
            return key_equal(name, value)
        case Compare("=", left, right):
            return equal(compile_value(left), compile_value(right))
        case Compare(op, Key(name), Literal(value)):
            bound = to_number(value)
            if not isinstance(bound, Failure):
                return key_ordered(_ORDERS[op], name, bound)
    return ordered(_ORDERS[expression.op], compile_value(expression.left), compile_value(expression.right))


def _test(subject: Expression, fits: Callable[[str], bool]) -> Truth:
    """A string against a pattern."""
    if isinstance(subject, Key):
        return key_test(subject.name, fits)
    evaluator = compile_value(subject)

    def truth(metadata: Metadata) -> bool | Failure:
        value = evaluator(metadata)
        return value if isinstance(value, Failure) else fits(to_string(value))

    return truth


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────


def _arithmetic(op: str, left: Evaluator, right: Evaluator) -> Evaluator:
    def value(metadata: Metadata) -> Outcome:
        first, second = left(metadata), right(metadata)
        if isinstance(first, Failure):
            return first
        return second if isinstance(second, Failure) else calculate(op, first, second)

    return value


def _negate(of: Evaluator) -> Evaluator:
    def value(metadata: Metadata) -> Outcome:
        found = of(metadata)
        return found if isinstance(found, Failure) else negate(found)

    return value


def _call(name: str, evaluators: tuple[Evaluator, ...]) -> Evaluator:
    run = FUNCTIONS[name].run

    def value(metadata: Metadata) -> Outcome:
        args = _cast_args(name, evaluators, metadata)
        return args if isinstance(args, Failure) else run(*args)

    return value


def _cast_args(name: str, evaluators: tuple[Evaluator, ...], metadata: Metadata) -> list[Value] | Failure:
    function = FUNCTIONS[name]
    args: list[Value] = []
    for index, evaluator in enumerate(evaluators):
        arg = evaluator(metadata)
        if not isinstance(arg, Failure):
            arg = function.cast_of(index)(arg)
        if isinstance(arg, Failure):
            return arg
        args.append(arg)
    return args
