"""Standing queries against metadata that changes: which ones a change concerns.

``QueryIndex`` holds queries under ids. ``matching`` says which ones are true of some metadata, ``change`` which ones
become true or cease to be when metadata changes. Both narrow the queries down by a tree (``index_tree``) and then ask
each one that is left: the tree may give too many, but must leave none out. Neither keeps anything about streams: the
caller holds the ids that are true of each stream, adds ``entered``, takes away ``left``, and finds those that stayed
true and mention a changed key by ``touched``.

Answers are in the order of the ids, which therefore have one, so that they do not depend on the history of the index.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tocsin.query.index_tree import CoverTree, Entry
from tocsin.query.query import Query
from tocsin.query.tokens import View
from tocsin.query.values import Metadata


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
