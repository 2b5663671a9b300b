"""The routes of one broker's forwarding table: of which origins they are, and where those of lost brokers lead.

**Origins.** Routes come from the coordinator and from the cluster's gossip; **standby routes** are those that the
broker keeps by itself. A route is in the table while one of the three has it.

**Standby routes.** The routes to a broker lead elsewhere while it is lost, or while its local backup covers for it:

    the broker is      nobody covers for it       its local backup X covers for it
    there              to it                      to it, and to X
    lost               nowhere: they are kept     to X

A backup that **covers** for a broker has the broker's messages at QoS 0 sent to itself as well, until the coordinator
has made routes for the clients that came to it (``core.survival.covering``). Nothing is done for each filter: the
routes stay as they are, and the peer that they name leads elsewhere. X drops what none of its clients wants.

The routes to a broker that is lost are taken back by the coordinator. A broker keeps them as standby routes, which
carry nothing, until the lost one is back: a client may come to X minutes later.

A message reaches X once, whichever way it takes:

- routes to the broker and to X are one peer after ``leads``;
- X is in the cluster of the broker that it covers for, so that a hub leaves both out for a message from that cluster;
- a route into another cluster names its hub. If the covered broker is that hub, the route is not led elsewhere: the hub
  may be alive, and pass the message on to X.

Invariants: nothing leads to this broker itself; a standby route is of a broker that is lost; there are ROUTES_MAX at
most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Final

from tocsin.core.forwarding.table import Leads
from tocsin.model.network import BrokerInfo, Role, Route, Scope
from tocsin.wire.mqtt.topics import SHARE_PREFIX

ROUTES_MAX: Final = 200_000  # standby routes of one broker; some 200 B each


class Origin(Enum):
    """Where a route comes from."""

    COORDINATOR = auto()
    CLUSTER = auto()
    STANDBY = auto()  # the coordinator's, to a broker that is lost


class RouteOverlay:
    """Merges routes of all origins."""

    def __init__(self) -> None:
        self._routes: dict[Origin, set[Route]] = {origin: set() for origin in Origin}

    def routes(self, origin: Origin) -> Collection[Route]:
        return self._routes[origin]

    def count(self, origin: Origin) -> int:
        return len(self._routes[origin])

    def change(
        self, origin: Origin, added: Iterable[Route], removed: Iterable[Route]
    ) -> tuple[tuple[Route, ...], tuple[Route, ...]]:
        """Apply the additions and removals of one overlay; return the changes of the table."""
        own = self._routes[origin]
        others = [routes for other, routes in self._routes.items() if other is not origin]
        went: dict[Route, None] = {}
        came: dict[Route, None] = {}
        for route in removed:
            if route in own:
                own.discard(route)
                if not any(route in routes for routes in others):
                    went[route] = None
        for route in added:
            if route not in own:
                own.add(route)
                if route in went:
                    del went[route]
                elif not any(route in routes for routes in others):
                    came[route] = None
        return tuple(came), tuple(went)


class StandbyRoutes:
    """Decides which routes one broker keeps for lost peers, and where those to lost or covered peers lead."""

    def __init__(self, own: BrokerInfo) -> None:
        self._own = own
        self._covers: dict[str, BrokerInfo] = {}  # a peer → who covers for it
        self._infos: dict[str, BrokerInfo] = {}  # of peers, also those that are lost
        self._kept: Counter[str] = Counter()  # lost peer → how many standby routes lead there
        self._count = 0

    @property
    def covers(self) -> Mapping[str, BrokerInfo]:
        """The brokers that are covered for, and by which."""
        return self._covers

    @property
    def count(self) -> int:
        """How many routes are kept for lost peers."""
        return self._count

    def cover(self, peer: str, by: BrokerInfo) -> None:
        """A local backup covers for a peer."""
        self._covers[peer] = by

    def uncover(self, peer: str) -> None:
        self._covers.pop(peer, None)

    def peers(self) -> list[BrokerInfo]:
        """The brokers to which a link is needed for that."""
        return [
            by for peer, by in self._covers.items() if any(self._stand_in(scope, peer) for scope in Scope)
        ]

    def know(self, peers: Iterable[BrokerInfo], gone: Collection[str]) -> None:
        """Routes lead to these peers; those are lost."""
        infos = {peer: info for peer, info in self._infos.items() if peer in gone or peer in self._covers}
        self._infos = infos | {peer.id: peer for peer in peers}

    def keep(self, removed: Iterable[Route], gone: Collection[str]) -> list[Route]:
        """Of the routes that the coordinator takes back, those to keep as standby routes."""
        kept = []
        for route in removed:
            shared = route.filter.startswith(
                SHARE_PREFIX
            )  # one of a group's brokers gets a message, not this one
            if route.peer in gone and not shared and self.count < ROUTES_MAX:
                self._kept[route.peer] += 1
                self._count += 1
                kept.append(route)
        return kept

    def back(self, gone: Collection[str]) -> set[str]:
        """The peers that are lost no longer: their standby routes are to go."""
        back = {peer for peer in self._kept if peer not in gone}
        for peer in back:
            self._count -= self._kept.pop(peer)
        return back

    def leads(self, gone: Collection[str]) -> Leads:
        """Where routes lead that do not lead to their peers alone."""
        found: dict[tuple[Scope, str], tuple[str, ...]] = {}
        for peer in {*self._covers, *self._kept}:
            for scope in Scope:
                own = () if peer in gone else (peer,)
                stand_in = self._stand_in(scope, peer)
                led = own if stand_in is None else (*own, stand_in)
                if led != (peer,):
                    found[scope, peer] = led
        return found

    def _stand_in(self, scope: Scope, peer: str) -> str | None:
        info, by = self._infos.get(peer), self._covers.get(peer)
        if info is None or by is None or by.id == self._own.id or by.cluster != info.cluster:
            return None
        hub = info.role is Role.ROUTING and info.cluster != self._own.cluster
        return None if hub and scope is Scope.ORIGIN else by.id
