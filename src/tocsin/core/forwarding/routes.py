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

What a broker's routes are follows from its cluster and from who wants what, so no broker's routes are kept. Only this
is counted: how many brokers of each **cluster** want a filter. All brokers of a cluster that are no hubs send into
other clusters alike. So a change is worked out once for each cluster, and the brokers that it concerns alike share one
``RouteChange``.

Cost: an interest that comes or goes costs the clusters, and one reference for each broker. An edge broker that comes
costs the distinct filters of the network once; a broker that comes back, perhaps elsewhere, costs its interests; a hub
changes everybody's next hops and compares all routes (brokers × filters).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

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
        self._interests: dict[str, dict[str, Route]] = {}  # broker → filter → the route straight to it
        self._clusters: dict[str, dict[str, None]] = {}  # cluster → its brokers
        self._wants: dict[str, Counter[str]] = {}  # cluster → filters, and how many of its brokers want each
        # Ids of routing brokers that carry traffic, sorted: every choice below is by this order.
        self._hubs: tuple[str, ...] = ()
        self._shunned: frozenset[str] = frozenset()  # routing brokers that other clusters do not reach

    @property
    def brokers(self) -> Mapping[str, BrokerInfo]:
        return self._brokers

    def interests(self, broker_id: str) -> frozenset[str]:
        return frozenset(self._interests.get(broker_id, ()))

    def routes(self, broker_id: str) -> frozenset[Route]:
        return frozenset(self._routes(broker_id, {})) if broker_id in self._brokers else frozenset()

    def senders(self, peer: str) -> list[str]:
        """The brokers that have a route to this broker."""
        served = self._served(peer) if peer in self._hubs else []
        cluster = self._brokers[peer].cluster
        hub = self._hub_of(cluster)

        def sends(broker: str, info: BrokerInfo) -> bool:
            if broker == peer:
                return False
            straight = info.cluster == cluster or hub is None or hub == broker
            if straight and self._interests[peer]:
                return True
            return any(self._wants[each] for each in served if each != info.cluster)

        return [broker for broker, info in self._brokers.items() if sends(broker, info)]

    def users(self, hub: str) -> set[str]:
        """The brokers that send into other clusters over this routing broker, or would if it were not shunned."""
        hubs = tuple(sorted({*self._hubs, hub}))
        wanting = {cluster for cluster, wants in self._wants.items() if wants}
        served = {cluster for cluster in wanting if self._choose(hubs, cluster) == hub}
        return {each for each, info in self._brokers.items() if served - {info.cluster}} - {hub}

    # ── changes: each says what it did to whose routes ──────────────────────────────────────────────────────

    def join(self, info: BrokerInfo, interests: Iterable[str]) -> dict[str, RouteChange]:
        """Add a broker, or replace what is known of it."""
        wanted = set(interests)
        known = self._brokers.get(info.id)
        if known is not None and (known.cluster, known.role) == (info.cluster, info.role):
            self._brokers[info.id] = info  # elsewhere, perhaps: routes name it, and not its address
            have = self._interests[info.id].keys()
            return self.change(info.id, wanted - have, have - wanted)
        if known is not None or info.role is Role.ROUTING:
            before = self._all_routes()
            if known is not None:
                self._remove(info.id)
            self._add(info)
            self._want(info.id, wanted)
            return self._rebuilt(before)
        self._add(info)
        own = self.routes(info.id)
        changes = self.change(info.id, wanted, ())
        if own:
            changes[info.id] = RouteChange(tuple(sorted(own, key=_route_order)), ())
        return changes

    def leave(self, broker_id: str) -> dict[str, RouteChange]:
        """Forget a broker; no effect if it is not known."""
        info = self._brokers.get(broker_id)
        if info is None:
            return {}
        if info.role is Role.ROUTING:
            before = self._all_routes()
            self._remove(broker_id)
            return self._rebuilt(before)
        changes = self.change(broker_id, (), tuple(self._interests[broker_id]))
        self._remove(broker_id)
        return changes

    def change(self, broker_id: str, added: Iterable[str], removed: Iterable[str]) -> dict[str, RouteChange]:
        """Interests of a known broker come and go."""
        have = self._interests[broker_id]
        fresh = sorted(set(added) - have.keys())
        gone = sorted(set(removed) & have.keys())
        if not fresh and not gone:
            return {}
        minus = self._straight(broker_id, gone), self._over_hub(broker_id, gone)
        for each in gone:
            del have[each]
        self._count(broker_id, gone, -1)
        self._count(broker_id, fresh, 1)
        self._want(broker_id, fresh, counted=True)
        plus = self._straight(broker_id, fresh), self._over_hub(broker_id, fresh)
        return self._spread(broker_id, plus, minus)

    def _straight(self, broker: str, filters: Sequence[str]) -> list[Route]:
        """The routes straight to a broker that these interests of it need, and nothing else does."""
        routes = [self._interests[broker][each] for each in filters]
        if broker not in self._hubs:
            return routes
        # In its own cluster a hub is also the way into the other clusters that it serves.
        others = [each for each in self._served(broker) if each != self._brokers[broker].cluster]
        return [route for route in routes if not any(route.filter in self._wants[each] for each in others)]

    def _over_hub(self, broker: str, filters: Sequence[str]) -> dict[str, list[Route]]:
        """The routes over its cluster's hub that these interests of a broker need, and nothing else does: for
        brokers of each other cluster, and under the empty name for those of the clusters that are not named."""
        cluster = self._brokers[broker].cluster
        hub = self._hub_of(cluster)
        found: dict[str, list[Route]] = {"": []}
        if hub is None:
            return found
        served = [each for each in self._served(hub) if each != cluster]
        for each in filters:
            if self._wants[cluster][each] > 1:
                continue
            others = [name for name in served if each in self._wants[name]]
            route = self._interests[broker][each] if hub == broker else Route(Scope.ORIGIN, hub, each)
            home = self._brokers[hub].cluster
            if not others:
                found[""].append(route)
            elif len(others) == 1 and not (others[0] == home and each in self._interests[hub]):
                found.setdefault(others[0], []).append(route)
        return found

    def _spread(
        self,
        broker: str,
        plus: tuple[list[Route], dict[str, list[Route]]],
        minus: tuple[list[Route], dict[str, list[Route]]],
    ) -> dict[str, RouteChange]:
        """What comes and goes for each broker; those that are alike share it."""
        own = self._brokers[broker].cluster
        hub = self._hub_of(own)
        straight = RouteChange(tuple(plus[0]), tuple(minus[0]))
        changes: dict[str, RouteChange] = {}
        for cluster, members in self._clusters.items():
            if cluster == own or hub is None:
                alike = straight
            else:
                came = (*plus[1][""], *plus[1].get(cluster, ()))
                went = (*minus[1][""], *minus[1].get(cluster, ()))
                alike = RouteChange(came, went)
            if alike.added or alike.removed:
                changes.update(dict.fromkeys(members, alike))
        if hub is not None and hub != broker:
            transit = [
                tuple(Route(Scope.TRANSIT, broker, each.filter) for each in way[0]) for way in (plus, minus)
            ]
            changes[hub] = RouteChange((*plus[0], *transit[0]), (*minus[0], *transit[1]))
        elif hub == broker:
            changes.pop(hub, None)
        changes.pop(broker, None)
        return changes

    @property
    def shunned(self) -> frozenset[str]:
        return self._shunned

    def shun(self, hubs: Iterable[str]) -> dict[str, RouteChange]:
        """These routing brokers, and no others, carry nothing, as if they were edge brokers."""
        wanted = frozenset(hubs)
        if wanted == self._shunned:
            return {}
        before = self._all_routes()
        self._shunned = wanted
        return self._rebuilt(before)

    # ── who is there, and wants what ────────────────────────────────────────────────────────────────────────

    def _add(self, info: BrokerInfo) -> None:
        self._brokers[info.id] = info
        self._interests[info.id] = {}
        self._clusters.setdefault(info.cluster, {})[info.id] = None
        self._wants.setdefault(info.cluster, Counter())

    def _remove(self, broker: str) -> None:
        cluster = self._brokers.pop(broker).cluster
        for each in self._interests.pop(broker):
            _count(self._wants[cluster], each, by=-1)
        del self._clusters[cluster][broker]
        if not self._clusters[cluster]:
            del self._clusters[cluster], self._wants[cluster]

    def _want(self, broker: str, filters: Iterable[str], *, counted: bool = False) -> None:
        have = self._interests[broker]
        have.update((each, Route(Scope.ORIGIN, broker, each)) for each in filters)
        if not counted:
            self._count(broker, filters, 1)

    def _count(self, broker: str, filters: Iterable[str], by: int) -> None:
        wants = self._wants[self._brokers[broker].cluster]
        for each in filters:
            _count(wants, each, by=by)

    # ── the rule ────────────────────────────────────────────────────────────────────────────────────────────

    def _hub_of(self, cluster: str) -> str | None:
        return self._choose(self._hubs, cluster)

    def _choose(self, hubs: tuple[str, ...], cluster: str) -> str | None:
        for hub in hubs:
            if self._brokers[hub].cluster == cluster:
                return hub
        return hubs[0] if hubs else None

    def _served(self, hub: str) -> list[str]:
        """The clusters into which others send over this hub."""
        return [cluster for cluster in self._clusters if self._hub_of(cluster) == hub]

    def _routes(self, broker: str, known: dict[str, set[Route]]) -> set[Route]:
        """All routes of a broker. ``known``: those into other clusters, by cluster, of brokers that are no hubs."""
        cluster = self._brokers[broker].cluster
        if broker in self._hubs:
            found = self._outward(broker)
            found.update(
                Route(Scope.TRANSIT, each, wanted)
                for served in self._served(broker)
                for each in self._clusters[served]
                if each != broker
                for wanted in self._interests[each]
            )
        else:
            if cluster not in known:
                known[cluster] = self._outward(broker)
            found = set(known[cluster])
        for each in self._clusters[cluster]:
            if each != broker:
                found.update(self._interests[each].values())
        return found

    def _outward(self, broker: str) -> set[Route]:
        """The routes of a broker into other clusters."""
        found: set[Route] = set()
        for cluster, members in self._clusters.items():
            if cluster == self._brokers[broker].cluster:
                continue
            hub = self._hub_of(cluster)
            if hub is None or hub == broker:
                for each in members:
                    found.update(self._interests[each].values())
            else:
                found.update(Route(Scope.ORIGIN, hub, each) for each in self._wants[cluster])
        return found

    def _all_routes(self) -> dict[str, set[Route]]:
        known: dict[str, set[Route]] = {}
        return {broker: self._routes(broker, known) for broker in self._brokers}

    def _rebuilt(self, before: Mapping[str, set[Route]]) -> dict[str, RouteChange]:
        """The hubs are others: what that does to everybody's routes."""
        routing = {broker for broker, info in self._brokers.items() if info.role is Role.ROUTING}
        self._hubs = tuple(sorted(routing - self._shunned))
        changes = {}
        for broker, routes in self._all_routes().items():
            had = before.get(broker, set())
            added = sorted(routes - had, key=_route_order)
            removed = sorted(had - routes, key=_route_order)
            if added or removed:
                changes[broker] = RouteChange(tuple(added), tuple(removed))
        return changes


def _count(counts: Counter[str], wanted: str, *, by: int) -> None:
    """Count up or down; a count of zero is not kept."""
    count = counts[wanted] + by
    if count:
        counts[wanted] = count
    else:
        counts.pop(wanted, None)


def _route_order(route: Route) -> tuple[str, str, str]:
    return route.scope.value, route.peer, route.filter
