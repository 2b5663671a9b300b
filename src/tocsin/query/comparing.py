"""Equality, order and membership as functions of metadata, with a short way each for a key and literals.

``=`` reads the left side as the right side's type, ``IN`` its options as the subject's, and an order both sides as
numbers. ``IN`` is true if an option is equal, fails if none is and one failed, and is false otherwise: an ``OR``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

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

Evaluator: TypeAlias = Callable[[Metadata], Outcome]
Truth: TypeAlias = Callable[[Metadata], bool | Failure]
Order: TypeAlias = Callable[[Any, Any], bool]


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
