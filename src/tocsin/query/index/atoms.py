"""Atoms: what must hold when a query does, and what can change it; all that an index knows of an expression.

``cover_of`` gives a **cover**: a formula of atoms that is true whenever the expression is. It may be true more often,
and None says that nothing is known. An **atom** is about one key: ``Tokens`` (its value has one of these) or ``Range``
(its value is a number between these ends). A condition that fails without its key implies at least that the key is
there, and so does its ``NOT``.

``watches_of`` gives, for each key, all that a change of its value can do: a query's outcome stays as it is while no
atom of the changed keys turns. ``FORM`` stands for presence and type, which always count; ``EVERY`` for any change.

Both go once over the expression, and look for the forms that ``canonical`` leaves: a key on the left and a literal on
the right, and ``NOT`` at the very bottom. They are right for others too, but know less. Comparisons of one key with
numbers that stand in one ``AND`` are one ``Range``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from math import inf, nextafter
from typing import Final, TypeAlias

import msgspec

from tocsin.query.expression import (
    And,
    Compare,
    Expression,
    Has,
    In,
    Key,
    Like,
    Literal,
    Match,
    Not,
    Or,
    Xor,
    children,
    keys_of,
)
from tocsin.query.index.tokens import (
    AS_FALSE,
    AS_TRUE,
    HERE,
    Beginning,
    Token,
    token_equal_to,
    tokens_of_option,
)
from tocsin.query.patterns import like_prefix
from tocsin.query.values import WHOLE_MAX, Failure, to_boolean, to_number


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """The key's value has one of the tokens."""

    key: str
    tokens: tuple[Token, ...]
    implied: bool = False  # only that the key is there, and only because the query would fail without it

    @property
    def exact(self) -> bool:
        """Whether each token stands for one value, as it is read in one way."""
        return not any(
            isinstance(token, Beginning) or token in (HERE, AS_TRUE, AS_FALSE) for token in self.tokens
        )


class Range(msgspec.Struct, frozen=True, gc=False):
    """The key's value is a number between the ends, both included."""

    key: str
    low: float
    high: float


class AllOf(msgspec.Struct, frozen=True, gc=False):
    """Every part holds; two or more."""

    parts: tuple[Cover, ...]


class AnyOf(msgspec.Struct, frozen=True, gc=False):
    """One of the parts holds; of none, never."""

    parts: tuple[Cover, ...]


class Watch(Enum):
    """Atoms that name no value."""

    FORM = "whether the key is there, and the type of its value"
    EVERY = "any change of the value"


Atom: TypeAlias = Tokens | Range
Cover: TypeAlias = Tokens | Range | AllOf | AnyOf
Watched: TypeAlias = Tokens | Range | Watch

NEVER: Final = AnyOf(())
# An anchored regular expression up to the first character that may mean something, and that character.
_ANCHORED: Final = re.compile(r"\^((?:[\w /:,;=@~-]|\\[./+-])+)(.?)", re.ASCII | re.DOTALL)


def cover_of(expression: Expression) -> Cover | None:
    """The conditions that hold when the expression is true."""
    cover = _COVERS.get(expression.__class__)
    return _presence(expression) if cover is None else cover(expression)


def watches_of(expression: Expression) -> Mapping[str, frozenset[Watched]]:
    """Each key that the expression mentions, with the atoms by which it can matter."""
    found: dict[str, set[Watched]] = {}
    for key, watched in _watches(expression):
        found.setdefault(key, set()).add(watched)
    return {
        key: frozenset((Watch.EVERY,)) if Watch.EVERY in watched else frozenset(watched)
        for key, watched in found.items()
    }


def regex_prefix(regex: str) -> str:
    """A text with which every string that the expression is found in begins."""
    anchored = _ANCHORED.match(regex)
    if anchored is None or "|" in regex:
        return ""
    text, follows = anchored.groups()
    plain = re.sub(r"\\(.)", r"\1", text)
    return plain[:-1] if follows in ("?", "*", "{") else plain


def _watches(expression: Expression) -> Iterable[tuple[str, Watched]]:
    match expression:
        case And(parts):
            ranges: dict[str, Range] = {}
            for part in parts:
                atom = _atom(part)
                if isinstance(atom, Range):
                    ranges[atom.key] = _meet(ranges.get(atom.key, atom), atom)
                else:
                    yield from _watches(part)
            for key, merged in ranges.items():
                yield key, merged if merged.low <= merged.high else Watch.FORM
        case Or() | Xor() | Not():
            for part in children(expression):
                yield from _watches(part)
        case Has(name):
            yield name, Watch.FORM
        case Compare("!=", left, right):
            yield from _watches(Compare("=", left, right))
        case _:
            atom = _atom(expression)
            if atom is not None:
                yield atom.key, atom
            else:
                for key in keys_of(expression):
                    yield key, Watch.EVERY


def _atom(expression: Expression) -> Atom | None:
    """The atom that is true exactly when a comparison of a key with literals is, if there is one."""
    match expression:
        case Compare("=", Key(name), Literal(value)):
            return Tokens(name, (token_equal_to(value),))
        case Compare(op, Key(name), Literal(value)) if op != "!=":
            return _range(name, op, to_number(value))
        case In(Key(name), options):
            tokens: dict[Token, None] = {}
            for option in options:
                if not isinstance(option, Literal):
                    return None
                tokens.update(dict.fromkeys(tokens_of_option(option.value)))
            return Tokens(name, tuple(tokens))
    return None


def _range(name: str, op: str, bound: float | Failure) -> Range | None:
    """Beyond 2⁵³ a whole number and its floating-point form may lie on different sides of a bound: no atom there."""
    if isinstance(bound, Failure) or abs(bound) >= WHOLE_MAX:
        return None
    end = float(bound)
    match op:
        case "<":
            return Range(name, -inf, nextafter(end, -inf))
        case "<=":
            return Range(name, -inf, end)
        case ">":
            return Range(name, nextafter(end, inf), inf)
        case _:
            return Range(name, end, inf)


def _both(covers: Iterable[Cover | None]) -> Cover | None:
    ranges: dict[str, Range] = {}
    parts: dict[Cover, None] = {}
    for cover in covers:
        if isinstance(cover, Range):
            ranges[cover.key] = _meet(ranges.get(cover.key, cover), cover)
        elif cover is not None:
            parts[cover] = None
    if any(each.low > each.high for each in ranges.values()) or NEVER in parts:
        return NEVER
    known = (*parts, *ranges.values())
    return AllOf(known) if len(known) > 1 else (known[0] if known else None)


def _either(covers: Iterable[Cover | None]) -> Cover | None:
    parts: dict[Cover, None] = {}
    for cover in covers:
        if cover is None:
            return None
        if cover != NEVER:
            parts[cover] = None
    return next(iter(parts)) if len(parts) == 1 else AnyOf(tuple(parts))


def _meet(one: Range, other: Range) -> Range:
    return Range(one.key, max(one.low, other.low), min(one.high, other.high))


def _presence(expression: Expression) -> Cover | None:
    """That all keys are there without which the expression fails."""
    return _both([Tokens(name, (HERE,), implied=True) for name in sorted(_needed(expression))])


def _needed(expression: Expression) -> frozenset[str]:
    """Keys without which the expression fails."""
    match expression:
        case Key(name):
            return frozenset((name,))
        case And() | Or() | Has():
            return frozenset()
        case In(subject, _):
            return _needed(subject)
        case _:
            return frozenset().union(*map(_needed, children(expression)))


# ── covers by the kind of expression ─────────────────────────────────────────────────────────────────────────


def _cover_comparison(expression: Compare | In) -> Cover | None:
    return _atom(expression) or _presence(expression)


def _cover_like(expression: Like) -> Cover | None:
    beginning, whole = like_prefix(expression.pattern)
    if whole and isinstance(expression.subject, Key):
        return Tokens(expression.subject.name, (beginning,))
    return _beginning(expression, beginning)


def _beginning(expression: Like | Match, text: str) -> Cover | None:
    if text and isinstance(expression.subject, Key):
        return Tokens(expression.subject.name, (Beginning(text),))
    return _presence(expression)


_COVERS: Final[Mapping[type, Callable[..., Cover | None]]] = {
    And: lambda expression: _both(map(cover_of, expression.parts)),
    Or: lambda expression: _either(map(cover_of, expression.parts)),
    Has: lambda expression: Tokens(expression.name, (HERE,)),
    Literal: lambda expression: None if to_boolean(expression.value) is True else NEVER,
    Compare: _cover_comparison,
    In: _cover_comparison,
    Like: _cover_like,
    Match: lambda expression: _beginning(expression, regex_prefix(expression.regex)),
}
