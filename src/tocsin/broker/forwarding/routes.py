"""Where a broker sends what: the routes of its forwarding table, and the links that they need.

Routes to brokers that are lost are kept, and lead to a backup that covers for them
(``core.forwarding.overlay``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tocsin.broker.client import Client
from tocsin.broker.links.link import Link
from tocsin.broker.links.pool import LinkPool
from tocsin.broker.tiers.carrying import Carrying
from tocsin.core.forwarding.overlay import Origin, RouteOverlay, StandbyRoutes
from tocsin.core.forwarding.table import ForwardingTable
from tocsin.core.tiers.slots import Slots
from tocsin.model.network import BrokerInfo, Role, Route


class Routes:
    """The coordinator's, and those that brokers of the cluster tell each other. ``carrying`` sends over tiers.
    ``links_changed`` is called before the table is; ``gone`` names the brokers that a leader has declared lost."""

    def __init__(
        self,
        own: BrokerInfo,
        table: ForwardingTable[Client],
        peers: LinkPool,
        carrying: Carrying,
        links_changed: Callable[[], None],
        gone: Callable[[], Collection[str]],
    ) -> None:
        self.carrying = carrying
        self.standby = StandbyRoutes(own)
        self._gone = gone
        self._table = table
        self._peers = peers
        self._links_changed = links_changed
        self._overlay = RouteOverlay()
        self._planned: dict[str, BrokerInfo] = {}  # peers that the coordinator names …
        self._quiet: frozenset[str] = frozenset()  # … of them, those to which it has nothing lead …
        self._near: dict[str, BrokerInfo] = {}  # … and others of the cluster

    @property
    def near(self) -> int:
        """Routes that the cluster has told."""
        return self._overlay.count(Origin.CLUSTER)

    def near_to(self, peer: str) -> set[str]:
        """The filters of those of them that lead to a peer."""
        return {route.filter for route in self._overlay.routes(Origin.CLUSTER) if route.peer == peer}

    def link(self, broker: str) -> Link | None:
        return self._peers.links.get(broker)

    def change(
        self,
        added: Iterable[Route],
        removed: Iterable[Route],
        peers: Iterable[BrokerInfo],
        quiet: Collection[str] = (),
        tiers: Mapping[str, Slots] | None = None,
    ) -> None:
        """Have these routes of the coordinator's, and a link to each of these peers; nothing leads to quiet ones. Tiers
        are as they were if none are given."""
        self._planned = {peer.id: peer for peer in peers}
        self._quiet = frozenset(quiet)
        gone, taken_back = self._lost(), tuple(removed)
        self.standby.know(self._planned.values(), gone)
        self._want()
        back = self.standby.back(gone)
        over = [route for route in self._overlay.routes(Origin.STANDBY) if route.peer in back] if back else ()
        self._change(Origin.STANDBY, self.standby.keep(taken_back, gone), over)
        if tiers is not None:
            self.carrying.know(tiers, gone)
        self._change(Origin.COORDINATOR, added, taken_back)
        self._lead()

    def cover(self, began: Iterable[tuple[str, BrokerInfo]], over: Iterable[str]) -> None:
        """Backups cover for these brokers from now on, and for those no longer."""
        for peer in over:
            self.standby.uncover(peer)
        for peer, by in began:
            self.standby.cover(peer, by)
        self._want()
        self._lead()

    def change_near(self, added: Iterable[Route], removed: Iterable[Route]) -> None:
        self._change(Origin.CLUSTER, added, removed)

    def want_links(self, peers: Iterable[BrokerInfo]) -> None:
        """Have links to these, beside those of the coordinator's."""
        self._near = {peer.id: peer for peer in peers}
        self._want()
        self._lead()

    def _lost(self) -> set[str]:
        """The brokers to which nothing is to be sent. What a leader says of those of a cluster that is cut off does not
        count there."""
        return {each for each in self._gone() if each not in self._near}

    def _lead(self) -> None:
        self._table.lead(self.standby.leads(self._lost()))

    def _want(self) -> None:
        covering = {peer.id: peer for peer in self.standby.peers()}
        others = covering | self._near
        wanted = others | self._planned
        self._peers.want(wanted.values(), self._quiet - others.keys())
        self._table.know_routing({each for each, info in wanted.items() if info.role is Role.ROUTING})
        self._links_changed()

    def _change(self, origin: Origin, added: Iterable[Route], removed: Iterable[Route]) -> None:
        came, went = self._overlay.change(origin, added, removed)
        for route in went:
            self._table.remove_route(route)
        for route in came:
            self._table.add_route(route)
