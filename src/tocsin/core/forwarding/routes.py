"""The routes between brokers that follow from their interests.

A message takes at most two hops between brokers:

- inside a cluster, straight from the publisher's broker to each interested one;
- into other clusters, once to each **tier** that carries for one of them, and from there to each interested broker.

A tier is some routing brokers, its **members**: those of one cluster, or of several that name the same tier. A cluster
is carried for by the tier of its own routing brokers, or else by the largest tier, the first by name if several are. A
network without routing brokers is a full mesh. A routing broker that is there but that other clusters do not reach is
*shunned*: it carries nothing. A tier of which all members are shunned carries for nobody, and its members are as edge
brokers.

Each broker has two sets of routes: **origin** routes for what its own clients publish, and a member also **transit**
routes for what arrives over a link. An origin route into another cluster names the tier, and no member
(``core.tiers.ways`` chooses one for each message). Every member has transit routes to all brokers for whose clusters
the tier carries, so that any of them can carry any message.

A broker has the route of a filter to a tier only while it **publishes** in the filter's scope (``origins``). For what a
broker publishes on topics that the coordinator does not know as its streams (wills, streams beyond a bound, all while
nobody leads) it has one route more to each tier that carries for somebody: UNREGISTERED. Messages that take it are
dropped by the member if nobody wants them.

No message comes twice, and none goes in circles:

- what arrives over a link never takes an origin route;
- a member leaves out the destinations in the cluster that a message came from, and its own clients if that is its own
  cluster: the origin serves those itself;
- what is sent straight to a routing broker is marked (``wire.mqtt.topics.HERE_PREFIX``), and takes no transit route.

What a broker's routes are follows from its cluster, its tier and from who wants what, so no broker's routes are kept.
Only this is kept: how many brokers of each **cluster** want a filter, and which clusters want it. A change is worked
out once for each cluster, and the brokers that it concerns alike share one ``RouteChange``.

Cost: an interest that comes or goes costs the clusters that want it, and one reference for each broker that it
concerns: those of its cluster, the members of its tier, and those that publish in its scope. A topic that comes or goes
at a broker costs the filters of the scopes that it is the first or the last of there. A broker that comes costs the
distinct filters of the network once. A routing broker that comes or goes changes nobody else's routes, unless it is
the first or the last of a tier, or another tier is the largest by that: then all routes are compared (brokers ×
filters).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tocsin.core.forwarding.origins import EVERYWHERE, UNREGISTERED, Origins, scope_of, scopes_of_topic
from tocsin.core.tiers.slots import gate_of
from tocsin.model.network import BrokerInfo, Role, Route, Scope

MEMBERS_MAX = 255  # that carry in one tier: the first by id (``wire.internal.slots``)

_ByBroker = dict[str, list[Route]]


class RouteChange(msgspec.Struct, frozen=True):
    """The routes to add to one broker's, and to remove."""

    added: tuple[Route, ...]
    removed: tuple[Route, ...]


class _Layout(msgspec.Struct, frozen=True):
    """Which tiers there are, and for which clusters each carries."""

    members: dict[str, tuple[str, ...]] = {}  # tier that has some who carry → those, sorted
    all_members: dict[str, frozenset[str]] = {}  # the same with those that are shunned
    serving: dict[str, str] = {}  # cluster → the tier that carries for it; empty: a mesh
    tier_of: dict[str, str] = {}  # member of such a tier, shunned or not → the tier
    largest: str = ""  # which carries for clusters without routing brokers

    def alike(self, other: _Layout) -> bool:
        """Whether routes that both have are the same: only members have come or gone."""
        return self.serving == other.serving


class RoutePlan:
    """All brokers, their interests, and the routes that follow."""

    def __init__(self) -> None:
        self._brokers: dict[str, BrokerInfo] = {}
        self._interests: dict[str, dict[str, Route]] = {}  # broker → filter → the route straight to it
        self._clusters: dict[str, dict[str, None]] = {}  # cluster → its brokers
        self._wants: dict[str, Counter[str]] = {}  # cluster → filters, and how many of its brokers want each
        self._wanting: dict[str, dict[str, None]] = {}  # filter → the clusters that want it
        self._scopes: dict[str, dict[str, None]] = {}  # scope → the filters of it that somebody wants
        self._shunned: frozenset[str] = frozenset()  # routing brokers that other clusters do not reach
        self._layout = _Layout()
        self.origins = Origins()

    @property
    def brokers(self) -> Mapping[str, BrokerInfo]:
        return self._brokers

    @property
    def tiers(self) -> Mapping[str, tuple[str, ...]]:
        """The tiers, and who carries in each."""
        return self._layout.members

    @property
    def shunned(self) -> frozenset[str]:
        return self._shunned

    def interests(self, broker_id: str) -> frozenset[str]:
        return frozenset(self._interests.get(broker_id, ()))

    def routes(self, broker_id: str) -> frozenset[Route]:
        return frozenset(self._routes(broker_id)) if broker_id in self._brokers else frozenset()

    def routes_for(self, broker_id: str, topic: str) -> frozenset[Route]:
        """The routes of a broker, as they would be if it published on a topic."""
        return self.routes(broker_id) | self._gates(broker_id, scopes_of_topic(topic))

    def tier_for(self, cluster: str) -> str:
        """The tier that carries for a cluster; empty: none does."""
        return self._layout.serving.get(cluster, "")

    def member_of(self, broker: str) -> str:
        """The tier of a routing broker, shunned or not; empty: it is in none that carries for anybody."""
        return self._layout.tier_of.get(broker, "")

    def senders(self, peer: str) -> list[str]:
        """The brokers that have a route straight to this broker."""
        if not self._interests[peer]:
            return []
        cluster = self._brokers[peer].cluster
        tier = self._layout.serving[cluster]
        if not tier:
            return [each for each in self._brokers if each != peer]
        members = self._layout.all_members[tier]
        return [
            each
            for each, info in self._brokers.items()
            if each != peer and (info.cluster == cluster or each in members)
        ]

    def users(self, hub: str) -> set[str]:
        """The brokers that send into other clusters over this routing broker, or would if it were not shunned."""
        layout = self._layout if hub not in self._shunned else self._laid_out(self._shunned - {hub})
        tier = layout.tier_of.get(hub, "")
        if not tier:
            return set()
        served = {each for each, wants in self._wants.items() if wants and layout.serving[each] == tier}
        members = layout.all_members[tier]
        return {
            each for each, info in self._brokers.items() if each not in members and served - {info.cluster}
        }

    # ── changes: each says what it did to whose routes ──────────────────────────────────────────────────────

    def join(self, info: BrokerInfo, interests: Iterable[str]) -> dict[str, RouteChange]:
        """Add a broker, or replace what is known of it."""
        wanted = set(interests)
        known = self._brokers.get(info.id)
        if known is not None and _place(known) == _place(info):
            self._brokers[info.id] = info  # elsewhere, perhaps: routes name it, and not its address
            have = self._interests[info.id].keys()
            return self.change(info.id, wanted - have, have - wanted)
        if known is not None:
            before = self._all_routes()
            self._remove(info.id)
            self._add(info)
            self._want(info.id, wanted)
            self._layout = self._laid_out(self._shunned)
            return self._rebuilt(before)
        if info.role is Role.ROUTING:
            layout = self._laid_out(self._shunned, info)
            if not self._alike(layout):
                before = self._all_routes()
                self._add(info)
                self._want(info.id, wanted)
                self._layout = layout
                return self._rebuilt(before)
            self._layout = layout
        self._layout.serving.setdefault(info.cluster, self._layout.largest)
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
        changes: dict[str, RouteChange] = {}
        if info.role is Role.ROUTING:
            layout = self._laid_out(self._shunned, without=broker_id)
            if not self._alike(layout):
                before = self._all_routes()
                self._remove(broker_id)
                self._layout = layout
                return self._rebuilt(before)
        changes = self.change(broker_id, (), tuple(self._interests[broker_id]))
        self._remove(broker_id)
        if info.role is Role.ROUTING:
            self._layout = layout
        elif info.cluster not in self._clusters:
            del self._layout.serving[info.cluster]
        return changes

    def change(self, broker_id: str, added: Iterable[str], removed: Iterable[str]) -> dict[str, RouteChange]:
        """Interests of a known broker come and go."""
        have = self._interests[broker_id]
        fresh = sorted(set(added) - have.keys())
        gone = sorted(set(removed) & have.keys())
        if not fresh and not gone:
            return {}
        wants = self._wants[self._brokers[broker_id].cluster]
        wanted = bool(wants)
        minus = [have[each] for each in gone], self._over_tier(broker_id, gone)
        for each in gone:
            del have[each]
        self._count(broker_id, gone, -1)
        self._want(broker_id, fresh)
        plus = [have[each] for each in fresh], self._over_tier(broker_id, fresh)
        if wanted is not bool(wants):
            self._reach(broker_id, (minus if wanted else plus)[1])
        return self._spread(broker_id, plus, minus)

    def publish(self, topic: str, broker_id: str) -> dict[str, RouteChange]:
        """A client more publishes on a topic at a broker, which need not be known."""
        return self._turn(broker_id, self.origins.publish(topic, broker_id), came=True)

    def touch(self, topic: str, broker_id: str, now_us: int) -> dict[str, RouteChange]:
        """A client may have published there, and is elsewhere by now."""
        return self._turn(broker_id, self.origins.touch(topic, broker_id, now_us), came=True)

    def lapse(self, now_us: int) -> dict[str, RouteChange]:
        """End what was published until some time ago, and is no more."""
        changes: dict[str, RouteChange] = {}
        for broker, scopes in self.origins.lapse(now_us):
            changes.update(self._turn(broker, scopes, came=False))
        return changes

    def shun(self, hubs: Iterable[str]) -> dict[str, RouteChange]:
        """These routing brokers, and no others, carry nothing."""
        wanted = frozenset(hubs)
        if wanted == self._shunned:
            return {}
        self._shunned = wanted
        layout = self._laid_out(wanted)
        if layout.alike(self._layout) and layout.tier_of == self._layout.tier_of:
            self._layout = layout
            return {}
        before = self._all_routes()
        self._layout = layout
        return self._rebuilt(before)

    # ── what an interest does ───────────────────────────────────────────────────────────────────────────────

    def _over_tier(self, broker: str, filters: Sequence[str]) -> _ByBroker:
        """The routes to its cluster's tier that these interests of a broker need, and nothing else does: for each
        broker that publishes in their scopes."""
        cluster = self._brokers[broker].cluster
        tier = self._layout.serving[cluster]
        found: _ByBroker = {}
        if not tier:
            return found
        serving = self._layout.serving
        for each in filters:
            if self._wants[cluster][each] > 1:
                continue
            others = [name for name in self._wanting[each] if name != cluster and serving[name] == tier]
            if len(others) < 2:
                self._tell_senders(found, cluster, tier, each, others)
        return found

    def _reach(self, broker: str, found: _ByBroker) -> None:
        """A broker's cluster wants something for the first time, or does no more: what that does to the routes of
        topics that nobody registered."""
        cluster = self._brokers[broker].cluster
        tier = self._layout.serving[cluster]
        if tier:
            serving = self._layout.serving
            others = [
                name
                for name, wants in self._wants.items()
                if wants and name != cluster and serving[name] == tier
            ]
            if len(others) < 2:
                self._tell_senders(found, cluster, tier, UNREGISTERED, others)

    def _tell_senders(
        self, found: _ByBroker, cluster: str, tier: str, wanted: str, others: Sequence[str]
    ) -> None:
        """Add the route of what a cluster wants for the brokers that need it by that alone; ``others``: the cluster
        that wants it as well, if there is one."""
        route, scope = Route(Scope.ORIGIN, gate_of(tier), wanted), scope_of(wanted)
        members, brokers = self._layout.all_members[tier], self._brokers
        if others:
            there = self._clusters[others[0]]
            senders = [each for each in there if each not in members and self.origins.holds(scope, each)]
        else:
            publishing = brokers if scope == EVERYWHERE else self.origins.brokers(scope)
            senders = [
                each
                for each in publishing
                if each not in members and each in brokers and brokers[each].cluster != cluster
            ]
        for each in senders:
            found.setdefault(each, []).append(route)

    def _spread(
        self, broker: str, plus: tuple[list[Route], _ByBroker], minus: tuple[list[Route], _ByBroker]
    ) -> dict[str, RouteChange]:
        """What comes and goes for each broker; those that are alike share it."""
        own = self._brokers[broker].cluster
        tier = self._layout.serving[own]
        straight = RouteChange(tuple(plus[0]), tuple(minus[0]))
        if not tier:
            changes = dict.fromkeys(self._brokers, straight)
            changes.pop(broker, None)
            return changes
        changes = dict.fromkeys(self._clusters[own], straight)
        alike: dict[tuple[tuple[int, ...], tuple[int, ...]], RouteChange] = {}  # by identity of the routes
        for each in {**plus[1], **minus[1]}:
            came, went = plus[1].get(each, ()), minus[1].get(each, ())
            key = tuple(map(id, came)), tuple(map(id, went))
            change = alike.get(key)
            if change is None:
                change = alike[key] = RouteChange(tuple(came), tuple(went))
            changes[each] = change
        onward = [
            tuple(Route(Scope.TRANSIT, broker, each.filter) for each in way[0]) for way in (plus, minus)
        ]
        both = RouteChange((*plus[0], *onward[0]), (*minus[0], *onward[1]))
        changes.update(dict.fromkeys(sorted(self._layout.all_members[tier]), both))
        changes.pop(broker, None)
        return changes

    def _turn(self, broker: str, scopes: Sequence[str], *, came: bool) -> dict[str, RouteChange]:
        """A broker publishes in these scopes from now on, or does no more."""
        if not scopes or broker not in self._brokers:
            return {}
        routes = tuple(sorted(self._gates(broker, scopes), key=_route_order))
        return {broker: RouteChange(*((routes, ()) if came else ((), routes)))} if routes else {}

    def _gates(self, broker: str, scopes: Iterable[str]) -> set[Route]:
        """A broker's routes to tiers for the filters of these scopes."""
        cluster = self._brokers[broker].cluster
        own = self._layout.tier_of.get(broker, "")
        serving = self._layout.serving
        return {
            Route(Scope.ORIGIN, gate_of(tier), wanted)
            for scope in scopes
            for wanted in self._scopes.get(scope, ())
            for name in self._wanting[wanted]
            if name != cluster and (tier := serving[name]) and tier != own
        }

    # ── who is there, and wants what ────────────────────────────────────────────────────────────────────────

    def _add(self, info: BrokerInfo) -> None:
        self._brokers[info.id] = info
        self._interests[info.id] = {}
        self._clusters.setdefault(info.cluster, {})[info.id] = None
        self._wants.setdefault(info.cluster, Counter())

    def _remove(self, broker: str) -> None:
        cluster = self._brokers[broker].cluster
        self._count(broker, self._interests.pop(broker), -1)
        del self._brokers[broker]
        del self._clusters[cluster][broker]
        if not self._clusters[cluster]:
            del self._clusters[cluster], self._wants[cluster]

    def _want(self, broker: str, filters: Iterable[str]) -> None:
        have = self._interests[broker]
        have.update((each, Route(Scope.ORIGIN, broker, each)) for each in filters)
        self._count(broker, filters, 1)

    def _count(self, broker: str, filters: Iterable[str], by: int) -> None:
        cluster = self._brokers[broker].cluster
        wants = self._wants[cluster]
        for each in filters:
            count = wants[each] + by
            if count:
                wants[each] = count
                if each not in self._wanting:
                    self._wanting[each] = {}
                    self._scopes.setdefault(scope_of(each), {})[each] = None
                self._wanting[each][cluster] = None
                continue
            wants.pop(each, None)
            clusters = self._wanting[each]
            clusters.pop(cluster, None)
            if not clusters:
                del self._wanting[each]
                alike = self._scopes[scope := scope_of(each)]
                del alike[each]
                if not alike:
                    del self._scopes[scope]

    # ── the rule ────────────────────────────────────────────────────────────────────────────────────────────

    def _laid_out(
        self, shunned: frozenset[str], more: BrokerInfo | None = None, without: str = ""
    ) -> _Layout:
        """The tiers as they would be with one broker more, or less."""
        infos = {each: info for each, info in self._brokers.items() if each != without}
        if more is not None:
            infos[more.id] = more
        named: dict[str, str] = {}  # cluster → the tier that its routing brokers name; the first, if several
        hubs = [each for each in infos.values() if each.role is Role.ROUTING]
        for each in hubs:
            tier = each.tier or each.cluster
            named[each.cluster] = min(tier, named.get(each.cluster, tier))
        there: dict[str, list[str]] = {}
        for each in hubs:
            there.setdefault(named[each.cluster], []).append(each.id)
        members = {
            tier: tuple(carrying[:MEMBERS_MAX])
            for tier, hubs_there in sorted(there.items())
            if (carrying := sorted(each for each in hubs_there if each not in shunned))
        }
        largest = min(members, key=lambda each: (-len(members[each]), each), default="")
        serving = {}
        for info in infos.values():
            tier = named.get(info.cluster, "")
            serving[info.cluster] = tier if tier in members else largest
        return _Layout(
            members,
            {tier: frozenset(there[tier]) for tier in members},
            serving,
            {each: tier for tier in members for each in there[tier]},
            largest,
        )

    def _alike(self, after: _Layout) -> bool:
        """Whether one member comes or goes, and nothing else: each cluster that stays keeps its tier, and each broker
        its part."""
        before = self._layout
        stay = before.serving.keys() & after.serving.keys()
        members = before.tier_of.keys() & after.tier_of.keys()
        return (
            all(before.serving[each] == after.serving[each] for each in stay)
            and all(before.tier_of[each] == after.tier_of[each] for each in members)
            and len(before.tier_of.keys() ^ after.tier_of.keys()) <= 1
        )

    def _routes(self, broker: str) -> set[Route]:
        """All routes of a broker."""
        cluster = self._brokers[broker].cluster
        tier = self._layout.tier_of.get(broker, "")
        found = self._outward(broker, tier)
        if tier:
            found.update(
                Route(Scope.TRANSIT, each, wanted)
                for served, serving in self._layout.serving.items()
                if serving == tier and served in self._clusters
                for each in self._clusters[served]
                if each != broker
                for wanted in self._interests[each]
            )
        for each in self._clusters[cluster]:
            if each != broker:
                found.update(self._interests[each].values())
        return found

    def _outward(self, broker: str, own: str) -> set[Route]:
        """The routes of a broker, perhaps a member of a tier, into other clusters."""
        holds = self.origins.holds
        found = self._gates(broker, (scope for scope in self._scopes if holds(scope, broker)))
        for cluster, brokers in self._clusters.items():
            if cluster == self._brokers[broker].cluster:
                continue
            tier = self._layout.serving[cluster]
            if not tier or tier == own:
                for each in brokers:
                    found.update(self._interests[each].values())
            elif self._wants[cluster]:
                found.add(Route(Scope.ORIGIN, gate_of(tier), UNREGISTERED))
        return found

    def _all_routes(self) -> dict[str, set[Route]]:
        return {broker: self._routes(broker) for broker in self._brokers}

    def _rebuilt(self, before: Mapping[str, set[Route]]) -> dict[str, RouteChange]:
        """The tiers are others: what that does to everybody's routes."""
        changes = {}
        for broker, routes in self._all_routes().items():
            had = before.get(broker, set())
            added = sorted(routes - had, key=_route_order)
            removed = sorted(had - routes, key=_route_order)
            if added or removed:
                changes[broker] = RouteChange(tuple(added), tuple(removed))
        return changes


def _place(info: BrokerInfo) -> tuple[str, Role, str]:
    """What routes depend on."""
    return info.cluster, info.role, info.tier


def _route_order(route: Route) -> tuple[str, str, str]:
    return route.scope.value, route.peer, route.filter
