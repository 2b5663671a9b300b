"""The routes between brokers that follow from their interests.

A message takes at most two hops between brokers:

- inside a cluster, straight from the publisher's broker to each interested one;
- into another cluster, once, to that cluster's routing broker (its *hub*), which passes it to each interested one.

A cluster without a hub borrows the first other one; a network without hubs is a full mesh. A hub that is there but
that other clusters do not reach is *shunned*: it counts as none. So each broker has
two sets of routes: **origin** routes for what its own clients publish, and, on a hub, **transit** routes for
what arrives over a link. A hub leaves out the destinations in the cluster that a message came from, because
the origin served those itself. A message that arrives over a link never takes an origin route. Hence no loop, and
exactly one copy for each interested broker.

Cost: an interest that comes or goes touches one reference count at each broker. An edge broker that comes or goes costs
the distinct filters of the network once; a broker that comes back, perhaps elsewhere, costs its interests; a hub
changes everybody's next hops and rebuilds the plan (brokers × filters).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from tocsin.model.network import BrokerInfo, Role, Route, Scope


class RouteChange(msgspec.Struct, frozen=True):
    """The routes to add to one broker's, and to remove."""

    added: tuple[Route, ...]
    removed: tuple[Route, ...]


class RoutePlan:
    """All brokers, their interests, and the routes that follow."""

    def __init__(self) -> None:
        self._brokers: dict[str, BrokerInfo] = {}
        self._interests: dict[str, set[str]] = {}
        self._counts: dict[str, Counter[Route]] = {}  # broker → how many interests need each of its routes
        # Ids of routing brokers that carry traffic, sorted: every choice below is by this order.
        self._hubs: tuple[str, ...] = ()
        self._shunned: frozenset[str] = frozenset()  # routing brokers that other clusters do not reach

    @property
    def brokers(self) -> Mapping[str, BrokerInfo]:
        return self._brokers

    def interests(self, broker_id: str) -> frozenset[str]:
        return frozenset(self._interests.get(broker_id, ()))

    def routes(self, broker_id: str) -> frozenset[Route]:
        return frozenset(self._counts.get(broker_id, ()))

    def senders(self, peer: str) -> list[str]:
        """The brokers that have a route to this broker."""
        destinations = self._brokers if peer in self._hubs else (peer,)
        found = {
            broker: None
            for destination in destinations
            if self._interests[destination]
            for broker, _, next_hop in self._hops_to(destination)
            if next_hop == peer
        }
        return list(found)

    def users(self, hub: str) -> set[str]:
        """The brokers that send into other clusters over this routing broker, or would if it were not shunned."""
        hubs = tuple(sorted({*self._hubs, hub}))
        wanting = {self._brokers[each].cluster for each, interests in self._interests.items() if interests}
        served = {cluster for cluster in wanting if self._choose(hubs, cluster) == hub}
        return {each for each, info in self._brokers.items() if served - {info.cluster}} - {hub}

    # ── changes: each says what it did to whose routes ──────────────────────────────────────────────────────

    def join(self, info: BrokerInfo, interests: Iterable[str]) -> dict[str, RouteChange]:
        """Add a broker, or replace what is known of it."""
        wanted = set(interests)
        known = self._brokers.get(info.id)
        if known is not None and (known.cluster, known.role) == (info.cluster, info.role):
            self._brokers[info.id] = info  # elsewhere, perhaps: routes name it, and not its address
            have = self._interests[info.id]
            return self.change(info.id, wanted - have, have - wanted)
        if known is not None or info.role is Role.ROUTING:
            self._brokers[info.id] = info
            self._interests[info.id] = wanted
            return self._rebuild()
        self._brokers[info.id] = info
        self._interests[info.id] = set()
        own = self._counts[info.id] = Counter()
        for destination, their_interests in self._interests.items():
            if destination != info.id:
                next_hop = self._next_hop(info.id, destination)
                own.update(Route(Scope.ORIGIN, next_hop, each) for each in their_interests)
        changes = self.change(info.id, wanted, ())
        if own:
            changes[info.id] = RouteChange(tuple(sorted(own, key=_route_order)), ())
        return changes

    def leave(self, broker_id: str) -> dict[str, RouteChange]:
        """Forget a broker; no effect if it is not known."""
        info = self._brokers.get(broker_id)
        if info is None:
            return {}
        changes = {} if info.role is Role.ROUTING else self.change(broker_id, (), self._interests[broker_id])
        del self._brokers[broker_id], self._interests[broker_id]
        if info.role is Role.ROUTING:
            return self._rebuild()
        del self._counts[broker_id]
        return changes

    def change(self, broker_id: str, added: Iterable[str], removed: Iterable[str]) -> dict[str, RouteChange]:
        """Interests of a known broker come and go."""
        have = self._interests[broker_id]
        fresh = sorted(set(added) - have)
        gone = sorted(set(removed) & have)
        have.update(fresh)
        have.difference_update(gone)
        changes: dict[str, RouteChange] = {}
        for broker, scope, peer in self._hops_to(broker_id):
            counts = self._counts[broker]
            plus = [route for each in fresh if _count(counts, route := Route(scope, peer, each), by=1) == 1]
            minus = [route for each in gone if _count(counts, route := Route(scope, peer, each), by=-1) == 0]
            if plus or minus:
                before = changes.get(broker, RouteChange((), ()))
                changes[broker] = RouteChange((*before.added, *plus), (*before.removed, *minus))
        return changes

    @property
    def shunned(self) -> frozenset[str]:
        return self._shunned

    def shun(self, hubs: Iterable[str]) -> dict[str, RouteChange]:
        """These routing brokers, and no others, carry nothing, as if they were edge brokers."""
        wanted = frozenset(hubs)
        if wanted == self._shunned:
            return {}
        self._shunned = wanted
        return self._rebuild()

    # ── the rule ────────────────────────────────────────────────────────────────────────────────────────────

    def _hub_of(self, cluster: str) -> str | None:
        return self._choose(self._hubs, cluster)

    def _choose(self, hubs: tuple[str, ...], cluster: str) -> str | None:
        for hub in hubs:
            if self._brokers[hub].cluster == cluster:
                return hub
        return hubs[0] if hubs else None

    def _next_hop(self, broker: str, destination: str) -> str:
        cluster = self._brokers[destination].cluster
        if self._brokers[broker].cluster == cluster:
            return destination
        hub = self._hub_of(cluster)
        return destination if hub is None or hub == broker else hub

    def _hops_to(self, destination: str) -> list[tuple[str, Scope, str]]:
        """(owner, scope, peer) of each route that an interest of this broker needs."""
        hops = [
            (broker, Scope.ORIGIN, self._next_hop(broker, destination))
            for broker in self._brokers
            if broker != destination
        ]
        hub = self._hub_of(self._brokers[destination].cluster)
        if hub is not None and hub != destination:
            hops.append((hub, Scope.TRANSIT, destination))
        return hops

    def _rebuild(self) -> dict[str, RouteChange]:
        before = self._counts
        routing = {broker for broker, info in self._brokers.items() if info.role is Role.ROUTING}
        self._hubs = tuple(sorted(routing - self._shunned))
        self._counts = {broker: Counter() for broker in self._brokers}
        for destination, interests in self._interests.items():
            for broker, scope, peer in self._hops_to(destination):
                self._counts[broker].update(Route(scope, peer, each) for each in interests)
        changes = {}
        for broker, counts in self._counts.items():
            had = before.get(broker, Counter()).keys()
            added = sorted(counts.keys() - had, key=_route_order)
            removed = sorted(had - counts.keys(), key=_route_order)
            if added or removed:
                changes[broker] = RouteChange(tuple(added), tuple(removed))
        return changes


def _count(counts: Counter[Route], route: Route, *, by: int) -> int:
    """Count a route up or down; a count of zero is not kept."""
    count = counts.get(route, 0) + by
    if count:
        counts[route] = count
    else:
        counts.pop(route, None)
    return count


def _route_order(route: Route) -> tuple[str, str, str]:
    return route.scope.value, route.peer, route.filter
