"""The queries of a broker's clients and the streams that satisfy them; part of the forwarding table.

The coordinator says which streams satisfy a query, and each change of that. A query has its subscribers, and a topic
has the queries that it satisfies; so a stream that joins or leaves costs one operation, however many clients ask.

Before the answer of the coordinator is there a query is **unknown**. Then each message of the log is judged by what it
says of its own stream (``judge``), so that nothing durable is missed by a client whose session comes back while there
is no coordinator. Messages at QoS 0 are routed by the coordinator, so that there are none to judge.

Invariants: a query is here while somebody asks it; a topic's queries are those whose streams it is among.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from tocsin.core.streams.demand import Demand
from tocsin.model.stream import Metadata
from tocsin.query import Query

Target = TypeVar("Target", bound=Hashable)
Options = TypeVar("Options")


class _Asked(Generic[Target, Options]):
    """A query that somebody here asks."""

    __slots__ = ("bytes", "name", "query", "targets", "topics")
    in_turns = False

    def __init__(self, query: Query) -> None:
        self.query = query
        self.name = query.id
        self.bytes = 0  # of messages, for the count of rates (``core.forwarding.tallies``)
        # The subscribers, with their names of the query: a client may write one query in several ways.
        self.targets: dict[Target, dict[str, Options]] = {}
        self.topics: dict[str, None] | None = None  # its streams; None: not known yet


class Inquiries(Generic[Target, Options]):
    """The queries of one broker's clients and the streams that satisfy them.

    ``touch`` is called with each topic whose subscribers change; ``demand`` hears of the topics that queries want.
    """

    def __init__(self, touch: Callable[[str], None], demand: Demand[Hashable]) -> None:
        self._touch = touch
        self._demand = demand
        self._asked: dict[str, _Asked[Target, Options]] = {}  # by id
        self.unknown: dict[str, _Asked[Target, Options]] = {}  # those without an answer of the coordinator
        self._of_topic: dict[str, dict[str, _Asked[Target, Options]]] = {}
        self._names: dict[Target, dict[str, str]] = {}  # target → name → id

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def subscriptions(self) -> int:
        return sum(map(len, self._names.values()))

    def held(self) -> Iterator[tuple[str, int]]:
        """The queries that are asked, by id, and by how many."""
        return ((query, len(asked.targets)) for query, asked in self._asked.items())

    def wanting(self) -> Iterator[tuple[str, str]]:
        """The queries, by id, and the topics of each."""
        return ((query, topic) for query, asked in self._asked.items() for topic in asked.topics or ())

    def asking(self) -> Iterator[tuple[str, Collection[Target]]]:
        """The queries, by id, and who asks each."""
        return ((query, asked.targets.keys()) for query, asked in self._asked.items())

    def text(self, query: str) -> str | None:
        """The canonical text of a query that is asked here."""
        asked = self._asked.get(query)
        return None if asked is None else asked.query.text

    def topics(self, query: str) -> Collection[str]:
        """The streams of a query, as far as they are known."""
        asked = self._asked.get(query)
        return () if asked is None or asked.topics is None else asked.topics.keys()

    # ── subscribers ─────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, target: Target, name: str, query: Query, options: Options) -> bool:
        """Add or replace; True if nobody here asked this query before."""
        identifier = query.id
        asked = self._asked.get(identifier)
        first = asked is None
        if asked is None:
            asked = self._asked[identifier] = self.unknown[identifier] = _Asked(query)
        asked.targets.setdefault(target, {})[name] = options
        self._names.setdefault(target, {})[name] = identifier
        self._touch_all(asked)
        return first

    def withdraw(self, target: Target, name: str) -> str | None:
        """Remove, if it is there; the query's id if nobody here asks it any more."""
        names = self._names.get(target, {})
        identifier = names.pop(name, None)
        if identifier is None:
            return None
        if not names:
            del self._names[target]
        asked = self._asked[identifier]
        named = asked.targets[target]
        del named[name]
        if not named:
            del asked.targets[target]
        self._touch_all(asked)
        if asked.targets:
            return None
        for topic in asked.topics or ():
            self._part(identifier, topic)
        del self._asked[identifier]
        self.unknown.pop(identifier, None)
        return identifier

    def drop(self, target: Target) -> tuple[str, ...]:
        """Remove all that a target asks; the ids of queries that nobody here asks any more."""
        if target not in self._names:
            return ()
        gone = (self.withdraw(target, name) for name in tuple(self._names[target]))
        return tuple(identifier for identifier in gone if identifier is not None)

    # ── what the coordinator says ───────────────────────────────────────────────────────────────────────────

    def know(self, query: str, topics: Iterable[str]) -> None:
        """The answer to a query."""
        asked = self._asked.get(query)
        if asked is None:
            return
        self.unknown.pop(query, None)
        for topic in asked.topics or ():
            self._part(query, topic)
            self._touch(topic)
        asked.topics = {}
        for topic in topics:
            self.join(query, topic)

    def join(self, query: str, topic: str) -> None:
        asked = self._asked.get(query)
        if asked is not None and asked.topics is not None:
            if topic not in asked.topics:
                self._demand.want(query, (topic,))
            asked.topics[topic] = None
            self._of_topic.setdefault(topic, {})[query] = asked
            self._touch(topic)

    def leave(self, query: str, topic: str) -> None:
        asked = self._asked.get(query)
        if asked is not None and asked.topics is not None and topic in asked.topics:
            del asked.topics[topic]
            self._part(query, topic)
            self._touch(topic)

    def _part(self, query: str, topic: str) -> None:
        queries = self._of_topic[topic]
        del queries[query]
        self._demand.release(query, (topic,))
        if not queries:
            del self._of_topic[topic]

    # ── recipients ──────────────────────────────────────────────────────────────────────────────────────────

    def add_to(self, found: dict[Target, list[Options]], topic: str) -> None:
        """Add those who get the messages of a topic because of a query, each with those of its subscriptions."""
        for asked in self._of_topic.get(topic, {}).values():
            _add(found, asked)

    def of_topic(self, topic: str) -> Collection[_Asked[Target, Options]]:
        """The queries that bring a topic's messages."""
        return self._of_topic.get(topic, {}).values()

    def judge(self, metadata: Metadata) -> Mapping[Target, list[Options]]:
        """The subscribers whose unanswered query matches a message, by the metadata that the message carries."""
        found: dict[Target, list[Options]] = {}
        for asked in self.unknown.values():
            if asked.query.matches(metadata):
                _add(found, asked)
        return found

    def _touch_all(self, asked: _Asked[Target, Options]) -> None:
        for topic in asked.topics or ():
            self._touch(topic)


def _add(found: dict[Target, list[Options]], asked: _Asked[Target, Options]) -> None:
    for target, named in asked.targets.items():
        found.setdefault(target, []).extend(named.values())
