"""Backup plans and takeovers as brokers' processes see them, and the promises about them.

Plans are made by chance, some time after the leader wants one, as a process that plans would answer.
"""

from __future__ import annotations

from functools import partial

from tocsin.core.coordination.leader.backup_planning import PlanMade, WantPlan
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import (
    BackupsKnown,
    Deposed,
    DestinationsChanged,
    Promoted,
    StandDown,
    StandIn,
    StandInsChanged,
)
from tocsin.core.coordination.state.backups import Backups
from tocsin.model.network import Address, BrokerInfo, broker_address
from tocsin.ports import Entry
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.coordination.promises import OneHistory
from tocsin.sim.world import World
from tocsin.wire.internal.notices import Moved, decode_notice

PLANNING_MAX_US = 2_000_000


def overlook_standings(world: World) -> None:
    """For scenarios about other things: nothing is planned, and nobody stands in."""
    for kind in (
        WantPlan,
        BackupsKnown,
        StandIn,
        StandDown,
        Promoted,
        Deposed,
        DestinationsChanged,
        StandInsChanged,
    ):
        world.own(kind, lambda address, effect: None)


class Standings(Invariant):
    """A place is held by one broker in each epoch; in the end everybody knows who backs and stands in for whom."""

    name = "one stands in for another, and all know who"

    def __init__(self, world: World, history: OneHistory, brokers: tuple[BrokerInfo, ...]) -> None:
        self._world = world
        self._history = history
        self._addresses = {broker_address(info.id): info.id for info in brokers}
        self._chance = world.chances.of("plans")
        self._known: dict[Address, BackupsKnown] = {}
        self._stands_in: dict[Address, dict[str, int]] = {}  # broker → whom it stands in for, and the epoch
        self._holders: dict[tuple[str, int], Address] = {}  # place and epoch → who held it
        world.observers.on_happening(self._on_happening)
        world.own(WantPlan, self._plan)
        world.own(BackupsKnown, self._know)
        world.own(StandIn, self._stand_in)
        world.own(StandDown, self._stand_down)
        world.own(Promoted, lambda address, effect: None)
        world.own(Deposed, lambda address, effect: None)
        world.own(DestinationsChanged, lambda address, effect: None)
        world.own(StandInsChanged, lambda address, effect: None)

    def attach(self, world: World) -> None:
        world.observers.on_entry(self._history.log, self._look)

    def _look(self, entry: Entry) -> None:
        """A notice says the same of lost brokers' places as its batch means."""
        if entry.subject == self._history.subject:
            return
        places = self._history.model.vacancies
        for item in decode_notice(entry.payload).items:
            if isinstance(item, Moved):
                said = (item.gone, item.to and item.to.id)
                if said != (item.broker in places, places.get(item.broker)):
                    self.broken(f"the notice at {entry.position} says {said} of {item.broker}: {places}")

    def _on_happening(self, address: Address, happening: str) -> None:
        if happening == "started":
            self._known.pop(address, None)
            self._stands_in.pop(address, None)

    def _plan(self, address: Address, effect: WantPlan) -> None:
        made = {}
        for broker in effect.brokers:
            near = [None, *(e.id for e in effect.brokers if e.cluster == broker.cluster and e != broker)]
            far = [None, *(e.id for e in effect.brokers if e.cluster != broker.cluster)]
            made[broker.id] = Backups(self._chance.one_of(near), self._chance.one_of(far))
        at_us = self._world.now_us + self._chance.below(PLANNING_MAX_US)
        self._world.at(at_us, partial(self._made, address, PlanMade(backups=made, cause=effect.cause)))

    def _made(self, address: Address, event: PlanMade) -> None:
        self._world.post(address, event)

    def _know(self, address: Address, effect: BackupsKnown) -> None:
        self._known[address] = effect

    def _stand_in(self, address: Address, effect: StandIn) -> None:
        holder = self._holders.setdefault((effect.broker, effect.epoch), address)
        if holder != address:
            self.broken(f"{holder} and {address} stand in for {effect.broker} in epoch {effect.epoch}")
        self._stands_in.setdefault(address, {})[effect.broker] = effect.epoch

    def _stand_down(self, address: Address, effect: StandDown) -> None:
        if self._stands_in.get(address, {}).pop(effect.broker, None) is None:
            self.broken(f"{address} stands down for {effect.broker}, for which it did not stand in")

    def finish(self, world: World) -> None:
        model = self._history.model
        for address, name in self._addresses.items():
            participant = world.machine(address)
            assert isinstance(participant, Participant)
            seen = {
                broker: moved.to and moved.to.id for broker, moved in participant.picture.vacancies.items()
            }
            if seen != model.vacancies:
                self.broken(f"{address} knows of places {seen}, and the log says {model.vacancies}")
            held = {broker for broker, by in model.vacancies.items() if by == name}
            if set(self._stands_in.get(address, ())) != held:
                self.broken(f"{address} stands in for {self._stands_in.get(address)}, and should for {held}")
            self._look_at_backups(address, name)

    def _look_at_backups(self, address: Address, name: str) -> None:
        model, known = self._history.model, self._known.get(address)
        wanted = [each if each in model.brokers else None for each in model.plan.get(name, (None, None))]
        have = [None, None] if known is None else [each and each.id for each in (known.local, known.remote)]
        if have != wanted:
            self.broken(f"{address} has the backups {have}, and should have {wanted}")
        for role, said in enumerate(((), ()) if known is None else (known.locally, known.remotely)):
            backed = sorted(broker for broker, plan in model.plan.items() if plan[role] == name)
            if list(said) != backed:
                self.broken(f"{address} backs {said}, and should {backed}")
