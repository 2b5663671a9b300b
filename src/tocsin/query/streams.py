"""Many streams, one new query: which of them it is true of.

``StreamIndex`` keeps the streams' ids by what their values are read as (``postings``). A query's cover
(``atoms.cover_of``) is looked up there: of an ``AND`` the smallest part is taken, and what it yields is narrowed down
by those other parts for which that is cheaper than to ask the query. Then the query is asked about what is left.

Cost: of a query, what the smallest part of its cover yields; all streams that have a key if nothing better than its
presence is known, and all streams if nothing is (``NOT EXISTS key``) or if it would be most of them. A change of a
stream costs a search in order for each key that changed.
"""

from __future__ import annotations

from typing import Final, Generic

from tocsin.query.atoms import AllOf, AnyOf, Cover, Tokens, cover_of
from tocsin.query.index import changed_keys
from tocsin.query.postings import Id, Postings, united
from tocsin.query.query import Query
from tocsin.query.values import Metadata

WORTH: Final = 4  # ids that are gathered rather than asking the query one time more: it takes about as long


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
