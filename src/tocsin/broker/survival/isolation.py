"""A broker that no leader hears: its cluster's landmark, takeovers for the time of the cut, and clients without their
sessions.

``broker.survival.cluster_gossip`` and ``broker.survival.provisional`` do the work. Both are told here that a leader is
heard no longer, or again, and both are reported on from here.
"""

from __future__ import annotations

import asyncio

import structlog

from tocsin.broker.forwarding.routes import Routes
from tocsin.broker.survival.cluster_gossip import ClusterGossip
from tocsin.broker.survival.provisional import Provisional
from tocsin.broker.survival.takeover import Takeovers
from tocsin.core.coordination.participant.network_view import NetworkView
from tocsin.model.network import BrokerInfo
from tocsin.ports import Table


class Isolation:
    """Whether a leader counts on one broker, and what the broker does if none does."""

    def __init__(
        self,
        gossip: ClusterGossip,
        provisional: Provisional,
        takeovers: Takeovers,
        routes: Routes,
        view: NetworkView,
    ) -> None:
        self._gossip = gossip
        self._provisional = provisional
        self._takeovers = takeovers
        self._routes = routes
        self._view = view  # of the network, as the last leader told it
        self._log = structlog.get_logger()

    async def run(self, table: Table) -> None:
        try:
            await self._gossip.run(table)
        finally:
            self._provisional.close()

    async def leave(self, table: Table, deadline_s: float) -> None:
        """The broker stops on purpose."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._gossip.leave(table)
        except TimeoutError:
            pass  # a stale entry costs some dialling

    def orphaned(self, told: bool) -> None:
        """No leader counts on this broker. If a leader said so itself (``told``), it is heard, and the broker
        rejoins.
        """
        self._log.warning("no leader counts on this broker", told=told)
        if not told:
            self._provisional.sever()
            self._gossip.sever()

    def adopted(self) -> None:
        self._log.info("a leader counts on this broker")
        self._gossip.restore()
        self._provisional.restore()

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    def problem(self) -> str | None:
        """The current problems, as text."""
        problem = self._gossip.problem()
        cut_off = self._provisional.cut_off
        return f"cut off from the store; {problem or 'a leader is heard'}" if cut_off else problem

    def statistics(self) -> dict[str, int]:
        return {
            **self._gossip.statistics(),
            "near_routes": self._routes.near,
            **self._provisional.statistics(),
            **self._takeovers.statistics(),
        }

    def found_at(self, broker: str) -> BrokerInfo | None:
        """Who serves the clients of a lost broker: the cluster's choice, while no leader is heard."""
        return self._gossip.stands_in_for(broker) or self._view.found_at(broker)
