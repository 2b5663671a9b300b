"""The machines of ``coordination``, quick to suspect: brokers pause, beats and links are lost, observers are slow.

Suspicion may be wrong. Its consequences never are: one history, agreement in the end, no broker lost without a
reason, and a broker that counts as lost knows it soon. As there, the subject is the machines of coordinators and
participants alone.
"""

from __future__ import annotations

import msgspec

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.coordination.participant.participant import Participant
from tocsin.model.network import BrokerInfo, broker_address
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios import coordination
from tocsin.sim.scenarios.coordination import (
    BROKERS,
    COORDINATORS,
    PLACES,
    add_coordinators,
    add_participants,
)
from tocsin.sim.scenarios.coordination.clients import Clients
from tocsin.sim.scenarios.coordination.promises import Agreement, OneHistory, SettledIsKept, TakesTurns
from tocsin.sim.scenarios.coordination.shells import Shells
from tocsin.sim.scenarios.coordination.standing import overlook_standings
from tocsin.sim.scenarios.detection.links import PlayedLinks
from tocsin.sim.scenarios.detection.promises import Knows, Reasons
from tocsin.sim.world import World

HEARTBEAT_US = MILLION // 4
MOST_US = 5 * MILLION
OPTIONS = msgspec.structs.replace(
    coordination.OPTIONS,
    suspect_after_us=MOST_US,
    suspect_least_us=MILLION // 2,
    heartbeat_us=HEARTBEAT_US,
    phi=4.0,
)  # as ``membership.detect = "aggressive"`` has it
ACTIONS = 40
TROUBLE_US = 25 * MILLION
SETTLE_US = 30 * MILLION
FAULTS = Profile(
    kinds=(
        ("pause", 6),
        ("weather", 4),
        ("sleep", 2),
        ("skew", 2),
        ("crash", 2),
        ("partition", 3),
        ("leader loss", 1),
        ("store trouble", 2),
    ),
    longest_us=12 * MILLION,  # more than twice the longest silence that is borne
)


def make_coordinator(name: str, places: StoreNames, _options: Options) -> Coordinator:
    return Coordinator(name, places, OPTIONS)


def make_participant(info: BrokerInfo, places: StoreNames, _heartbeat_us: int) -> Participant:
    return Participant(info, places, HEARTBEAT_US, MOST_US)


@scenario(
    "detection",
    summary="three coordinators, five brokers: pauses, lost beats, slow observers; suspicion and what follows",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(
    world: World,
    coordinator: coordination.MakeCoordinator = make_coordinator,
    participant: coordination.MakeParticipant = make_participant,
) -> list[Invariant]:
    """Fill a world; ``coordinator`` and ``participant`` are the machines to use, so that a variant can be tried."""
    add_coordinators(world, coordinator)
    shells = Shells(world, BROKERS)
    overlook_standings(world)
    add_participants(world, participant)
    PlayedLinks(world, [info.id for info in BROKERS], until_us=TROUBLE_US)
    clients = Clients(world, shells, ACTIONS, TROUBLE_US)
    addresses = [broker_address(info.id) for info in BROKERS]
    history = OneHistory(PLACES.commands.name, PLACES.commands_subject)
    return [
        history,
        SettledIsKept(shells, history),
        TakesTurns(world, shells),
        Agreement(shells, clients, history),
        Reasons(PLACES.commands.name, PLACES.commands_subject, MOST_US, addresses, COORDINATORS),
        Knows(PLACES.commands.name, PLACES.commands_subject, MOST_US + 4 * HEARTBEAT_US),
        AllRunning(),
    ]
