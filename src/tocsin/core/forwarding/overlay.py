"""Routes of two origins in one forwarding table: the coordinator's, and those from the cluster's gossip.

A route is in the table while either has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto

from tocsin.model.network import Route


class Origin(Enum):
    """Whether a route comes from the coordinator or from the cluster."""

    COORDINATOR = auto()
    CLUSTER = auto()


class RouteOverlay:
    """Merges the coordinator's routes with those that a cluster's brokers tell each other."""

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
        (others,) = (routes for other, routes in self._routes.items() if other is not origin)
        went: dict[Route, None] = {}
        came: dict[Route, None] = {}
        for route in removed:
            if route in own:
                own.discard(route)
                if route not in others:
                    went[route] = None
        for route in added:
            if route not in own:
                own.add(route)
                if route in went:
                    del went[route]
                elif route not in others:
                    came[route] = None
        return tuple(came), tuple(went)
