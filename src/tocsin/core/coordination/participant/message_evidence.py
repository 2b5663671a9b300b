"""Streams that a broker knows from messages, because the coordinator's answers to its queries may be stale.

A leader that has given a broker up lets publishers of new streams go on without it. When the broker is back, it may
read their messages before it hears that the streams joined. Each message of the log says what was said of its stream,
so that the broker can tell by itself: what satisfies a query, and is not among its streams, has joined.

``find`` names those queries. A stream is judged once for as long as the same is said of it: a message more of a stream
costs one comparison, however many queries there are. When the answers change, evidence begins anew.

Invariant: no more than TOPICS_MAX streams are remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tocsin.model.stream import Metadata
from tocsin.query import Query, parse

TOPICS_MAX: Final = 4_096  # streams that are not judged again; the oldest goes


class MessageEvidence:
    """Finds the queries that a stream satisfies, by what its messages say of it."""

    def __init__(self) -> None:
        self._judged: dict[str, Metadata] = {}  # topic → what was said of it
        self._queries: dict[str, Query] = {}  # by id; as they were needed

    def find(
        self,
        topic: str,
        metadata: Metadata,
        sets: Mapping[str, Collection[str]],
        texts: Mapping[str, str],
    ) -> list[str]:
        """The queries that a stream satisfies, and among whose streams (``sets``) it is not; ``texts`` by id."""
        if self._judged.get(topic) == metadata:
            return []
        self._judged.pop(topic, None)
        self._judged[topic] = metadata
        if len(self._judged) > TOPICS_MAX:
            del self._judged[next(iter(self._judged))]
        return [
            query
            for query, streams in sets.items()
            if topic not in streams and self._query(query, texts[query]).matches(metadata)
        ]

    def _query(self, query: str, text: str) -> Query:
        if query not in self._queries:
            self._queries[query] = parse(text)
        return self._queries[query]
