"""Links between brokers that are cut while both ends are alive, over the machines of ``coordination``.

Brokers publish and are interested in a few topics. Links between them are cut, one way or both, some for a while and
some to the end; others are added to those; coordinators and brokers fail besides. What a link's shell does is done here
with the structures that ship (``core.passage``, ``core.distances``).
"""

from __future__ import annotations

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.participant import Participant
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.plan import Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.coordination import (
    BROKERS,
    PLACES,
    MakeCoordinator,
    MakeParticipant,
    add_coordinators,
    add_participants,
)
from tocsin.sim.scenarios.coordination.promises import OneHistory
from tocsin.sim.scenarios.coordination.standing import overlook_standings
from tocsin.sim.scenarios.links.brokers import Brokers
from tocsin.sim.scenarios.links.promises import Flows, InOrder, NobodyLost, Once, WaysAreWhole
from tocsin.sim.world import World

TROUBLE_US = 60 * MILLION
SETTLE_US = 30 * MILLION
BOUND_US = 20 * MILLION  # after the last change messages flow again, whatever has failed
PROBES_US = TROUBLE_US + BOUND_US  # what is published from here on must arrive
FAULTS = Profile(
    kinds=(("crash", 3), ("pause", 2), ("leader loss", 1), ("weather", 1), ("partition", 1)),
    most=5,
)


@scenario(
    "links",
    summary="links between live brokers are cut: messages go around, once each, and nobody is lost for it",
    faults=FAULTS,
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
    brokers = Brokers(world, BROKERS, TROUBLE_US, TROUBLE_US + SETTLE_US)
    overlook_standings(world)
    add_participants(world, participant)
    history = OneHistory(PLACES.commands.name, PLACES.commands_subject)
    return [
        history,
        NobodyLost(history),
        Once(brokers),
        InOrder(brokers),
        WaysAreWhole(brokers),
        Flows(brokers, PROBES_US),
        AllRunning(),
    ]
