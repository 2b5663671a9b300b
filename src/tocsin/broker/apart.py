"""A broker that no leader hears: its cluster's landmark, who stands in meanwhile, and clients without their sessions.

The parts are ``broker.neighbourhood``, ``broker.standing_in`` and ``broker.provisional``; this puts them together, and
is what the rest of the broker knows of them.
"""

from __future__ import annotations

import asyncio

import structlog

from tocsin.broker.exchange import Exchange
from tocsin.broker.links import Link
from tocsin.broker.listener import Listener
from tocsin.broker.neighbourhood import Neighbourhood
from tocsin.core.coordination.participant import Participant
from tocsin.model.network import BrokerInfo, Route
from tocsin.ports import Table


class Apart:
    """See the module's text."""

    def __init__(self, own: BrokerInfo, exchange: Exchange, member: Participant) -> None:
        self._exchange = exchange
        self._member = member
        self._near = Neighbourhood(own, self, lambda: member.interests, lambda: member.picture.places.keys())
        exchange.near = self._near.hear
        exchange.apart = self.statistics
        self._log = structlog.get_logger()

    def open(self, listener: Listener) -> None:
        """The parts are there."""
        durability = self._exchange.durability
        durability.replicating.detour = self._near.detour
        durability.provisional.ask_anew = listener.ask_anew
        durability.provisional.hurry = listener.hurry

    async def run(self, table: Table) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._near.run(table))
            group.create_task(self._exchange.durability.provisional.run())

    async def leave(self, table: Table, deadline_s: float) -> None:
        """The broker stops on purpose."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._near.leave(table)
        except TimeoutError:
            pass  # a stale entry costs some dialling

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    def problem(self) -> str | None:
        """What is not well, in words."""
        problem = self._near.problem()
        cut_off = self._exchange.durability.provisional.cut_off
        return f"cut off from the store; {problem or 'a leader is heard'}" if cut_off else problem

    def statistics(self) -> dict[str, int]:
        return {
            **self._near.statistics(),
            "near_routes": self._exchange.routes.near,
            **self._exchange.durability.provisional.statistics(),
            **self._exchange.durability.standing_in.statistics(),
        }

    def stands_in_for(self, broker: str) -> BrokerInfo | None:
        """Who takes the place of a broker that is gone: as the cluster says, while no leader is heard."""
        return self._near.stands_in_for(broker) or self._member.picture.stands_in_for(broker)

    # ── what is told ────────────────────────────────────────────────────────────────────────────────────────

    def orphaned(self, told: bool) -> None:
        """No leader counts on this broker. If one said so itself (``told``), it is heard, and the broker joins anew."""
        self._log.warning("no leader counts on this broker", told=told)
        if not told:
            self._exchange.durability.provisional.sever()
            self._near.sever()

    def adopted(self) -> None:
        self._log.info("a leader counts on this broker")
        self._near.restore()
        self._exchange.durability.provisional.restore()

    def backs(self, primaries: tuple[str, ...]) -> None:
        self._near.backs(primaries)

    def wants(self, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        self._near.wants(added, removed)

    # ── what the neighbourhood asks for ─────────────────────────────────────────────────────────────────────

    def link(self, broker: str) -> Link | None:
        return self._exchange.routes.link(broker)

    def want_links(self, peers: tuple[BrokerInfo, ...]) -> None:
        self._exchange.routes.want_links(peers)

    def change_near_routes(self, added: tuple[Route, ...], removed: tuple[Route, ...]) -> None:
        self._exchange.routes.change_near(added, removed)

    def stand_in_meanwhile(self, broker: str) -> None:
        self._exchange.durability.standing_in.stand_in(broker)

    def stand_down_meanwhile(self, broker: str) -> None:
        self._exchange.durability.standing_in.stand_down(broker, meanwhile=True)

    def met(self) -> None:
        self._exchange.durability.replicating.nudge()

    def hear_replication(self, payload: bytes) -> None:
        self._exchange.durability.replicating.hear(payload)
