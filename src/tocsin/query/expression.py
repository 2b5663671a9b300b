"""A query as a tree: frozen nodes, made by the parser, rewritten by ``canonical`` and compiled by ``evaluate``.

Conditions (``Has``, ``Compare``, ``Like``, ``Match``, ``In``, ``Not``, ``And``, ``Or``, ``Xor``) are true or false or
fail; the rest are values. A tree from the parser is no higher than ``QueryLimits.depth``, so that plain recursion over
it is safe. ``And``, ``Or`` and ``Xor`` have two parts or more and none of their own kind, however they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from tocsin.query.functions import FUNCTIONS
from tocsin.query.values import Kind, Value, kind_of

Comparison = OneOf["=", "!=", "<", "<=", ">", ">="]
Operator = OneOf["+", "-", "*", "/", "%"]


class Literal(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A value as it was written. ``1``, ``1.0`` and ``true`` are three literals, though Python has them equal."""

    value: Value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and self.value.__class__ is other.value.__class__
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((self.value.__class__, self.value))


class Key(msgspec.Struct, frozen=True, gc=False):
    """The value of a metadata key; fails where the key is missing."""

    name: str


class Has(msgspec.Struct, frozen=True, gc=False):
    """Whether a key is there. Never fails."""

    name: str


class Compare(msgspec.Struct, frozen=True, gc=False):
    """``left op right``. For ``=`` and ``!=`` the right side's type decides; the others compare numbers."""

    op: Comparison
    left: Expression
    right: Expression


class Like(msgspec.Struct, frozen=True, gc=False):
    """A string against a pattern with ``%`` (anything) and ``_`` (one character), escaped by a backslash."""

    subject: Expression
    pattern: str


class Match(msgspec.Struct, frozen=True, gc=False):
    """Whether a regular expression (RE2) is found anywhere in a string."""

    subject: Expression
    regex: str


class In(msgspec.Struct, frozen=True, gc=False):
    """Whether the subject equals an option; here the subject's type decides."""

    subject: Expression
    options: tuple[Expression, ...]


class Not(msgspec.Struct, frozen=True, gc=False):
    of: Expression


class And(msgspec.Struct, frozen=True, gc=False):
    parts: tuple[Expression, ...]


class Or(msgspec.Struct, frozen=True, gc=False):
    parts: tuple[Expression, ...]


class Xor(msgspec.Struct, frozen=True, gc=False):
    parts: tuple[Expression, ...]


class Arithmetic(msgspec.Struct, frozen=True, gc=False):
    op: Operator
    left: Expression
    right: Expression


class Negate(msgspec.Struct, frozen=True, gc=False):
    """The number with its sign turned."""

    of: Expression


class Call(msgspec.Struct, frozen=True, gc=False):
    """A function of ``functions.FUNCTIONS``; ``name`` is in capitals, and the number of arguments fits."""

    name: str
    args: tuple[Expression, ...]


Expression: TypeAlias = (
    Literal | Key | Has | Compare | Like | Match | In | Not | And | Or | Xor | Arithmetic | Negate | Call
)


def children(expression: Expression) -> tuple[Expression, ...]:
    """The nodes directly below this one, in the order in which they are written."""
    match expression:
        case Literal() | Key() | Has():
            return ()
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case Like(subject, _) | Match(subject, _):
            return (subject,)
        case In(subject, options):
            return (subject, *options)
        case Not(of) | Negate(of):
            return (of,)
        case And(parts) | Or(parts) | Xor(parts) | Call(_, parts):
            return parts


def walk(expression: Expression) -> Iterator[Expression]:
    """Every node, each before those below it."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def keys_of(expression: Expression) -> frozenset[str]:
    """The keys that the expression mentions: a change of any other cannot change its outcome."""
    return frozenset(node.name for node in walk(expression) if isinstance(node, Key | Has))


def height_of(expression: Expression) -> int:
    """How many nodes stand one below the other."""
    return 1 + max(map(height_of, children(expression)), default=0)


def type_of(expression: Expression) -> Kind | None:
    """The type of the outcome, or None where only the metadata can tell (a key)."""
    match expression:
        case Literal(value):
            return kind_of(value)
        case Key():
            return None
        case Arithmetic() | Negate():
            return "number"
        case Call(name, _):
            return FUNCTIONS[name].result
        case _:
            return "boolean"
