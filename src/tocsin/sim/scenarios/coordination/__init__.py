"""Three coordinators and five brokers in two clusters: one log of commands, whatever fails.

The machines are those that ship. Clients subscribe, ask queries, publish streams whose metadata change, come, go
and move; backups are planned, and stand in for brokers that are lost. Leaders are killed, frozen past their leases and
cut off; replicas fall behind snapshots; brokers restart; the bus loses, repeats and reorders.

The subject is these machines alone: coordinators, and the participants that speak to them. ``shells`` plays the rest
of a broker. So a run costs a fifth of one with whole brokers, and many thousands can be run: that is how seed 10 957
was found. Whole brokers with their streams, links and clusters have scenarios of their own (``streams``, ``links``,
``cluster``, ``survival``).
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.coordination.participant.participant import Participant
from tocsin.model.network import COORDINATOR, BrokerInfo, Entrance, Role, Scheme, broker_address
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.coordination.clients import KEEP_S, Clients
from tocsin.sim.scenarios.coordination.promises import (
    Agreement,
    MessagesArrive,
    OneHistory,
    SettledIsKept,
    TakesTurns,
)
from tocsin.sim.scenarios.coordination.shells import Shells
from tocsin.sim.scenarios.coordination.standing import Standings
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Limits

PLACES = StoreNames("net")
COORDINATORS = ("coordinator/1", "coordinator/2", "coordinator/3")
BROKERS = tuple(
    BrokerInfo(
        f"{cluster}-{name}", cluster, role, "127.0.0.1", 1, (Entrance(Scheme.MQTT, f"{cluster}:{name}"),)
    )
    for cluster, name, role in (
        ("north", "1", Role.EDGE),
        ("north", "2", Role.EDGE),
        ("north", "hub", Role.ROUTING),
        ("south", "1", Role.EDGE),
        ("south", "hub", Role.ROUTING),
    )
)
HEARTBEAT_US = MILLION
OPTIONS = Options(
    suspect_after_us=5 * MILLION,
    lease_us=2 * MILLION,
    snapshot_every=25,  # so that a run sees several
    margin=20,  # so that a broker that is a little behind misses something
    slice_size=3,  # so that much happens while somebody restores
    limits=Limits(keep_s=KEEP_S),
)
ACTIONS = 150
TROUBLE_US = 25 * MILLION
SETTLE_US = 25 * MILLION


MakeCoordinator = Callable[[str, StoreNames, Options], Coordinator]
MakeParticipant = Callable[[BrokerInfo, StoreNames, int], Participant]


def add_coordinators(
    world: World,
    coordinator: MakeCoordinator,
    addresses: tuple[str, ...] = COORDINATORS,
    options: Options = OPTIONS,
) -> None:
    """With their logs and their table."""
    world.log(PLACES.commands)
    world.log(PLACES.snapshots)
    world.table(PLACES.table)
    for address in addresses:
        name = address.replace("/", "-")
        world.add(address, lambda _disk, name=name: coordinator(name, PLACES, options))  # type: ignore[misc]
    world.group(COORDINATOR, addresses)


def add_participants(world: World, participant: MakeParticipant) -> None:
    """Those of the brokers."""
    for info in BROKERS:
        world.add(
            broker_address(info.id),
            lambda _disk, info=info: participant(info, PLACES, HEARTBEAT_US),  # type: ignore[misc]
        )


@scenario(
    "coordination",
    summary="three coordinators, five brokers: streams, queries and routes from one log",
    faults=Profile(most=16),
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(
    world: World,
    coordinator: MakeCoordinator = Coordinator,
    participant: MakeParticipant = Participant,
) -> list[Invariant]:
    """Fill a world; ``coordinator`` and ``participant`` are the machines to use, so that a variant can be tried."""
    add_coordinators(world, coordinator)
    shells = Shells(world, BROKERS)
    add_participants(world, participant)
    clients = Clients(world, shells, ACTIONS, TROUBLE_US)
    history = OneHistory(PLACES.commands.name, PLACES.commands_subject)
    return [
        history,
        SettledIsKept(shells, history),
        TakesTurns(world, shells),
        Standings(world, history, BROKERS),
        Agreement(shells, clients, history),
        MessagesArrive(shells, clients, history),
        AllRunning(),
    ]
