"""The promises of recovery: every client is served again within a bound, at home in the end; and memory is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.core.coordination.participant.participant import ParticipantState
from tocsin.core.delivery.stored_session import session_key
from tocsin.core.machine import Say
from tocsin.model.network import Address
from tocsin.sim.process.messages import Written
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.programs import Mortal, Program, Publisher, Resident
from tocsin.sim.scenarios.survival.promises.looking import Brokers
from tocsin.sim.world import World
from tocsin.wire.mqtt.topics import matches

# Bounds of one broker in this scenario. Clients are CLIENTS_MAX; every other bound follows from what one client may
# have under way, and from the store's deadline.
CLIENTS_MAX: Final = 11
BOUNDS: Final = {
    "requests to the store": 120,
    "tasks": 250,
    "connections": CLIENTS_MAX,
    "clients in a copy": CLIENTS_MAX,
    "clients away": CLIENTS_MAX,
    "wills": CLIENTS_MAX,
    "tickets": 20,
    "dirty clients": 2 * CLIENTS_MAX,
}
PER_CLIENT: Final = {"connections", "clients in a copy", "clients away", "wills", "dirty clients", "tickets"}


class Recovers(Invariant):
    """So long after the faults end every program is connected; and none ends by itself."""

    name = "everybody is served again within the bound"

    def __init__(self, programs: Sequence[Program], at_us: int) -> None:
        self._programs = [each for each in programs if not isinstance(each, Mortal)]
        self._at_us = at_us

    def attach(self, world: World) -> None:
        world.at(self._at_us, self._look)
        world.observers.on_happening(self._on_happening)

    def _on_happening(self, node: Address, happening: str) -> None:
        if happening == "stopped" and any(each.name == node for each in self._programs):
            self.broken(f"{node} has ended by itself")

    def _look(self) -> None:
        for each in self._programs:
            if not each.at:
                self.broken(f"{each.name} is not connected")


class NobodyIsOusted(Invariant):
    """A program that believes that another has its client's id ends for good. Nobody else has it here."""

    name = "no client is thrown out for a connection of its own"

    def attach(self, world: World) -> None:
        world.observers.on_say("ousted", self._look)

    def _look(self, client: Address, say: Say) -> None:
        self.broken(f"{client} was told that another connection came with its id, and gave up")


class InPlace(Invariant):
    """In the end every broker is a member under its own name and in its own role, and nobody stands in."""

    name = "in the end every broker is in its place, and nobody stands in for anybody"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def finish(self, world: World) -> None:
        running = self._brokers.running()
        if len(running) < len(self._brokers.nodes):
            self.broken(f"of the brokers only {[each.node for each in running]} run")
        for broker in running:
            if broker.name != broker.node:
                self.broken(f"{broker.node} still stands in the place of {broker.name}")
            if broker.broker.info.recruited:
                self.broken(f"{broker.node} is still recruited")
            if broker.member.state is not ParticipantState.MEMBER or broker.member.orphaned:
                self.broken(f"{broker.node} is no member")
            if broker.stands_in_for:
                self.broken(f"{broker.node} still stands in for {sorted(broker.stands_in_for)}")
            if broker.member.picture.vacancies:
                self.broken(f"{broker.node} believes that {sorted(broker.member.picture.vacancies)} are gone")


class AtHome(InPlace):
    """In the end every program is at home as well."""

    name = "in the end everybody is at home, and nobody stands in for anybody"

    def __init__(self, programs: Sequence[Program], brokers: Brokers) -> None:
        super().__init__(brokers)
        self._programs = [each for each in programs if not isinstance(each, Mortal)]

    def finish(self, world: World) -> None:
        super().finish(world)
        for each in self._programs:
            if each.at != each.home:
                self.broken(f"{each.name} is at {each.at or 'no broker'}, and at home at {each.home}")


class Settled(Invariant):
    """In the end everything is published, and nothing of a session is left to do, at either side.

    A client that changed its subscriptions at two brokers that were cut off keeps those of one (decision 032). It may
    get messages of a topic that it gave up at the other, and acknowledges what it did not ask for only much later.
    """

    name = "everything is settled in the end"

    def __init__(self, programs: Sequence[Program], brokers: Brokers, written: Written) -> None:
        self._programs = programs
        self._brokers = brokers
        self._written = written

    def finish(self, world: World) -> None:
        for each in self._programs:
            if isinstance(each, Publisher) and not each.done:
                self.broken(f"{each.name} waits for an answer")
            if not isinstance(each, Mortal) and each.expiry_s:
                self._look(each)

    def _look(self, program: Program) -> None:
        client = program.name
        session = self._brokers.session(client)
        if session is None:
            self.broken(f"{client} has no session: {session_key(client)}")
        given_up = program.given_up if isinstance(program, Resident) else ()
        unwanted = {
            position
            for position, _, topic, _ in self._written.entries
            if any(matches(each, topic) for each in given_up)
        }
        for progress in (session.progress, session.critical_messages):
            if progress is not None and (set(progress.unsettled) - unwanted or progress.releasing):
                self.broken(f"deliveries to {client} are not settled: {progress}")
        if session.inbound:
            self.broken(f"messages of {client} are not released: {session.inbound}")
        if program.unreleased:
            self.broken(f"{client} waits for the release of {program.unreleased}")


class Bounded(Invariant):
    """Everything that a broker holds has a bound: connections, copies, tickets, tasks, requests."""

    name = "what a broker holds is bounded"

    def __init__(self, brokers: Brokers, until_us: int, every_us: int, more: int = 0) -> None:
        """``more`` clients than in ``survival``."""
        self._brokers = brokers
        self._until_us = until_us
        self._every_us = every_us
        self._bounds = {what: most + (2 * more if what in PER_CLIENT else 0) for what, most in BOUNDS.items()}

    def attach(self, world: World) -> None:
        for at_us in range(self._every_us, self._until_us, self._every_us):
            world.at(at_us, self._look)

    def _look(self) -> None:
        for broker in self._brokers.running():
            for what, held in broker.held().items():
                if held > (most := self._bounds[what]):
                    self.broken(f"{broker.node} has {held} {what}, and {most} are the most")
