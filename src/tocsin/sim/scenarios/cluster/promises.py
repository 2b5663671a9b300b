"""The promises of a cluster that is cut off: one landmark, recovery inside, and nothing of it against the log."""

from __future__ import annotations

from itertools import permutations
from typing import Final, cast

from tocsin.broker.assembly import Broker
from tocsin.broker.survival.provisional import SETTLES
from tocsin.core.delivery.stored_session import decode_session
from tocsin.core.machine import PutKey, Say
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.kinds import Crash, CrashTogether, Fault, Partition, Sleep
from tocsin.sim.network import STORE
from tocsin.sim.node import Status
from tocsin.sim.process.broker import broker_at
from tocsin.sim.process.stage import SESSIONS
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.world import World

LOOK_US: Final = MILLION // 2

Sides = tuple[tuple[str, ...], ...]


class Standing(Invariant):
    """In a cluster that is cut off, and otherwise well, a broker that is gone is stood in for within ``bound_us``, by
    its backup alone; there is one landmark; and brokers have routes to each other for what clients want. In the end
    nothing of it is left."""

    name = "a cluster that is cut off recovers inside"

    def __init__(self, world: World, clusters: Sides, sides: Sides, bound_us: int) -> None:
        self._world = world
        self._clusters = clusters
        self._sides = sides  # each cluster with its clients
        self._bound_us = bound_us
        self._changed_us: dict[Address, int] = {}  # when a broker last came or went
        self._wanted: dict[str, set[str]] = {}  # what clients of a broker wanted when it was looked at last
        self.checked = 0  # moments at which somebody had to stand in
        self.wanted = 0  # how often somebody had to have routes

    def attach(self, world: World) -> None:
        world.observers.on_happening(self._on_happening)
        world.at(LOOK_US, self._look)

    def _on_happening(self, address: Address, happening: str) -> None:
        self._changed_us[address] = self._world.now_us

    def _look(self) -> None:
        if self._world.healed:
            return
        for cluster, side in zip(self._clusters, self._sides, strict=True):
            if self._is_cut_off(cluster, side):
                self._hold_to(cluster)
            self._wanted |= {each: wanted_at(alive) for each, alive in self._alive(cluster).items()}
        self._world.at(self._world.now_us + LOOK_US, self._look)

    def _is_cut_off(self, cluster: tuple[str, ...], side: tuple[str, ...]) -> bool:
        """Whether it has been for long enough, and nothing else is wrong with it than brokers that are gone."""
        now_us = self._world.now_us
        under_way = [each for each in self._world.plan if each.at_us <= now_us < each.at_us + each.for_us]
        cuts = [each for each in under_way if _cuts_off(each, side)]
        recent = [each for each in self._world.plan if each.at_us + each.for_us > now_us - self._bound_us]
        if not cuts or any(_disturbs(each, side) for each in recent if each.at_us <= now_us):
            return False
        since_us = max(
            [min(each.at_us for each in cuts), *(self._changed_us.get(each, 0) for each in cluster)]
        )
        return now_us - since_us >= self._bound_us

    def _hold_to(self, cluster: tuple[str, ...]) -> None:
        alive = self._alive(cluster)
        landmarks = {each: broker.parts.gossip.machine for each, broker in alive.items()}
        if any(not landmark.severed for landmark in landmarks.values()):
            return  # it has been heard since it started, or never was
        leading = [each for each, landmark in landmarks.items() if landmark.landmark == each]
        if len(leading) > 1:
            self.broken(f"{' and '.join(leading)} both take themselves for the landmark")
        for gone in (each for each in cluster if each not in alive):
            if any(gone in broker.member.picture.vacancies for broker in alive.values()):
                continue  # a leader had named the stand-in before the cut
            backups = sorted(each for each, broker in alive.items() if gone in broker.backs)
            found = [each for each, broker in alive.items() if gone in broker.parts.takeovers.brokers]
            self.checked += bool(backups)
            if found != backups[:1]:
                self.broken(f"{found} stand in for {gone}, and not {backups[:1]}")
        for one, other in permutations(alive, 2):
            self._hold_to_routes(one, other, alive)

    def _alive(self, cluster: tuple[str, ...]) -> dict[str, Broker]:
        return {
            each: broker
            for each in cluster
            if self._world.node(each).status is Status.RUNNING
            and (broker := broker_at(self._world, each)) is not None
        }

    def _hold_to_routes(self, one: str, other: str, alive: dict[str, Broker]) -> None:
        """Compare routes with wants. A change of wants since the last look may still be on its way."""
        before, now = self._wanted.get(other, set()), wanted_at(alive[other])
        routes = alive[one].parts.exchange.routes.near_to(other)
        self.wanted += bool(now)
        if not before & now <= routes <= before | now:
            self.broken(f"{one} sends {other} {sorted(routes)}, and clients there want {sorted(now)}")

    def finish(self, world: World) -> None:
        for name in (each for cluster in self._clusters for each in cluster):
            broker = broker_at(world, name)
            if broker is None:
                self.broken(f"{name} does not run")
            parts = broker.parts
            if parts.takeovers.brokers or parts.gossip.machine.landmark or parts.provisional.severed:
                self.broken(f"{name} is still on its own")
            if parts.exchange.routes.near:
                self.broken(f"{name} still has routes that no coordinator gave")


class OneOwner(Invariant):
    """Each epoch of a session is one broker's; and what was provisional is written only over what it knew."""

    name = "one owner per client and epoch"

    def __init__(self) -> None:
        self._holders: dict[str, tuple[int, str]] = {}  # client → the epoch of its session, and whose that is
        self._knew: dict[tuple[Address, str], int] = {}  # broker, client → the epoch that it settles over
        self.settled = 0

    def attach(self, world: World) -> None:
        world.observers.on_write(SESSIONS.name, self._written)
        world.observers.on_say(SETTLES, self._settles)

    def _settles(self, broker: Address, say: Say) -> None:
        self._knew[broker, str(say.facts["subscriber"])] = cast(int, say.facts["epoch"])

    def _written(self, broker: Address, put: PutKey, revision: int) -> None:
        session = decode_session(put.value)
        client, epoch, holder = session.client, session.epoch, session.broker
        before, holds = self._holders.get(client, (0, ""))
        if epoch not in (before, before + 1):
            self.broken(f"{broker} writes epoch {epoch} of {client} after {before}")
        if epoch == before and holder not in (holds, ""):
            self.broken(f"{broker} writes that {holder} has epoch {epoch} of {client}, which {holds} has")
        if epoch == before + 1 and holder not in (broker, ""):
            self.broken(f"{broker} takes {client} for {holder}")
        if epoch == before + 1 and not holder:
            self.settled += 1
            knew = self._knew.get((broker, client))
            if knew != before:
                self.broken(f"{broker} writes what it knew of epoch {knew} of {client} over epoch {before}")
        self._holders[client] = (epoch, holder if epoch != before else holds)


def wanted_at(broker: Broker) -> set[str]:
    """The filters that the clients of a broker want."""
    return set(broker.member.interests)


def _cuts_off(fault: Fault, side: tuple[str, ...]) -> bool:
    return (
        isinstance(fault, Partition)
        and set(fault.side) == set(side)
        and fault.others is None
        and fault.direction == "both"
        and STORE not in fault.side
    )


def _disturbs(fault: Fault, side: tuple[str, ...]) -> bool:
    """Whether a fault may keep brokers of the cluster from hearing each other, or from keeping time."""
    return not (isinstance(fault, Crash | CrashTogether | Sleep) or _cuts_off(fault, side))
