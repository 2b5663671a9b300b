"""The nodes of the tree of covers, and the book-keeping that keeps their invariants.

A node other than the root exists while something is kept at or below it. ``size`` counts what is, a query once for each
place that it has there; ``mentions`` counts the same by the keys that the queries mention. A node is a list of
entries, or it is divided and has an ``Inner``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from tocsin.query.atoms import Range, Watched, watches_of
from tocsin.query.index_watch import KeyWatch
from tocsin.query.intervals import IntervalIndex
from tocsin.query.query import Query
from tocsin.query.tokens import Beginning, Reading, Token

Id = TypeVar("Id")


class Entry(Generic[Id]):
    """A query in the tree."""

    __slots__ = ("id", "places", "query")

    def __init__(self, id: Id, query: Query) -> None:
        self.id = id
        self.query = query
        self.places: tuple[Node[Id], ...] = ()


class Inner(Generic[Id]):
    """The children of a divided node."""

    __slots__ = ("children", "homed", "lengths", "mentions", "ranges", "rest", "watches")

    def __init__(self) -> None:
        self.children: dict[str, dict[Token, Node[Id]]] = {}  # key → token → node
        self.lengths: dict[
            str, dict[int, int]
        ] = {}  # key → length of a beginning → children with such a token
        self.rest: dict[Entry[Id], None] = {}  # what has no further cover
        self.homed: dict[Entry[Id], tuple[Range, ...]] = {}  # what is found by ranges, with these
        self.ranges: dict[str, IntervalIndex[Entry[Id]]] = {}  # key → the ranges of what is homed
        self.watches: dict[str, KeyWatch[Entry[Id]]] = {}  # key → what is in rest or homed and mentions it
        self.mentions: dict[str, int] = {}

    def tokens(self, key: str, reading: Reading | None) -> tuple[Token, ...]:
        """The tokens of a value that children may have."""
        if reading is None:
            return ()
        lengths = self.lengths.get(key)
        if not lengths:
            return reading.tokens
        text = reading.text
        return reading.tokens + tuple(Beginning(text[:n]) for n in lengths if n <= len(text))

    def keep(self, entry: Entry[Id], ranges: tuple[Range, ...]) -> None:
        """Let an entry stay here, found by the ranges if there are any."""
        if ranges:
            self.homed[entry] = ranges
            for each in ranges:
                self.ranges.setdefault(each.key, IntervalIndex()).add(each.low, each.high, entry)
        else:
            self.rest[entry] = None
        for key, watched in _further(entry, ranges):
            self.watches.setdefault(key, KeyWatch()).add(entry, watched)

    def release(self, entry: Entry[Id]) -> None:
        """Undo ``keep``."""
        ranges = self.homed.pop(entry, ())
        if not ranges:
            del self.rest[entry]
        for each in ranges:
            intervals = self.ranges[each.key]
            intervals.remove(each.low, each.high, entry)
            if not intervals:
                del self.ranges[each.key]
        for key, watched in _further(entry, ranges):
            watch = self.watches[key]
            watch.remove(entry, watched)
            if not watch:
                del self.watches[key]


class Node(Generic[Id]):
    """One token more than the node above."""

    __slots__ = ("entries", "inner", "key", "size", "token", "up")

    def __init__(self, up: Node[Id] | None, key: str, token: Token) -> None:
        self.up = up
        self.key = key
        self.token = token
        self.size = 0
        self.entries: list[Entry[Id]] = []  # none once it is divided
        self.inner: Inner[Id] | None = None

    def above(self) -> Iterator[Node[Id]]:
        """This node and those above it."""
        node: Node[Id] | None = self
        while node is not None:
            yield node
            node = node.up

    def below(self) -> list[Node[Id]]:
        """This node and those below it."""
        found = [self]
        for node in found:
            if node.inner is not None:
                found.extend(child for table in node.inner.children.values() for child in table.values())
        return found

    def kept(self) -> Iterable[Entry[Id]]:
        """The entries that have a place at this very node."""
        return self.entries if self.inner is None else (*self.inner.rest, *self.inner.homed)

    def take(self, entry: Entry[Id], ranges: tuple[Range, ...]) -> None:
        """Give an entry a place here."""
        if self.inner is None:
            self.entries.append(entry)
        else:
            self.inner.keep(entry, ranges)
        entry.places += (self,)
        self.count(entry, 1)

    def drop(self, entry: Entry[Id]) -> None:
        """Undo ``take``; the entry's own list of places is the caller's matter."""
        if self.inner is None:
            self.entries.remove(entry)
        else:
            self.inner.release(entry)
        self.count(entry, -1)

    def count(self, entry: Entry[Id], by: int) -> None:
        """One place more or less here."""
        for node in self.above():
            node.size += by
            if node.inner is not None:
                mentions = node.inner.mentions
                for key in entry.query.keys:
                    _count(mentions, key, by)

    def child(self, key: str, token: Token) -> Node[Id]:
        """The child for a token, made if there is none."""
        inner = self.inner
        assert inner is not None
        children = inner.children.setdefault(key, {})
        node = children.get(token)
        if node is None:
            node = children[token] = Node(self, key, token)
            if isinstance(token, Beginning):
                _count(inner.lengths.setdefault(key, {}), len(token.text), 1)
        return node

    def cut(self) -> None:
        """Take this node, which is empty, from the one above, if it still hangs there."""
        inner = self.up and self.up.inner
        if not inner or inner.children.get(self.key, {}).get(self.token) is not self:
            return
        del inner.children[self.key][self.token]
        if not inner.children[self.key]:
            del inner.children[self.key]
        if isinstance(self.token, Beginning):
            lengths = inner.lengths[self.key]
            _count(lengths, len(self.token.text), -1)
            if not lengths:
                del inner.lengths[self.key]


def _further(entry: Entry[Id], ranges: tuple[Range, ...]) -> Iterator[tuple[str, set[Watched]]]:
    """By key, the atoms that matter to an entry besides the ranges that it is found by."""
    for key, watched in watches_of(entry.query.expression).items():
        further = set(watched).difference(ranges)
        if further:
            yield key, further


Counted = TypeVar("Counted", str, int)


def _count(counts: dict[Counted, int], what: Counted, by: int) -> None:
    count = counts.get(what, 0) + by
    if count:
        counts[what] = count
    else:
        del counts[what]
