"""Who backs whom: in half of the runs as ``core.assignment`` plans it, in the others by chance.

The planner that ships puts backups where clients' subscriptions are alike; chance tries what it would not choose.
Either way a plan comes some time after the leader wants it, and is of what brokers held when it was wanted.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tocsin.core.assignment.demand import Demand, Member, unsaid_capacities
from tocsin.core.assignment.outcome import Backups as Chosen
from tocsin.core.assignment.outcome import Plan
from tocsin.core.coordination.planning import PlanMade, WantPlan
from tocsin.core.coordination.survival import Backups
from tocsin.model.message import Address
from tocsin.model.network import BrokerInfo, Role
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.scenarios.survival.ledger import Ledger
from tocsin.sim.world import World

PLANNING_MAX_US: Final = MILLION
KEPT_ONE_IN: Final = 4  # of the backups that could stay, those that are moved by chance


class Planner:
    """See the module's text."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._chance: Chance = world.streams.stream("plans")
        self._searches = bool(self._chance.below(2))
        world.own(WantPlan, self._plan)

    def _plan(self, address: Address, effect: WantPlan) -> None:
        able = [each for each in effect.brokers if each.role != Role.STANDBY]
        made = self._searched(able, effect.previous) if self._searches else self._drawn(able, effect.previous)
        at_us = self._world.now_us + self._chance.below(PLANNING_MAX_US)
        event = PlanMade(backups=made, cause=effect.cause)
        self._world.at(at_us, lambda: self._post(address, event))

    def _post(self, address: Address, event: PlanMade) -> None:
        self._world.post(address, event)

    # ── by the planner that ships ───────────────────────────────────────────────────────────────────────────

    def _searched(self, able: list[BrokerInfo], previous: dict[str, Backups]) -> dict[str, Backups]:
        from tocsin.core.assignment.planning import plan  # with numpy, for which others need not wait
        from tocsin.core.assignment.replanning import replan

        holdings = {each.id: self._held(each.id) for each in able}
        room = unsaid_capacities({name: sum(held.values()) for name, held in holdings.items()})
        members = tuple(Member(each.id, each.cluster, room[each.id]) for each in able)
        demand = Demand(members, holdings)
        before = {
            each.id: Chosen(previous[each.id].local, previous[each.id].remote)
            for each in able
            if each.id in previous
        }
        made = replan(Plan("search", before, {}, {}, {}), demand).plan if before else plan(demand)
        return {name: Backups(each.local, each.remote) for name, each in made.backups.items()}

    def _held(self, broker: str) -> dict[str, int]:
        """What the broker's clients are subscribed to, and how many are."""
        held: Counter[str] = Counter()
        for process in self._ledger.processes(broker)[:1]:
            for client in process.replicating.clientele.clients():
                held.update(process.replicating.clientele.names(client))
        return dict(held)

    # ── by chance ───────────────────────────────────────────────────────────────────────────────────────────

    def _drawn(self, able: list[BrokerInfo], previous: dict[str, Backups]) -> dict[str, Backups]:
        """Most of what could stay does."""
        made = {}
        for each in able:
            before = previous.get(each.id, Backups())
            near = [one.id for one in able if one.cluster == each.cluster and one is not each]
            far = [one.id for one in able if one.cluster != each.cluster]
            made[each.id] = Backups(self._choose(before.local, near), self._choose(before.remote, far))
        return made

    def _choose(self, before: str | None, able: list[str]) -> str | None:
        if before in able and self._chance.below(KEPT_ONE_IN):
            return before
        return self._chance.one_of(able) if able else None
