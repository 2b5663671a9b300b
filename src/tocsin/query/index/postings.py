"""The streams that have one key, by its value.

A value is kept where it is told apart best: strings and booleans by their text, numbers by their value, strings that
can be read as numbers by both. Both are in order. A look-up goes wherever an equal value may be, and may find some
that are not: ``Query.matches`` has the last word.

Invariant: an id is in one posting of ``_texts`` or one of ``_numbers``, or, for a string that can be read as a
number, in one of each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from tocsin.query.index.atoms import Range, Tokens
from tocsin.query.index.ordered import Key, OrderedMap
from tocsin.query.index.tokens import IS_FALSE, IS_TRUE, Beginning, Token
from tocsin.query.values import Failure, Value, to_number, to_string

Id = TypeVar("Id", bound=Hashable)
# The ids that share a value. Most values that tell streams apart have one stream, and a set of one is large.
Posting = tuple[Id] | set[Id]

_LAST: Final = chr(0x10FFFF)


class Postings(Generic[Id]):
    """Indexes the streams that have one key by its value."""

    __slots__ = ("_numbers", "_numeric", "_texts", "count")

    def __init__(self) -> None:
        self._texts: OrderedMap[str, Posting[Id]] = OrderedMap()
        self._numbers: OrderedMap[float, Posting[Id]] = OrderedMap()
        self._numeric = 0  # ids in ``_numbers``
        self.count = 0  # ids

    def add(self, id: Id, value: Value) -> None:
        text, number = _places(value)
        self.count += 1
        if text is not None:
            _add(self._texts, text, id)
        if number is not None:
            _add(self._numbers, number, id)
            self._numeric += 1

    def remove(self, id: Id, value: Value) -> None:
        text, number = _places(value)
        self.count -= 1
        if text is not None:
            _remove(self._texts, text, id)
        if number is not None:
            _remove(self._numbers, number, id)
            self._numeric -= 1

    def of(self, atom: Tokens | Range) -> Iterator[Posting[Id]]:
        """Postings that have every id of which the atom holds, and perhaps some more."""
        if isinstance(atom, Range):
            yield from self._numbers.between(atom.low, atom.high)
            yield from self._booleans(atom.low, atom.high)
            return
        for token in atom.tokens:
            yield from self._having(token)

    def narrowed(self, ids: set[Id], atom: Tokens) -> set[Id]:
        """Those of the ids that are in a posting of the atom."""
        return set[Id]().union(*(ids.intersection(posting) for posting in self.of(atom)))

    def size(self, atom: Tokens | Range) -> int:
        """About how many ids the postings of an atom have."""
        if isinstance(atom, Range):
            return self._numbers.estimate(atom.low, atom.high) * max(
                self._numeric // max(len(self._numbers), 1), 1
            )
        if atom.exact:
            return sum(len(posting) for posting in self.of(atom))
        match atom.tokens[0]:
            case Beginning(text) if end := _end(text):
                each = self.count // max(len(self._texts), 1)
                return self._numeric + self._texts.estimate(text, end) * max(each, 1)
        return self.count

    def _having(self, token: Token) -> Iterator[Posting[Id]]:
        match token:
            case Beginning(text) if end := _end(text):
                yield from self._texts.between(text, end)
                yield from self._numbers.values()
            case str():
                yield from _known(self._texts.get(token))
                number = to_number(token)
                if not isinstance(number, Failure):
                    yield from _known(self._numbers.get(float(number)))
            case int() | float():
                yield from _known(self._numbers.get(float(token)))
                yield from self._booleans(token, token)
            case _ if token in (IS_TRUE, IS_FALSE):
                yield from _known(self._texts.get("true" if token == IS_TRUE else "false"))
            case _:
                yield from self._texts.values()
                yield from self._numbers.values()

    def _booleans(self, low: float, high: float) -> Iterator[Posting[Id]]:
        """Booleans, which can be read as 0 and 1."""
        for number, text in ((0, "false"), (1, "true")):
            if low <= number <= high:
                yield from _known(self._texts.get(text))


def united(postings: Iterable[Posting[Id]]) -> set[Id]:
    """All their ids; of a single posting, itself."""
    parts = list(postings)
    if len(parts) == 1 and isinstance(parts[0], set):
        return parts[0]
    return set[Id]().union(*parts)


def _places(value: Value) -> tuple[str | None, float | None]:
    """The text and the number by which a value is kept."""
    if isinstance(value, bool):
        return to_string(value), None
    number = to_number(value)
    place = None if isinstance(number, Failure) else float(number)
    return value if isinstance(value, str) else None, place


def _end(beginning: str) -> str | None:
    """A string after all that begin so, if there is a character after its last."""
    last = beginning[-1]
    return beginning[:-1] + chr(ord(last) + 1) if last < _LAST else None


def _known(posting: Posting[Id] | None) -> tuple[Posting[Id], ...]:
    return () if posting is None else (posting,)


def _add(order: OrderedMap[Key, Posting[Id]], place: Key, id: Id) -> None:
    posting: Posting[Id] | None = order.get(place)
    if posting is None:
        order.put(place, (id,))
    elif isinstance(posting, set):
        posting.add(id)
    else:
        order.put(place, {posting[0], id})


def _remove(order: OrderedMap[Key, Posting[Id]], place: Key, id: Id) -> None:
    posting: Posting[Id] | None = order.get(place)
    if isinstance(posting, set):
        posting.discard(id)
        if posting:
            return
    order.pop(place)
