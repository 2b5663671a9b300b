"""A broker's declarations to the coordinator: its filters, its queries, and its publishing clients.

``changes`` is what was not said yet, ``all`` is everything, for a broker that joins. Filters that come and go again
before they were declared are not declared at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tocsin.core.chunks import split
from tocsin.model.stream import Value
from tocsin.wire.commands import (
    BrokerCommand,
    ClientAway,
    ClientBack,
    ClientGone,
    Interests,
    Queries,
    Streams,
)

TOPICS_MAX: Final = 64  # streams of a client in one command


class _Client:
    __slots__ = ("epoch", "expiry_s", "topics")

    def __init__(self, expiry_s: int, epoch: int) -> None:
        self.expiry_s = expiry_s
        self.epoch = epoch
        self.topics: dict[str, None] = {}


class DeclaredState:
    """One broker's declarations to the coordinator: its filters, queries and publishing clients."""

    def __init__(self) -> None:
        self.filters: dict[str, None] = {}
        self.queries: dict[str, str] = {}  # id → text
        self._clients: dict[str, _Client] = {}  # those that are connected here
        self._filters: dict[str, bool] = {}  # not said yet: wanted, or no longer
        self._queries: dict[str, bool] = {}
        self._users: dict[str, str] = {}  # of those: query → whose client asks it

    def change_filters(self, added: Iterable[str], removed: Iterable[str]) -> None:
        for text in added:
            if text not in self.filters:
                self.filters[text] = None
                _flip(self._filters, text, True)
        for text in removed:
            if text in self.filters:
                del self.filters[text]
                _flip(self._filters, text, False)

    def change_queries(
        self, added: Iterable[tuple[str, str]], removed: Iterable[str], user: str = ""
    ) -> None:
        for query in removed:
            if query in self.queries:
                del self.queries[query]
                self._queries[query] = False
        for query, text in added:
            if query not in self.queries:
                self.queries[query] = text
                self._queries[query] = True  # declared in any case: the answer is wanted
                self._users[query] = user

    def note(self, command: Streams | ClientAway | ClientBack | ClientGone) -> None:
        """Remember the connected clients and their streams."""
        if isinstance(command, ClientAway | ClientGone):
            self._clients.pop(command.client, None)
        elif command.client:
            client = self._clients.setdefault(command.client, _Client(0, 0))
            client.expiry_s, client.epoch = command.expiry_s, command.epoch
            if isinstance(command, Streams):
                client.topics.update((topic, None) for topic, _ in command.changes)

    def changes(self) -> list[BrokerCommand]:
        """Take the commands that were not declared yet."""
        filters, self._filters = self._filters, {}
        queries, self._queries = self._queries, {}
        users, self._users = self._users, {}
        return [*_interests(filters), *self._asked(queries, users)]

    def all(self) -> list[BrokerCommand]:
        """Everything, from now on said."""
        self._filters, self._queries, self._users = {}, {}, {}
        return [
            *_interests(dict.fromkeys(self.filters, True)),
            *self._asked(dict.fromkeys(self.queries, True), None),
            *self._present(),
        ]

    def _asked(self, queries: dict[str, bool], users: dict[str, str] | None) -> Iterator[BrokerCommand]:
        """``users``: None if everything is declared once more, for which no user is charged."""
        if queries:
            for run in split(list(queries), lambda each: 4 * len(self.queries.get(each, "")) + 40):
                asked = [each for each in run if queries[each]]
                added = tuple((each, self.queries[each]) for each in asked)
                removed = tuple(each for each in run if not queries[each])
                yield Queries(added, removed, () if users is None else tuple(users[each] for each in asked))

    def _present(self) -> Iterator[BrokerCommand]:
        for name, client in self._clients.items():
            yield ClientBack(name, client.expiry_s, client.epoch)
            topics = list(client.topics)
            for start in range(0, len(topics), TOPICS_MAX):
                changes: tuple[tuple[str, dict[str, Value | None]], ...] = tuple(
                    (topic, {}) for topic in topics[start : start + TOPICS_MAX]
                )
                yield Streams(name, client.expiry_s, changes, epoch=client.epoch)


def _interests(filters: dict[str, bool]) -> Iterator[BrokerCommand]:
    if filters:
        for run in split(list(filters), lambda each: 4 * len(each) + 8):  # at most four bytes a character
            added = tuple(each for each in run if filters[each])
            yield Interests(added, tuple(each for each in run if not filters[each]))


def _flip(changes: dict[str, bool], key: str, here: bool) -> None:
    """Note that something came or went; what did both is as it was."""
    if changes.get(key) is (not here):
        del changes[key]
    else:
        changes[key] = here
