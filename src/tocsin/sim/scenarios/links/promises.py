"""The promises about cut links."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise, permutations
from typing import Final

from tocsin.broker.links.link import AHEAD_MAX_BYTES
from tocsin.config import Settings
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.state.state import State
from tocsin.core.links.backlog import STALE_US
from tocsin.core.machine import Say
from tocsin.core.tiers.slots import is_gate, slot_of
from tocsin.model.network import Address, Scope
from tocsin.ports import Entry
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.kinds import Crash, Pause
from tocsin.sim.process.broker import broker_at, coordinator_at
from tocsin.sim.process.stage import NAMES
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.links.traffic import (
    LARGE_BYTES,
    RATES,
    Cuts,
    Message,
    Station,
    Traffic,
    station_of,
)
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Lost, decode_batch

# The oldest over one narrow way: it has waited, and then was behind what a full link holds, at the lowest rate.
FRESH_US: Final = STALE_US + (AHEAD_MAX_BYTES + 2 * LARGE_BYTES) * MILLION // RATES[0] + 2 * MILLION
FLIGHT_US: Final = 6_500_000  # longer than a message waits, and travels
LOOK_US: Final = 100_000

Wanted = Mapping[str, Sequence[str]]  # broker → the topics that its station is subscribed to


class Rerouting(Invariant):
    """Notes when the routes of any broker changed last: then a message may take two ways."""

    name = "routes are looked at"

    def __init__(self, brokers: Sequence[str]) -> None:
        self.changed_us = 0  # up to LOOK_US too late
        self._brokers = brokers
        self._seen: dict[str, object] = {}  # broker → its peers, which are replaced when its routes change

    def attach(self, world: World) -> None:
        self._world = world
        world.at(LOOK_US, self._look_again)

    def _look_again(self) -> None:
        self.look()
        self._world.at(self._world.now_us + LOOK_US, self._look_again)

    def look(self) -> None:
        for name in self._brokers:
            broker = broker_at(self._world, name)
            peers = None if broker is None else broker.member.picture.peers
            if self._seen.get(name) is not peers:
                self._seen[name] = peers
                self.changed_us = self._world.now_us


class NobodyLost(Invariant):
    """No broker counts as lost because of links; only if it, or its way to the coordinators, has failed."""

    name = "nobody is lost for a link"

    def __init__(self, coordinators: Collection[Address]) -> None:
        self._coordinators = coordinators

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_entry(NAMES.commands.name, self._look)

    def _look(self, entry: Entry) -> None:
        if entry.subject != NAMES.commands_subject or not self._harmless():
            return
        for command in decode_batch(entry.payload).commands:
            if isinstance(command, Lost):
                self.broken(f"{command.broker} counts as lost at {entry.position}")

    def _harmless(self) -> bool:
        """Whether all that fails besides links is coordinators."""
        return all(
            isinstance(fault, Crash | Pause) and fault.node in self._coordinators
            for fault in self._world.plan
        )


class Once(Invariant):
    """A message comes once, to those who want it; while routes themselves change, it may come by two of them."""

    name = "no message comes twice"

    def __init__(self, traffic: Traffic, rerouting: Rerouting) -> None:
        self._rerouting = rerouting
        self._got: set[tuple[str, Message]] = set()
        traffic.on_got.append(self._look)

    def _look(self, broker: str, message: Message) -> None:
        if (broker, message) in self._got:
            self._rerouting.look()
            if self._rerouting.changed_us < message.at_us - FLIGHT_US:
                self.broken(f"{broker} got a message of {message.origin} at {message.at_us} twice")
        self._got.add((broker, message))


class InOrder(Invariant):
    """Messages of one broker on one topic come in order, unless routes themselves change."""

    name = "no message overtakes another"

    def __init__(self, traffic: Traffic, rerouting: Rerouting) -> None:
        self._rerouting = rerouting
        self._newest_us: dict[tuple[str, str, str], int] = {}
        traffic.on_got.append(self._look)

    def _look(self, broker: str, message: Message) -> None:
        key = (broker, message.origin, message.topic)
        newest_us = self._newest_us.get(key, 0)
        if message.at_us < newest_us:
            self._rerouting.look()
            if self._rerouting.changed_us < message.at_us - FLIGHT_US:
                self.broken(
                    f"{broker} got what {message.origin} published at {message.at_us} after {newest_us}"
                )
        self._newest_us[key] = max(newest_us, message.at_us)


class LinksStay(Invariant):
    """A link to a broker that lives is not given up because it is narrow."""

    name = "a narrow link stays"

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_say("link is down", self._look)

    def _look(self, broker: Address, say: Say) -> None:
        if say.facts.get("problem") == "the peer no longer answers":
            self.broken(f"{broker} gave up its link to {say.facts.get('peer')} at {self._world.now_us}")


class Fresh(Invariant):
    """What comes over a narrow way is not old."""

    name = "what arrives is fresh"

    def __init__(self, traffic: Traffic) -> None:
        traffic.on_got.append(self._look)

    def attach(self, world: World) -> None:
        self._world = world

    def _look(self, broker: str, message: Message) -> None:
        age_us = self._world.now_us - message.at_us
        if age_us > FRESH_US:
            self.broken(f"{broker} got a message of {message.origin} after {age_us / MILLION:.1f} s")


class WaysAreWhole(Invariant):
    """In the end the log has a detour for each link that is cut and needed, none for others, and each can be used."""

    name = "ways around lead somewhere"

    def __init__(self, settings: Settings, cuts: Cuts, wanted: Wanted) -> None:
        self._map = Map(settings, cuts, wanted)

    def finish(self, world: World) -> None:
        replicas = [each for node in world.addresses if (each := coordinator_at(world, node)) is not None]
        state = replicas[0].replica
        rows = state.detours.rows
        for replica in replicas:
            if replica.replica.detours.rows != rows:
                self.broken(f"{replica.name} has other detours than {replicas[0].name}")
        self._look_at_hubs(state)
        cut = self._map.cut
        for broker, around in rows.items():
            for peer, relays in around.items():
                legs = list(pairwise((broker, *relays, peer)))
                if (broker, peer) not in cut:
                    self.broken(f"{broker} goes around to {peer}, and could go straight")
                if relays and any(leg in cut for leg in legs):
                    self.broken(f"{broker} reaches {peer} by {relays}, which is cut")
                if not relays and self._map.could_cross(broker, peer):
                    self.broken(f"{broker} does not reach {peer}, and there is a way")
        for name in self._map.clusters:
            if dict(participant_at(world, name).picture.bypass.around) != rows.get(name, {}):
                self.broken(f"{name} knows other detours than the log")

    def _look_at_hubs(self, state: State) -> None:
        """A routing broker is left out if two brokers do not reach it, and none of those does that send over it.

        That another reaches it does not count, as one of its own cluster that sends to it alone, unless a way of those
        who send over it leads there. If nobody sends over it, as nothing is wanted there, either is right.
        """
        shunned = state.interest.plan.shunned
        for hub in self._map.hubs:
            without = sum(hub in around for around in state.detours.rows.values())
            users = self._map.users_of(hub, shunned)
            deaf = without >= 2 and not any(self._map.could_cross(each, hub) for each in users)
            if hub in shunned and not deaf:
                self.broken(f"{hub} is left out, and {without} do not reach it")
            if hub not in shunned and deaf and users:
                self.broken(f"{hub} is not left out, and {without} do not reach it")


class Flows(Invariant):
    """A message that is published once the network has settled reaches every broker that a path of three links leads
    to."""

    name = "messages flow again"

    def __init__(
        self, settings: Settings, traffic: Traffic, cuts: Cuts, wanted: Wanted, from_us: int
    ) -> None:
        self._map = Map(settings, cuts, wanted)
        self._traffic = traffic
        self._from_us = from_us
        self._got: set[tuple[str, Message]] = set()
        traffic.on_got.append(lambda broker, message: self._got.add((broker, message)))

    def finish(self, world: World) -> None:
        for broker in self._map.clusters:
            station = world.machine(station_of(broker))
            if not isinstance(station, Station) or not station.ready:
                self.broken(f"the client at {broker} is not subscribed")
        probes = [each for each in self._traffic.messages if each.at_us >= self._from_us]
        if not probes:
            self.broken("nobody published anything in the end")
        for message in probes:
            for broker in self._map.clusters:
                if message.topic in self._map.wanted[broker]:
                    self._expect(world, broker, message)

    def _expect(self, world: World, broker: str, message: Message) -> None:
        legs = self._legs(world, message, broker)
        if legs is None:
            self.broken(f"no route leads from {message.origin} to {broker} for {message.topic}")
        if all(self._map.could_cross(*leg) for leg in legs) and (broker, message) not in self._got:
            self.broken(f"{broker} never got what {message.origin} published at {message.at_us}")

    def _legs(self, world: World, message: Message, broker: str) -> list[tuple[str, str]] | None:
        """The links that routes name for a message to a broker; None: they name none."""
        origin, clusters = message.origin, self._map.clusters
        if broker == origin:
            return []
        hubs = _peers(world, origin, Scope.ORIGIN, message.topic)
        if broker in hubs:
            return [(origin, broker)]
        for hub in hubs:
            onward = clusters[broker] != clusters[origin]
            if onward and broker in _peers(world, hub, Scope.TRANSIT, message.topic):
                return [(origin, hub), (hub, broker)]
        return None


class Map:
    """Where brokers are, which links are cut, and what is wanted."""

    def __init__(self, settings: Settings, cuts: Cuts, wanted: Wanted) -> None:
        self.clusters = {each.id: each.cluster for each in settings.brokers}
        self.hubs = sorted(each.id for each in settings.brokers if each.role == "routing")
        self.cut = cuts.cut
        self.wanted = wanted

    def could_cross(self, one: str, other: str) -> bool:
        """Whether there is a way of at most three links."""
        rest = [each for each in self.clusters if each not in (one, other)]
        ways = ((one, *relays, other) for size in (0, 1, 2) for relays in permutations(rest, size))
        return any(not any(leg in self.cut for leg in pairwise(way)) for way in ways)

    def users_of(self, hub: str, shunned: Collection[str]) -> list[str]:
        """Those that send over a hub into other clusters, or would if it were not left out."""
        hubs = sorted({*self.hubs} - {*shunned} | {hub})
        found = []
        for broker, here in self.clusters.items():
            for wanting in (each for each in self.clusters if self.wanted[each]):
                there = self.clusters[wanting]
                serving = next((each for each in hubs if self.clusters[each] == there), hubs[0])
                if broker != hub and there != here and serving == hub:
                    found.append(broker)
        return found


def participant_at(world: World, name: str) -> Participant:
    broker = broker_at(world, name)
    assert broker is not None, f"{name} does not run"
    return broker.member


def _peers(world: World, name: str, scope: Scope, topic: str) -> list[str]:
    picture = participant_at(world, name).picture
    named = {each.peer for each in picture.routes if each.scope is scope and each.filter == topic}
    slot = slot_of(topic)
    return sorted({picture.tiers[each].carriers[slot] if is_gate(each) else each for each in named})
