"""Queries by the hundred thousand: each shape is parsed once, and its literals are replaced for each query.

Parsing is not what is measured here, and takes several times as long as everything else together.
"""

from __future__ import annotations

import msgspec

from tocsin.query import Query, Value, parse
from tocsin.query.evaluate import compile_condition
from tocsin.query.expression import And, Compare, Expression, In, Like, Literal, Match, Not, Or
from tocsin.query.grammar import print_expression


class Shape:
    """A query with places to fill: ``Shape("Room = {room} AND Value > {low}", room="", low=0.5)``.

    The values given are examples: they stand for their type, and in the shape for the place.
    """

    def __init__(self, text: str, **examples: Value) -> None:
        marks = {name: _mark(name, place, value) for place, (name, value) in enumerate(examples.items())}
        self._names = {Literal(mark): name for name, mark in marks.items()}
        self._texts = {mark: name for name, mark in marks.items() if isinstance(mark, str)}
        written = {name: f"'{mark}'" if isinstance(mark, str) else repr(mark) for name, mark in marks.items()}
        self._query = parse(text.format(**written, **{f"{name}_": mark for name, mark in marks.items()}))

    def __call__(self, **values: Value) -> Query:
        expression = self._filled(self._query.expression, values)
        return Query(
            print_expression(expression), expression, self._query.keys, compile_condition(expression)
        )

    def _filled(self, node: Expression, values: dict[str, Value]) -> Expression:
        match node:
            case Literal():
                name = self._names.get(node)
                return node if name is None else Literal(values[name])
            case Compare(op, left, right):
                return Compare(op, self._filled(left, values), self._filled(right, values))
            case Like(subject, pattern):
                return Like(subject, self._replaced(pattern, values))
            case Match(subject, regex):
                return Match(subject, self._replaced(regex, values))
            case In(subject, options):
                return In(subject, tuple(self._filled(option, values) for option in options))
            case Not(of):
                return Not(self._filled(of, values))
            case And(parts) | Or(parts):
                return msgspec.structs.replace(
                    node, parts=tuple(self._filled(part, values) for part in parts)
                )
        return node

    def _replaced(self, text: str, values: dict[str, Value]) -> str:
        for mark, name in self._texts.items():
            text = text.replace(mark, str(values[name]))
        return text


def _mark(name: str, place: int, example: Value) -> Value:
    if isinstance(example, str):
        return f"mark-{name}"
    return 1_000_000_000.5 + place
