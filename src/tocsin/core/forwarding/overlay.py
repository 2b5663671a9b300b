"""Routes of several origins in one forwarding table: the coordinator's, those from the cluster's gossip, and standby
routes (``core.forwarding.standby_routes``).

A route is in the table while one of them has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto

from tocsin.model.network import Route


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
