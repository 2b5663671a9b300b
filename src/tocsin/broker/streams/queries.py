"""The queries of a broker's clients: their subscribers, the coordinator's answers, and the waiters for those.

The forwarding table has what ``$query/…`` asks for (``core.streams.query_subscriptions``), ``broker.streams.listings``
what ``$streams/…`` does, ``broker.streams.demands`` what ``$wanted/…`` does. To the coordinator they are queries, each
asked once for all who ask it here.

**Standbys.** For the queries of a broker that this one backs locally it keeps the sets of their streams, so that a
client of that broker who comes here has its streams at once. It asks for the set only, as ``$streams/…`` does: so no
route follows from it, and nothing is sent here. When a client asks the query itself, the set is **lent** to it until
the coordinator's answer comes; what happens to the one until then happens to the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

import structlog

from tocsin.broker.client import Client
from tocsin.broker.quality.requests import Requests
from tocsin.broker.streams.demands import Demands
from tocsin.broker.streams.listings import Listings
from tocsin.core.coordination.participant.signals import (
    DemandKnown,
    QuerySetKnown,
    StreamChanged,
    StreamJoined,
    StreamLeft,
)
from tocsin.core.filters import ListingFilter, QueryFilter, WantedFilter, stored_filter
from tocsin.core.forwarding.table import ForwardingTable, Subscription, Wanted
from tocsin.model.publication import Publication
from tocsin.model.stream import LISTING, Metadata
from tocsin.query import Query

ANSWER_S: Final = 2.0  # that a SUBACK waits for the answer of the coordinator
# After which a query is asked again that was refused, and that a session which came back still has.
REFUSED_AGAIN_S: Final = 30.0

# With the queries that are asked from now on, as (id, text), the ids of those that are not, and whose client it is.
QueriesChanged = Callable[[tuple[tuple[str, str], ...], tuple[str, ...], str], None]

Asked = QueryFilter | ListingFilter | WantedFilter
_OFFERS: Final = ("", "")  # the reason for a listing that requests of quality have: no broker is named so


class Queries:
    """Asks the coordinator each query once for all clients that ask it here; ``changed`` tells it of them."""

    def __init__(
        self,
        table: ForwardingTable[Client],
        tell: Callable[[Client, str, bytes], None],
        changed: QueriesChanged,
        requests: Requests,
    ) -> None:
        self.listings = Listings(tell)
        self.demands = Demands(table.demand, tell)
        self._table = table
        self._inquiries = table.inquiries
        self._changed = changed
        self._requests = requests
        self._awaited: dict[str, list[asyncio.Future[str | None]]] = {}  # query → the waiters for its answer
        self._standby: dict[str, set[tuple[str, str]]] = {}  # listing → (primary, name) of queries to prepare
        self._sets: dict[
            str, dict[str, Metadata]
        ] = {}  # of these listings: their streams, once they are known
        self._lent: set[str] = set()  # queries that have the streams of a standby, for want of an answer
        self._log = structlog.get_logger()

    # ── standbys ────────────────────────────────────────────────────────────────────────────────────────────

    def stand_by(self, primary: str, names: Iterable[str], *, wanted: bool) -> None:
        """Clients of a broker that this broker backs locally have these queries, or no longer."""
        for name in names:
            asked = stored_filter(name)
            if isinstance(asked, QueryFilter):
                self._keep(LISTING + asked.id, asked.query.text, (primary, name), wanted=wanted)

    def keep_offers(self, query: Query, user: str, wanted: bool) -> None:
        """Requests of quality are about the streams of a query, or no longer."""
        self._keep(LISTING + query.id, query.text, _OFFERS, wanted=wanted, user=user)

    def _keep(
        self, listing: str, text: str, reason: tuple[str, str], *, wanted: bool, user: str = ""
    ) -> None:
        reasons = self._standby.get(listing)
        if wanted and reasons is None:
            self._standby[listing] = {reason}
            streams = self.listings.streams(listing)
            if streams is not None:  # a client here has the listing already
                self._sets[listing] = dict(streams)
            self._changed(((listing, text),), (), user)
        elif wanted and reasons is not None:
            reasons.add(reason)
        if wanted and reason == _OFFERS and listing in self._sets:
            self._requests.know(listing.removeprefix(LISTING), self._sets[listing])
        if not wanted and reasons is not None:
            reasons.discard(reason)
            if not reasons:
                del self._standby[listing]
                self._sets.pop(listing, None)
                self._withdraw((listing,), user)

    def _withdraw(self, queries: Iterable[str], user: str) -> None:
        """Clients ask these no longer, or they are standbys no longer; the coordinator is told if they are neither."""
        gone = tuple(each for each in queries if each not in self._standby and not self.listings.has(each))
        self._lent.difference_update(gone)
        if gone:
            self._changed((), gone, user)

    def standby_sets(self) -> Collection[Collection[str]]:
        """The streams of each query that is prepared and answered, for looking."""
        return [streams.keys() for streams in self._sets.values()]

    def _lend(self, query: str) -> None:
        """A client asks a query: it has the streams of the standby until the answer comes."""
        streams = self._sets.get(LISTING + query)
        if streams is not None:
            self._lent.add(query)
            self._inquiries.know(query, streams)

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, target: Client, asked: Asked, subscription: Subscription) -> None:
        if isinstance(asked, WantedFilter):
            if self.demands.ask(target, asked):
                self._changed(((asked.id, asked.pattern),), (), target.user)
            return
        if isinstance(asked, ListingFilter):
            first = self.listings.ask(target, asked.name, asked.id)
        else:
            first = self._inquiries.ask(target, asked.name, asked.query, subscription)
        if first:
            self._changed(((asked.id, asked.query.text),), (), target.user)
        if first and isinstance(asked, QueryFilter):
            self._lend(asked.id)
        elif first and asked.id in self._sets:
            self.listings.know(asked.id, self._sets[asked.id])

    def unsubscribe(self, target: Client, asked: Asked) -> None:
        if isinstance(asked, WantedFilter):
            gone = self.demands.withdraw(target, asked.id)
        elif isinstance(asked, ListingFilter):
            gone = self.listings.withdraw(target, asked.name)
        else:
            gone = self._inquiries.withdraw(target, asked.name)
        if gone is not None:
            self._withdraw((gone,), target.user)

    def forget(self, target: Client) -> None:
        gone = self._inquiries.drop(target) + self.listings.drop(target) + self.demands.drop(target)
        if gone:
            self._withdraw(gone, target.user)

    def begin(self, target: Client, asked: Asked) -> None:
        """The client knows that it is subscribed: it is told the set of a listing, or whether a filter is wanted."""
        if isinstance(asked, WantedFilter):
            self.demands.begin(target, asked.id)
        else:
            self.listings.begin(target, asked.name)

    def lost(self, target: Client) -> None:
        """Messages to this client were dropped."""
        self.listings.lost(target)
        self.demands.lost(target)

    def recover(self, target: Client) -> None:
        """The client takes messages again."""
        self.listings.recover(target)
        self.demands.recover(target)

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
        return {
            "listings": self.listings.subscriptions,
            "demands": self.demands.subscriptions,
            "unanswered": len(self._inquiries.unknown),
            "standby_queries": len(self._standby),
        }

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def is_known(self, asked: Asked) -> bool:
        if isinstance(asked, WantedFilter):
            return self.demands.is_known(asked.id)
        if isinstance(asked, ListingFilter):
            return self.listings.is_known(asked.id) or asked.id in self._sets
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
        text = self._inquiries.text(query) if query in self._inquiries.unknown else self.demands.text(query)
        if text is not None:
            self._changed(((query, text),), (query,), "")

    def _answer(self, query: str, problem: str | None) -> None:
        for waiting in self._awaited.pop(query, ()):
            if not waiting.done():
                waiting.set_result(problem)

    # ── what the participant tells ──────────────────────────────────────────────────────────────────────────

    def know_demand(self, effect: DemandKnown) -> None:
        self.demands.know(effect.query, effect.wanted)
        self._answer(effect.query, None)

    def know(self, effect: QuerySetKnown) -> None:
        query = effect.query
        if query.startswith(LISTING):
            self.listings.know(query, effect.streams)
            if query in self._standby:
                self._sets[query] = dict(effect.streams)
                self._requests.know(query.removeprefix(LISTING), effect.streams)
        else:
            self._lent.discard(query)
            self._inquiries.know(query, effect.streams)
        self._answer(query, None)

    def turn(self, effect: StreamJoined | StreamChanged | StreamLeft) -> None:
        query, topic = effect.query, effect.topic
        listing = query.startswith(LISTING)
        if query in self._sets:
            self._turn_standby(query, effect)
        match effect:
            case StreamJoined() if not listing:
                self._inquiries.join(query, topic)
            case StreamJoined(metadata=metadata):
                self.listings.turn("joined", query, topic, metadata)
            case StreamLeft() if not listing:
                self._inquiries.leave(query, topic)
            case StreamLeft(metadata=metadata):
                self.listings.turn("left", query, topic, metadata)
            case StreamChanged(metadata=metadata):
                self.listings.turn("changed", query, topic, metadata)

    def _turn_standby(self, listing: str, effect: StreamJoined | StreamChanged | StreamLeft) -> None:
        """A standby's set changes, and with it that of the query to which it is lent."""
        query, streams = listing.removeprefix(LISTING), self._sets[listing]
        match effect:
            case StreamJoined(topic=topic, metadata=metadata):
                streams[topic] = metadata
                if query in self._lent:
                    self._inquiries.join(query, topic)
                self._requests.say(query, topic, metadata)
            case StreamChanged(topic=topic, metadata=metadata):
                streams[topic] = metadata
                self._requests.say(query, topic, metadata)
            case StreamLeft(topic=topic):
                streams.pop(topic, None)
                self._requests.say(query, topic, None)
                if query in self._lent:
                    self._inquiries.leave(query, topic)
