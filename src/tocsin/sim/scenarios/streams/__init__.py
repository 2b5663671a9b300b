"""Publishers with their gates, and subscribers that ask queries, over the machines of ``coordination``.

What a broker does with messages is done here with the structures that ship (``core.gate``, ``core.forwarding``,
``core.listing``) and as little as possible around them: links that lose nothing, and a message log that every broker
follows at its own pace. Subscribers listen to the set of a query and to its messages; some of them are slow now and
then, and read the log later.
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.participant import Participant
from tocsin.core.gate import Gate
from tocsin.core.listing import Listing
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.plan import Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.coordination import (
    BROKERS,
    MakeCoordinator,
    MakeParticipant,
    add_coordinators,
    add_participants,
)
from tocsin.sim.scenarios.coordination.standing import overlook_standings
from tocsin.sim.scenarios.streams.brokers import Brokers, Go
from tocsin.sim.scenarios.streams.clients import Clients
from tocsin.sim.scenarios.streams.promises import Complete, InTurn, NothingWaits
from tocsin.sim.world import World

ACTIONS = 200
TROUBLE_US = 20 * MILLION
SETTLE_US = 20 * MILLION


@scenario(
    "streams",
    summary="publishers and queries over five brokers: joined, messages, left, in this order",
    faults=Profile(most=8),
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(
    world: World,
    participant: MakeParticipant = Participant,
    gate: Callable[[int, Callable[[], int]], Gate[Go]] = Gate,
    listing: Callable[[], Listing] = Listing,
    coordinator: MakeCoordinator = Coordinator,
) -> list[Invariant]:
    """Fill a world; the others are what to use, so that a variant can be tried."""
    add_coordinators(world, coordinator)
    brokers = Brokers(world, BROKERS, gate, listing)
    overlook_standings(world)
    add_participants(world, participant)
    clients = Clients(world, brokers, ACTIONS, TROUBLE_US)
    return [InTurn(brokers), Complete(brokers, clients), NothingWaits(brokers), AllRunning()]
