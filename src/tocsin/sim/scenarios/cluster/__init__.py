"""Two clusters of brokers that are cut off as a whole, lose brokers meanwhile, and heal.

The machines are those that ship: participant, landmark, and the rules of provisional sessions. Clients come to any
broker at any time, subscribe and unsubscribe.
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.signals import InterestsChanged
from tocsin.model.message import broker_address
from tocsin.model.network import BrokerInfo
from tocsin.ports import TableSpec
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.plan import Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.cluster.broker import SESSIONS, ClusterBroker, Comes
from tocsin.sim.scenarios.cluster.promises import OneOwner, Standing
from tocsin.sim.scenarios.coordination import BROKERS, OPTIONS, PLACES, add_coordinators
from tocsin.sim.scenarios.coordination.shells import Shells
from tocsin.sim.scenarios.coordination.standing import overlook_standings
from tocsin.sim.world import World

CLUSTERS = tuple(
    tuple(each for each in BROKERS if each.cluster == cluster)
    for cluster in dict.fromkeys(each.cluster for each in BROKERS)
)
IDS = tuple(tuple(each.id for each in cluster) for cluster in CLUSTERS)
# Within its cluster each broker is backed by the next one.
BACKUPS = {each: ids[(at + 1) % len(ids)] for ids in IDS for at, each in enumerate(ids)}
HEARTBEAT_US = MILLION // 2
SUSPECT_AFTER_US = 4 * MILLION
# To notice that no leader is heard, and that a broker is gone: the longest silences that are borne, and a little.
BOUND_US = SUSPECT_AFTER_US + 5 * MILLION + 3 * MILLION
CLIENTS = 8
COMINGS = 120
NAMES = ("a", "b", "c")
TROUBLE_US = 60 * MILLION
SETTLE_US = 45 * MILLION
ADDRESSES = tuple(tuple(broker_address(each) for each in ids) for ids in IDS)
FAULTS = Profile(
    kinds=(("cut off together", 5), ("crash", 4), ("pause", 1), ("partition", 1), ("weather", 1)),
    most=6,
    longest_us=40 * MILLION,
    targets=tuple(address for addresses in ADDRESSES for address in addresses),
    groups=ADDRESSES,
)

Make = Callable[[BrokerInfo], ClusterBroker]


def make_broker(info: BrokerInfo, kind: type[ClusterBroker] = ClusterBroker) -> ClusterBroker:
    (cluster,) = (each for each in CLUSTERS if info in each)
    backs = tuple(each for each, backup in BACKUPS.items() if backup == info.id)
    return kind(info, PLACES, HEARTBEAT_US, SUSPECT_AFTER_US, cluster, backs, BACKUPS[info.id])


@scenario(
    "cluster",
    summary="two clusters, cut off as a whole while brokers die in them: landmarks and provisional sessions",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World, make: Make = make_broker) -> list[Invariant]:
    """Fill a world; ``make`` is the broker's machine to use, so that a variant can be tried."""
    add_coordinators(world, Coordinator, ("coordinator/1",), OPTIONS)
    world.table(TableSpec(SESSIONS))
    Shells(world, BROKERS)
    overlook_standings(world)
    for info in BROKERS:
        world.add(broker_address(info.id), lambda _disk, info=info: make(info))  # type: ignore[misc]
    _let_clients_come(world)
    return [Standing(world, IDS, BACKUPS, BOUND_US), OneOwner(world), AllRunning()]


def _let_clients_come(world: World) -> None:
    chance = world.streams.stream("clients")
    for number in range(COMINGS):
        at_us = chance.below(TROUBLE_US)
        client = chance.below(CLIENTS)
        near = CLUSTERS[client % len(CLUSTERS)]  # where it is most of the time
        address = broker_address(chance.one_of(near if chance.below(6) else BROKERS).id)
        cause = f"coming {number}"
        event = Comes(
            client=f"client {client}",
            name=chance.one_of(NAMES),
            wanted=bool(chance.below(2)),
            cause=cause,
        )
        wants = InterestsChanged(added=(event.name,) if event.wanted else (), cause=cause)
        world.at(at_us, lambda address=address, event=event, wants=wants: _come(world, address, event, wants))  # type: ignore[misc]


def _come(world: World, address: str, event: Comes, wants: InterestsChanged) -> None:
    world.post(address, event)
    world.post(address, wants)
