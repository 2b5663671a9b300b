"""What is promised of recovery: everybody is served again within a bound, at home in the end; and memory is bounded."""

from __future__ import annotations

from typing import Final

from tocsin.core.machine import Say
from tocsin.model.message import Address
from tocsin.model.network import Role
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenarios.survival.broker import SurvivalBroker
from tocsin.sim.scenarios.survival.clients import Traveller
from tocsin.sim.scenarios.survival.ledger import Ledger
from tocsin.sim.world import World

# What one broker of this scenario may hold at a time. Clients are CLIENTS_MAX; every other bound follows from what one
# of them may have under way, and from the store's deadline.
CLIENTS_MAX: Final = 5
REQUESTS_MAX: Final = 120  # to the store, unanswered
TICKETS_MAX: Final = 20  # that wait for backups
ENDINGS_MAX: Final = 40  # connections whose last write is under way


class Recovers(Invariant):
    """So long after the faults end every client is connected, and served by an owner that the store knows."""

    name = "everybody is served again within the bound"

    def __init__(self, at_us: int) -> None:
        self._at_us = at_us

    def attach(self, world: World) -> None:
        world.at(self._at_us, lambda: self._look(world))

    def _look(self, world: World) -> None:
        for client in self.clients(world):
            if not client.broker:
                self.broken(f"{client.address} is not connected")

    def clients(self, world: World) -> list[Traveller]:
        machines = [world.machine(address) for address in world.addresses]
        return [each for each in machines if isinstance(each, Traveller) and not each.dead]


class NobodyIsOusted(Invariant):
    """A client that believes that another has its id ends for good. Nobody else has it here."""

    name = "no client is thrown out for a connection of its own"

    def attach(self, world: World) -> None:
        world.observers.on_say("ousted", self._look)

    def _look(self, client: Address, say: Say) -> None:
        self.broken(f"{client} was told that another connection came with its id, and gave up")


class AtHome(Recovers):
    """In the end every client is at home, every broker is a member under its own name, and nobody stands in."""

    name = "in the end everybody is at home, and nobody stands in for anybody"

    def __init__(self, homes: dict[str, str], ledger: Ledger) -> None:
        self._homes = homes  # client → broker
        self._ledger = ledger

    def attach(self, world: World) -> None:
        pass

    def finish(self, world: World) -> None:
        for client in self.clients(world):
            if client.broker != self._homes[client.address]:
                self.broken(f"{client.address} is at {client.broker or 'no broker'}")
        for broker in self._ledger.brokers():
            if broker.address != broker.node:
                self.broken(f"{broker.node} still stands in the place of {broker.address}")
            if broker.membership.state != "member" or broker.membership.orphaned:
                self.broken(f"{broker.node} is no member")
            if broker.stands_in:
                self.broken(f"{broker.node} still stands in for {sorted(broker.stands_in)}")
            if broker.info.role != Role.STANDBY and broker.membership.picture.places:
                self.broken(
                    f"{broker.node} believes that {sorted(broker.membership.picture.places)} are gone"
                )


class Bounded(Invariant):
    """What a broker holds has bounds: copies, queues, windows, requests."""

    name = "what a broker holds is bounded"

    def __init__(self, ledger: Ledger, until_us: int, every_us: int) -> None:
        self._ledger = ledger
        self._until_us = until_us
        self._every_us = every_us

    def attach(self, world: World) -> None:
        for at_us in range(self._every_us, self._until_us, self._every_us):
            world.at(at_us, self._look)

    def _look(self) -> None:
        for broker in self._ledger.brokers():
            for what, held, most in self._held(broker):
                if held > most:
                    self.broken(f"{broker.node} has {held} {what}, and {most} are the most")

    def _held(self, broker: SurvivalBroker) -> list[tuple[str, int, int]]:
        replicating = broker.replicating
        copies = replicating.backup.copies.values()
        recipients = replicating.primary.recipients.values()
        return [
            ("requests", len(broker._requests), REQUESTS_MAX),
            ("connections", len(broker.services), CLIENTS_MAX),
            ("endings", sum(map(len, broker._endings.values())), ENDINGS_MAX),
            ("clients in a copy", max((len(each.clients) for each in copies), default=0), CLIENTS_MAX),
            ("clients away", len(replicating.clientele.away), CLIENTS_MAX),
            ("wills", len(broker.bequeathing.wills), CLIENTS_MAX),
            ("tickets", len(replicating.waiting), TICKETS_MAX),
            ("dirty clients", max((each.behind for each in recipients), default=0), 2 * CLIENTS_MAX),
        ]
