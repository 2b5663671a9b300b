"""Which streams satisfy which queries: a query counts once, however many brokers and clients ask it.

The work is done by the indexes of ``tocsin.query``. This part keeps what they do not: which queries each stream
satisfies now, and the inverse. A query whose text cannot be understood (a broker of another version sent it) is
satisfied by nothing.

Cost: a change of a stream costs the queries that it turns and, to tell them, those that it goes on to satisfy; a
new query costs the streams that satisfy it. ``docs/explanation`` has the indexes' own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tocsin.errors import QueryInvalid
from tocsin.model.stream import LISTING, Metadata, size_of
from tocsin.query import QueryIndex, StreamIndex, parse

# The cost of a query for a coordinator: beside its text, its text once it is read, and each stream that satisfies it.
QUERY_BYTES: Final = 2_000
TEXT_FACTOR: Final = 10
PAIR_BYTES: Final = 150
# A listing keeps the metadata of each stream, for each such query: a multiple of their bytes.
LISTED_FACTOR: Final = 2


class Turn(NamedTuple):
    """The effects of a change of one stream, as ids of queries in order."""

    joined: list[str]
    left: list[str]
    stayed: list[str]  # it satisfied them before, and does so still


class Matching:
    """Which streams satisfy which queries, over the whole network."""

    def __init__(self) -> None:
        self._index: QueryIndex[str] = QueryIndex()
        self._streams: StreamIndex[str] = StreamIndex()
        self._texts: dict[str, str] = {}
        self._topics: dict[str, set[str]] = {}  # query → the streams that satisfy it
        self._queries: dict[str, set[str]] = {}  # stream → the queries that it satisfies, if there are any
        self._text_bytes = 0  # of the queries
        self._pairs = 0  # of a query and a stream that satisfies it
        self._said: dict[str, Metadata] = {}  # of streams; never changed in place
        self._listed_bytes = 0  # of that, once for each query that asks for the set and has the stream

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, query: str) -> bool:
        return query in self._texts

    @property
    def cost(self) -> int:
        """The bytes that the queries and their streams count as."""
        own = QUERY_BYTES * len(self._texts) + TEXT_FACTOR * self._text_bytes
        return own + PAIR_BYTES * self._pairs + LISTED_FACTOR * self._listed_bytes

    def text(self, query: str) -> str:
        return self._texts[query]

    def topics(self, query: str) -> list[str]:
        """The streams that satisfy a query, in order."""
        return sorted(self._topics[query])

    def add(self, query: str, text: str) -> None:
        self._texts[query] = text
        self._text_bytes += len(text)
        self._topics[query] = found = set()
        try:
            parsed = parse(text)
        except QueryInvalid:
            return
        self._index.add(query, parsed)
        found.update(self._streams.find(parsed))
        self._pairs += len(found)
        if _lists(query):
            self._listed_bytes += sum(size_of(self._said[topic]) for topic in found)
        for topic in found:
            self._queries.setdefault(topic, set()).add(query)

    def remove(self, query: str) -> None:
        self._text_bytes -= len(self._texts.pop(query))
        self._pairs -= len(self._topics[query])
        if _lists(query):
            self._listed_bytes -= sum(size_of(self._said[topic]) for topic in self._topics[query])
        self._index.remove(query)
        for topic in self._topics.pop(query):
            self._forget(topic, query)

    def change(self, topic: str, before: Metadata | None, after: Metadata | None) -> Turn:
        """A stream is another than before; None: it is, or was, not present."""
        had = self._queries.get(topic, set())
        said = self._said.get(topic)
        if after is None:
            self._said.pop(topic, None)
            self._streams.remove(topic)
            turn = Turn([], sorted(had), [])
        else:
            self._streams.put(topic, after)
            self._said[topic] = after
            if before is None:
                turn = Turn(sorted(self._index.matching(after)), [], [])
            else:
                change = self._index.change(before, after)
                turn = Turn(change.entered, change.left, sorted(had.difference(change.left)))
        self._pairs += len(turn.joined) - len(turn.left)
        if joined := sum(map(_lists, turn.joined)):
            self._listed_bytes += joined * size_of(after or {})
        if left := sum(map(_lists, turn.left)):
            self._listed_bytes -= left * size_of(said or {})
        if stayed := sum(map(_lists, turn.stayed)):
            self._listed_bytes += stayed * (size_of(after or {}) - size_of(said or {}))
        for query in turn.joined:
            self._topics[query].add(topic)
            self._queries.setdefault(topic, set()).add(query)
        for query in turn.left:
            self._topics[query].remove(topic)
            self._forget(topic, query)
        return turn

    def _forget(self, topic: str, query: str) -> None:
        queries = self._queries[topic]
        queries.remove(query)
        if not queries:
            del self._queries[topic]


def _lists(query: str) -> bool:
    """Whether a query asks for the set of its streams."""
    return query.startswith(LISTING)
