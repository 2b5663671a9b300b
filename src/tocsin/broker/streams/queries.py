"""The queries of a broker's clients: their subscribers, the coordinator's answers, and the waiters for those.

The forwarding table has what ``$query/…`` asks for (``core.streams.query_subscriptions``), ``broker.streams.listings``
what ``$streams/…`` does. To the coordinator they are queries, each asked once for all who ask it here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

import structlog

from tocsin.broker.client import Client
from tocsin.broker.streams.listings import Listings
from tocsin.core.coordination.participant.signals import (
    QuerySetKnown,
    StreamChanged,
    StreamJoined,
    StreamLeft,
)
from tocsin.core.forwarding.table import ForwardingTable, Subscription, Wanted
from tocsin.core.streams.query_filter import ListingFilter, QueryFilter
from tocsin.model.publication import Publication
from tocsin.model.stream import LISTING

ANSWER_S: Final = 2.0  # that a SUBACK waits for the answer of the coordinator
# After which a query is asked again that was refused, and that a session which came back still has.
REFUSED_AGAIN_S: Final = 30.0

# With the queries that are asked from now on, as (id, text), the ids of those that are not, and whose client it is.
QueriesChanged = Callable[[tuple[tuple[str, str], ...], tuple[str, ...], str], None]

Asked = QueryFilter | ListingFilter


class Queries:
    """Asks the coordinator each query once for all clients that ask it here; ``changed`` tells it of them."""

    def __init__(
        self,
        table: ForwardingTable[Client],
        tell: Callable[[Client, str, bytes], None],
        changed: QueriesChanged,
    ) -> None:
        self.listings = Listings(tell)
        self._table = table
        self._inquiries = table.inquiries
        self._changed = changed
        self._awaited: dict[str, list[asyncio.Future[str | None]]] = {}  # query → the waiters for its answer
        self._log = structlog.get_logger()

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, target: Client, asked: Asked, subscription: Subscription) -> None:
        if isinstance(asked, ListingFilter):
            first = self.listings.ask(target, asked.name, asked.id)
        else:
            first = self._inquiries.ask(target, asked.name, asked.query, subscription)
        if first:
            self._changed(((asked.id, asked.query.text),), (), target.user)

    def unsubscribe(self, target: Client, asked: Asked) -> None:
        if isinstance(asked, ListingFilter):
            gone = self.listings.withdraw(target, asked.name)
        else:
            gone = self._inquiries.withdraw(target, asked.name)
        if gone is not None:
            self._changed((), (gone,), target.user)

    def forget(self, target: Client) -> None:
        gone = (*self._inquiries.drop(target), *self.listings.drop(target))
        if gone:
            self._changed((), gone, target.user)

    def topics(self, asked: Asked) -> Collection[str]:
        """The streams of a subscription to messages; none of a listing, which is for no messages."""
        return self._inquiries.topics(asked.id)

    def wanted(self, publication: Publication) -> Wanted[Client]:
        """The clients that get an entry of the message log, with their subscriptions."""
        wanted = self._table.wanted(publication.topic)
        if not self._inquiries.unknown:
            return wanted
        found = {target: list(subscriptions) for target, subscriptions in wanted}
        for target, subscriptions in self._inquiries.judge(publication.metadata).items():
            if target.may_receive(publication.topic):
                found.setdefault(target, []).extend(subscriptions)
        return tuple((target, tuple(subscriptions)) for target, subscriptions in found.items())

    def is_judging(self) -> bool:
        """Whether entries of the log are judged by their streams' metadata."""
        return bool(self._inquiries.unknown)

    def statistics(self) -> dict[str, int]:
        return {"listings": self.listings.subscriptions, "unanswered": len(self._inquiries.unknown)}

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def is_known(self, asked: Asked) -> bool:
        if isinstance(asked, ListingFilter):
            return self.listings.is_known(asked.id)
        return asked.id not in self._inquiries.unknown

    async def answered(self, queries: Iterable[Asked]) -> dict[str, str]:
        """Return when the coordinator has answered these subscriptions, or after a while; by name, why it refused
        some."""
        waiting: dict[str, asyncio.Future[str | None]] = {}
        for asked in queries:
            if not self.is_known(asked):
                waiting[asked.name] = asyncio.get_running_loop().create_future()
                self._awaited.setdefault(asked.id, []).append(waiting[asked.name])
        if waiting:
            await asyncio.wait(waiting.values(), timeout=ANSWER_S)
        problems = {name: each.result() for name, each in waiting.items() if each.done()}
        return {name: problem for name, problem in problems.items() if problem is not None}

    def refuse(self, query: str, problem: str) -> None:
        """The coordinator does not take a query."""
        self._log.warning("a query was not taken", query=query, problem=problem)
        self._answer(query, problem)
        asyncio.get_running_loop().call_later(REFUSED_AGAIN_S, self._ask_again, query)

    def _ask_again(self, query: str) -> None:
        text = self._inquiries.text(query) if query in self._inquiries.unknown else None
        if text is not None:
            self._changed(((query, text),), (query,), "")

    def _answer(self, query: str, problem: str | None) -> None:
        for waiting in self._awaited.pop(query, ()):
            if not waiting.done():
                waiting.set_result(problem)

    # ── what the participant tells ──────────────────────────────────────────────────────────────────────────

    def know(self, effect: QuerySetKnown) -> None:
        if effect.query.startswith(LISTING):
            self.listings.know(effect.query, effect.streams)
        else:
            self._inquiries.know(effect.query, effect.streams)
        self._answer(effect.query, None)

    def turn(self, effect: StreamJoined | StreamChanged | StreamLeft) -> None:
        query, topic = effect.query, effect.topic
        match effect:
            case StreamJoined() if not query.startswith(LISTING):
                self._inquiries.join(query, topic)
            case StreamJoined(metadata=metadata):
                self.listings.turn("joined", query, topic, metadata)
            case StreamLeft() if not query.startswith(LISTING):
                self._inquiries.leave(query, topic)
            case StreamLeft(metadata=metadata):
                self.listings.turn("left", query, topic, metadata)
            case StreamChanged(metadata=metadata):
                self.listings.turn("changed", query, topic, metadata)
