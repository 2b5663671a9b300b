"""Which queries are true of which streams, asked from both sides: a stream that changes, and a query that is new.

**Many standing queries, one change of metadata.** ``QueryIndex`` holds queries under ids. ``matching`` says which ones
are true of some metadata, ``change`` which ones become true or cease to be when metadata changes. Both narrow the
queries down by a tree (``tree``) and then ask each one that is left: the tree may give too many, but must leave
none out. Neither keeps anything about streams: the caller holds the ids that are true of each stream, adds ``entered``,
takes away ``left``, and finds those that stayed true and mention a changed key by ``touched``.

Its answers are in the order of the ids, which therefore have one, so that they do not depend on the history of the
index.

**Many streams, one new query.** ``StreamIndex`` keeps the streams' ids by what their values are read as (``postings``).
A query's cover (``atoms.cover_of``) is looked up there: of an ``AND`` the smallest part is taken, and what it yields is
narrowed down by those other parts for which that is cheaper than to ask the query. Then the query is asked about what
is left.

Cost: of a query, what the smallest part of its cover yields; all streams that have a key if nothing better than its
presence is known, and all streams if nothing is (``NOT EXISTS key``) or if it would be most of them. A change of a
stream costs a search in order for each key that changed.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from tocsin.query.index.atoms import AllOf, AnyOf, Cover, Tokens, cover_of
from tocsin.query.index.postings import Postings, united
from tocsin.query.index.tokens import View
from tocsin.query.index.tree import CoverTree, Entry
from tocsin.query.query import Query
from tocsin.query.values import Metadata

WORTH: Final = 4  # ids that are gathered rather than asking the query one time more: it takes about as long


class Ordered(Hashable, Protocol):
    """The type of an id."""

    def __lt__(self, other: Any, /) -> bool: ...


Id = TypeVar("Id", bound=Ordered)


class Change(msgspec.Struct, Generic[Id], frozen=True):
    """The effects of a change of metadata, each in the order of the ids."""

    entered: list[Id]  # false before, true now
    left: list[Id]  # true before, false now


class QueryIndex(Generic[Id]):
    """Finds the standing queries that a change of metadata makes true or false. Metadata handed in is only read."""

    def __init__(self) -> None:
        self._entries: dict[Id, Entry[Id]] = {}
        self._tree: CoverTree[Id] = CoverTree()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: Id) -> bool:
        return id in self._entries

    def query(self, id: Id) -> Query:
        """The query with an id that is there."""
        return self._entries[id].query

    def add(self, id: Id, query: Query) -> None:
        """Add a query, or replace the one with this id."""
        self.remove(id)
        entry = self._entries[id] = Entry(id, query)
        self._tree.add(entry)

    def remove(self, id: Id) -> None:
        """Forget a query; no effect if it is not there."""
        entry = self._entries.pop(id, None)
        if entry is not None:
            self._tree.remove(entry)

    def matching(self, metadata: Metadata) -> set[Id]:
        """The ids of all queries that are true: those of a stream that is new, or that goes."""
        found = dict.fromkeys(self._tree.holding(View(metadata)))
        return {entry.id for entry in found if entry.query.matches(metadata)}

    def change(self, before: Metadata, after: Metadata, held: Container[Id] | None = None) -> Change[Id]:
        """The queries that are true of just one of the two.

        ``held``, if given, has the ids of all that are true before, so that none has to be asked about that again.
        """
        changed = changed_keys(before, after)
        entered: list[Id] = []
        left: list[Id] = []
        if changed:
            for entry in dict.fromkeys(self._tree.turning(View(before), View(after), changed)):
                was = entry.query.matches(before) if held is None else entry.id in held
                if was is not entry.query.matches(after):
                    (left if was else entered).append(entry.id)
        return Change(sorted(entered), sorted(left))

    def touched(self, ids: Iterable[Id], changed: frozenset[str]) -> list[Id]:
        """Those of the ids, all of which are there, whose query mentions a changed key."""
        entries = self._entries
        return sorted(id for id in ids if not changed.isdisjoint(entries[id].query.keys))


def changed_keys(before: Metadata, after: Metadata) -> frozenset[str]:
    """The keys that came, went, or have another value or one of another type."""
    changed = [key for key in before if key not in after]
    for key, value in after.items():
        had = before.get(key)
        if had is not value and (had.__class__ is not value.__class__ or had != value):
            changed.append(key)
    return frozenset(changed)


class StreamIndex(Generic[Id]):
    """Finds the streams that satisfy a new query.

    Metadata handed to ``put`` is kept as it is, and must not change afterwards.
    """

    def __init__(self) -> None:
        self._streams: dict[Id, Metadata] = {}
        self._keys: dict[str, Postings[Id]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, id: Id) -> bool:
        return id in self._streams

    def metadata(self, id: Id) -> Metadata:
        """The metadata of a stream that is there."""
        return self._streams[id]

    def put(self, id: Id, metadata: Metadata) -> None:
        """Add a stream, or replace its metadata."""
        self._replace(id, self._streams.get(id, {}), metadata)
        self._streams[id] = metadata

    def remove(self, id: Id) -> None:
        """Forget a stream; no effect if it is not there."""
        metadata = self._streams.pop(id, None)
        if metadata is not None:
            self._replace(id, metadata, {})

    def find(self, query: Query) -> set[Id]:
        """The ids of all streams of which the query is true."""
        streams, matches = self._streams, query.matches
        cover = cover_of(query.expression)
        if cover is None or 2 * self._size(cover) > len(streams):
            return {id for id, metadata in streams.items() if matches(metadata)}
        return {id for id in self._gather(cover) if matches(streams[id])}

    def _replace(self, id: Id, before: Metadata, after: Metadata) -> None:
        for key in changed_keys(before, after):
            if key in before:
                postings = self._keys[key]
                postings.remove(id, before[key])
                if not postings.count:
                    del self._keys[key]
            if key in after:
                self._keys.setdefault(key, Postings()).add(id, after[key])

    def _gather(self, cover: Cover) -> set[Id]:
        """All streams of which the cover is true, and perhaps some more. The set is not the caller's to change."""
        match cover:
            case AnyOf(parts):
                return set[Id]().union(*map(self._gather, parts))
            case AllOf(parts):
                first, *others = sorted(parts, key=self._size)
                found = self._gather(first)
                for part in others:
                    found = self._narrowed(found, part)
                return found
            case _:
                postings = self._keys.get(cover.key)
                return set() if postings is None else united(postings.of(cover))

    def _narrowed(self, found: set[Id], part: Cover) -> set[Id]:
        if isinstance(part, Tokens) and part.exact:
            postings = self._keys.get(part.key)
            return set() if postings is None else postings.narrowed(found, part)
        return found & self._gather(part) if self._size(part) <= WORTH * len(found) else found

    def _size(self, cover: Cover) -> int:
        """About how many streams ``_gather`` would give."""
        match cover:
            case AllOf(parts):
                return min(map(self._size, parts))
            case AnyOf(parts):
                return sum(map(self._size, parts))
            case _:
                postings = self._keys.get(cover.key)
                return 0 if postings is None else postings.size(cover)
