"""What a cluster that is cut off promises: one landmark, recovery inside, and nothing of it against the log."""

from __future__ import annotations

from itertools import permutations

from tocsin.core.landmark import LandmarkKnown, MeanwhileIn, MeanwhileOut, NearRoutes, NeighboursWanted
from tocsin.core.machine import PutKey
from tocsin.core.stored_session import decode_session
from tocsin.model.message import Address, broker_address
from tocsin.model.network import Route
from tocsin.sim.chance import MILLION
from tocsin.sim.faults import Crash, CrashTogether, Fault, Partition, Sleep
from tocsin.sim.invariants import Invariant
from tocsin.sim.network import STORE
from tocsin.sim.node import Status
from tocsin.sim.scenarios.cluster.broker import SESSIONS, SETTLE, ClusterBroker, Served
from tocsin.sim.world import World

LOOK_US = MILLION // 2


class Standing(Invariant):
    """In a cluster that is cut off, and otherwise well, a broker that is gone is stood in for within ``bound_us``, by
    its backup alone; there is one landmark; and brokers have routes to each other for what clients want. In the end
    nothing of it is left."""

    name = "a cluster that is cut off recovers inside"

    def __init__(
        self, world: World, clusters: tuple[tuple[str, ...], ...], backups: dict[str, str], bound_us: int
    ) -> None:
        self._world = world
        self._clusters = clusters
        self._backups = backups
        self._bound_us = bound_us
        self._changed_us: dict[Address, int] = {}  # when a broker last came or went
        self.checked = 0  # moments at which somebody had to stand in
        self.standing_in: dict[Address, set[str]] = {}
        self.routes: dict[Address, set[Route]] = {}
        self._wanted: dict[str, set[str]] = {}  # what clients of a broker wanted when it was looked at last
        self.wanted = 0  # how often somebody had to have routes
        world.observers.on_life(self._life)
        world.own(MeanwhileIn, lambda address, effect: self._stands(address).add(effect.broker))
        world.own(MeanwhileOut, lambda address, effect: self._stands(address).remove(effect.broker))
        world.own(NearRoutes, self._change_routes)
        world.own(NeighboursWanted, lambda address, effect: None)
        world.own(LandmarkKnown, lambda address, effect: None)

    def attach(self, world: World) -> None:
        world.at(LOOK_US, self._look)

    def _stands(self, address: Address) -> set[str]:
        return self.standing_in.setdefault(address, set())

    def _change_routes(self, address: Address, effect: NearRoutes) -> None:
        routes = self.routes.setdefault(address, set())
        if routes & set(effect.added) or not set(effect.removed) <= routes:
            self.broken(f"{address} adds routes that it has, or removes others")
        self.routes[address] = (routes | set(effect.added)) - set(effect.removed)

    def _life(self, address: Address, happening: str) -> None:
        self._changed_us[address] = self._world.now_us
        if happening == "started":
            self.standing_in.pop(address, None)
            self.routes.pop(address, None)

    def _look(self) -> None:
        if not self._world.healed:
            for cluster in self._clusters:
                self._look_at(cluster)
                self._wanted |= {each: set(alive.interests) for each, alive in self._alive(cluster).items()}
            self._world.at(self._world.now_us + LOOK_US, self._look)

    def _look_at(self, cluster: tuple[str, ...]) -> None:
        now_us, addresses = self._world.now_us, tuple(map(broker_address, cluster))
        under_way = [each for each in self._world.plan if each.at_us <= now_us < each.at_us + each.for_us]
        cuts = [each for each in under_way if _cuts_off(each, addresses)]
        recent = [each for each in self._world.plan if each.at_us + each.for_us > now_us - self._bound_us]
        if not cuts or any(_disturbs(each, addresses) for each in recent if each.at_us <= now_us):
            return
        since_us = max(
            [min(each.at_us for each in cuts), *(self._changed_us.get(each, 0) for each in addresses)]
        )
        if now_us - since_us < self._bound_us:
            return
        self._hold_to(cluster)

    def _hold_to(self, cluster: tuple[str, ...]) -> None:
        alive = self._alive(cluster)
        if any(not machine.landmark.severed for machine in alive.values()):
            return  # it has been heard since it started, or never was
        leading = [each for each, machine in alive.items() if machine.landmark.landmark == each]
        if len(leading) > 1:
            self.broken(f"{' and '.join(leading)} both take themselves for the landmark")
        for gone in (each for each in cluster if each not in alive):
            expected = [self._backups[gone]] if self._backups[gone] in alive else []
            found = [each for each in alive if gone in self._stands(broker_address(each))]
            self.checked += 1
            if found != expected:
                self.broken(f"{found} stand in for {gone}, and not {expected}")
        for one, other in permutations(alive, 2):
            self._hold_to_routes(one, other, set(alive[other].interests))

    def _alive(self, cluster: tuple[str, ...]) -> dict[str, ClusterBroker]:
        return {
            each: machine
            for each in cluster
            if self._world.node(broker_address(each)).status is Status.RUNNING
            and isinstance(machine := self._world.machine(broker_address(each)), ClusterBroker)
        }

    def _hold_to_routes(self, one: str, other: str, wanted: set[str]) -> None:
        """What came to be wanted since the last look may still be on its way; here nobody wants less than before."""
        routes = {each.filter for each in self.routes.get(broker_address(one), ()) if each.peer == other}
        self.wanted += bool(wanted)
        if not self._wanted.get(other, set()) <= routes <= wanted:
            self.broken(f"{one} sends {other} {sorted(routes)}, and clients there want {sorted(wanted)}")

    def finish(self, world: World) -> None:
        for address in map(broker_address, (each for cluster in self._clusters for each in cluster)):
            machine = world.machine(address)
            if not isinstance(machine, ClusterBroker):
                continue
            if self._stands(address) or machine.landmark.landmark or machine.records:
                self.broken(f"{address} is still on its own")
            if self.routes.get(address):
                self.broken(f"{address} still has routes that no coordinator gave")


class OneOwner(Invariant):
    """Each epoch of a session is one broker's; and what was provisional is written only over what it knew."""

    name = "one owner per client and epoch"

    def __init__(self, world: World) -> None:
        self._world = world
        self._writers: dict[tuple[str, int], tuple[Address, bytes]] = {}
        self._epochs: dict[str, int] = {}
        self.settled = 0
        self.provisional = 0
        world.own(Served, self._served)

    def attach(self, world: World) -> None:
        world.observers.on_write(SESSIONS, self._written)

    def _served(self, address: Address, effect: Served) -> None:
        self.provisional += not effect.epoch

    def _written(self, address: Address, put: PutKey, revision: int) -> None:
        session = decode_session(put.value)
        before = self._epochs.get(session.client, 0)
        if session.epoch != before + 1:
            self.broken(f"{address} writes epoch {session.epoch} of {session.client} after {before}")
        self._epochs[session.client] = session.epoch
        if put.cause == SETTLE:
            machine = self._world.machine(address)
            self.settled += 1
            if isinstance(machine, ClusterBroker) and machine.basis.get(session.client) != before:
                self.broken(
                    f"{address} writes what it knew of epoch {machine.basis.get(session.client)} of "
                    f"{session.client} over epoch {before}"
                )


def _cuts_off(fault: Fault, addresses: tuple[Address, ...]) -> bool:
    return (
        isinstance(fault, Partition)
        and set(fault.side) == set(addresses)
        and fault.others is None
        and fault.direction == "both"
        and STORE not in fault.side
    )


def _disturbs(fault: Fault, addresses: tuple[Address, ...]) -> bool:
    """Whether a fault may keep brokers of the cluster from hearing each other, or from keeping time."""
    looked_at = isinstance(fault, Crash | CrashTogether | Sleep) or _cuts_off(fault, addresses)
    return not looked_at
