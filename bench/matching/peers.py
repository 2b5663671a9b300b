"""A coordinator without an index: it asks every query, or every query that mentions a changed key.

Both are told which queries are true of the stream so far, as a coordinator would know, and ask each query once. And
for a new query: ask about every stream.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tocsin.query import Metadata, Query, changed_keys

Turned = tuple[list[int], list[int]]  # entered, left


def ask_all(queries: Mapping[int, Query], held: Collection[int], after: Metadata) -> Turned:
    """Evaluate everything."""
    return _turned(queries, queries, held, after)


def ask_each(streams: Mapping[int, Metadata], query: Query) -> set[int]:
    """Evaluate a new query for every stream."""
    matches = query.matches
    return {id for id, metadata in streams.items() if matches(metadata)}


class KeyTable:
    """The table from keys to queries of the CQBS paper."""

    def __init__(self) -> None:
        self._by_key: dict[str, set[int]] = {}

    def add(self, id: int, query: Query) -> None:
        for key in query.keys:
            self._by_key.setdefault(key, set()).add(id)

    def change(
        self, queries: Mapping[int, Query], held: Collection[int], before: Metadata, after: Metadata
    ) -> Turned:
        asked = set[int]().union(*(self._by_key.get(key, ()) for key in changed_keys(before, after)))
        return _turned(queries, asked, held, after)


def _turned(
    queries: Mapping[int, Query], asked: Collection[int], held: Collection[int], after: Metadata
) -> Turned:
    entered: list[int] = []
    left: list[int] = []
    for id in asked:
        if queries[id].matches(after):
            if id not in held:
                entered.append(id)
        elif id in held:
            left.append(id)
    return sorted(entered), sorted(left)
