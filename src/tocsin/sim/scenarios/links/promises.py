"""What is promised of links that are cut."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise, permutations
from typing import Final

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.participant import Participant
from tocsin.core.coordination.state import State
from tocsin.model.message import broker_address
from tocsin.model.network import Role, Scope
from tocsin.ports import Entry
from tocsin.sim.faults import Crash, Pause
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenarios.coordination import COORDINATORS
from tocsin.sim.scenarios.coordination.promises import OneHistory
from tocsin.sim.scenarios.links.brokers import Brokers, Message
from tocsin.sim.world import World
from tocsin.wire.commands import Lost, decode_batch

FLIGHT_US: Final = 6_500_000  # longer than a message waits, and travels


class NobodyLost(Invariant):
    """No broker counts as lost because of links; only if it, or its way to the coordinators, has failed."""

    name = "nobody is lost for a link"

    def __init__(self, history: OneHistory) -> None:
        self._history = history

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_entry(self._history.log, self._look)

    def _look(self, entry: Entry) -> None:
        if entry.subject != self._history.subject or not self._harmless():
            return
        for command in decode_batch(entry.payload).commands:
            if isinstance(command, Lost):
                self.broken(f"{command.broker} counts as lost at {entry.position}")

    def _harmless(self) -> bool:
        """Whether all that fails besides links is coordinators."""
        return all(
            isinstance(fault, Crash | Pause) and fault.node in COORDINATORS for fault in self._world.plan
        )


class Once(Invariant):
    """A message comes once, to those who want it; while routes themselves change, it may come by two of them."""

    name = "no message comes twice"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._got: set[tuple[str, Message]] = set()
        brokers.on_got.append(self._look)

    def _look(self, broker: str, message: Message) -> None:
        changed = self._brokers.rerouted_us >= message.at_us - FLIGHT_US
        if (broker, message) in self._got and not changed:
            self.broken(f"{broker} got a message of {message.origin} at {message.at_us} twice")
        self._got.add((broker, message))


class InOrder(Invariant):
    """Messages of one broker on one topic come in order, unless routes themselves change."""

    name = "no message overtakes another"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._newest_us: dict[tuple[str, str, str], int] = {}
        brokers.on_got.append(self._look)

    def _look(self, broker: str, message: Message) -> None:
        key = (broker, message.origin, message.topic)
        newest_us = self._newest_us.get(key, 0)
        if message.at_us < newest_us and self._brokers.rerouted_us < message.at_us - FLIGHT_US:
            self.broken(f"{broker} got what {message.origin} published at {message.at_us} after {newest_us}")
        self._newest_us[key] = max(newest_us, message.at_us)


class WaysAreWhole(Invariant):
    """In the end the log has a detour for each link that is cut and needed, none for others, and each can be used."""

    name = "ways around lead somewhere"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def finish(self, world: World) -> None:
        replicas = [each for each in map(world.machine, world.addresses) if isinstance(each, Coordinator)]
        rows = replicas[0].replica.detours.rows
        for replica in replicas:
            if replica.replica.detours.rows != rows:
                self.broken(f"{replica.name} has other detours than {replicas[0].name}")
        self._look_at_hubs(replicas[0].replica)
        cut = self._brokers.cut
        for broker, around in rows.items():
            for peer, relays in around.items():
                legs = list(pairwise((broker, *relays, peer)))
                if (broker, peer) not in cut:
                    self.broken(f"{broker} goes around to {peer}, and could go straight")
                if relays and any(leg in cut for leg in legs):
                    self.broken(f"{broker} reaches {peer} by {relays}, which is cut")
                if not relays and could_cross(self._brokers, broker, peer):
                    self.broken(f"{broker} does not reach {peer}, and there is a way")
        for name in self._brokers.infos:
            participant = world.machine(broker_address(name))
            assert isinstance(participant, Participant)
            if dict(participant.picture.bypass.around) != rows.get(name, {}):
                self.broken(f"{name} knows other detours than the log")

    def _look_at_hubs(self, state: State) -> None:
        """A routing broker is left out if two brokers do not reach it, and none of those does that send over it.

        That another reaches it does not count, as one of its own cluster that sends to it alone, unless a way of those
        who send over it leads there. If nobody sends over it, as nothing is wanted there, either is right.
        """
        brokers, shunned = self._brokers, state.interest.plan.shunned
        for hub in (each for each, info in brokers.infos.items() if info.role is Role.ROUTING):
            without = sum(hub in around for around in state.detours.rows.values())
            users = users_of(brokers, hub, shunned)
            deaf = without >= 2 and not any(could_cross(brokers, each, hub) for each in users)
            if hub in shunned and not deaf:
                self.broken(f"{hub} is left out, and {without} do not reach it")
            if hub not in shunned and deaf and users:
                self.broken(f"{hub} is not left out, and {without} do not reach it")


class Flows(Invariant):
    """What is published when all had time to settle reaches everybody that a way of three links leads to."""

    name = "messages flow again"

    def __init__(self, brokers: Brokers, from_us: int) -> None:
        self._brokers = brokers
        self._from_us = from_us
        self._got: set[tuple[str, Message]] = set()
        brokers.on_got.append(lambda broker, message: self._got.add((broker, message)))

    def finish(self, world: World) -> None:
        brokers = self._brokers
        for message in brokers.messages:
            if message.at_us < self._from_us:
                continue
            origin = message.origin
            for hub in brokers.brokers[origin].peers(Scope.ORIGIN, message.topic):
                if not could_cross(brokers, origin, hub):
                    continue
                self._expect(hub, message)
                for last in brokers.brokers[hub].peers(Scope.TRANSIT, message.topic):
                    foreign = brokers.infos[last].cluster != brokers.infos[origin].cluster
                    if foreign and could_cross(brokers, hub, last):
                        self._expect(last, message)

    def _expect(self, broker: str, message: Message) -> None:
        if (broker, message) not in self._got:
            self.broken(f"{broker} never got what {message.origin} published at {message.at_us}")


def could_cross(brokers: Brokers, one: str, other: str) -> bool:
    """Whether there is a way of at most three links."""
    rest = [each for each in brokers.infos if each not in (one, other)]
    ways = ((one, *relays, other) for size in (0, 1, 2) for relays in permutations(rest, size))
    return any(not any(leg in brokers.cut for leg in pairwise(way)) for way in ways)


def users_of(brokers: Brokers, hub: str, shunned: Collection[str]) -> list[str]:
    """Those that send over a hub into other clusters, or would if it were not left out."""
    infos = brokers.infos
    routing = {each for each, info in infos.items() if info.role is Role.ROUTING}
    hubs = sorted(routing - {*shunned} | {hub})
    found = []
    for broker in infos:
        for wanting in (each for each in infos if brokers.wanted[each]):
            there = infos[wanting].cluster
            serving = next((each for each in hubs if infos[each].cluster == there), hubs[0])
            if broker != hub and there != infos[broker].cluster and serving == hub:
                found.append(broker)
    return found
