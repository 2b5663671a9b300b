"""Two clusters of whole brokers that are cut off as a whole, lose brokers during the cut, and heal.

Brokers, their links, their gossip and their provisional sessions are those that ship. Clients come to any broker at any
time, subscribe and unsubscribe; they are cut off with their cluster.
"""

from __future__ import annotations

from typing import Final

from tocsin.config import Settings
from tocsin.config.broker import Broker, Role
from tocsin.config.membership import Membership
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.process.stage import NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.cluster.guests import Guest, let_come
from tocsin.sim.scenarios.cluster.promises import OneOwner, Standing
from tocsin.sim.world import World

NORTH: Final = ("north-1", "north-2", "north-hub")
SOUTH: Final = ("south-1", "south-hub")
BROKERS: Final = (*NORTH, *SOUTH)
GUESTS: Final = {f"{cluster[0][0]}{number}": cluster for cluster in (NORTH, SOUTH) for number in range(4)}
# Each cluster with its clients, which are cut off together.
SIDES: Final = tuple(
    (*cluster, *(guest for guest, near in GUESTS.items() if near is cluster)) for cluster in (NORTH, SOUTH)
)


def _broker(name: str) -> Broker:
    role: Role = "routing" if name.endswith("hub") else "edge"
    return configured(name, name.partition("-")[0], role)


SETTINGS: Final = Settings(
    network=NETWORK,
    brokers=tuple(map(_broker, BROKERS)),
    membership=Membership(heartbeat_ms=1_000, suspect_after_ms=4_000),
)
# To notice that no leader is heard, and that a broker is gone: the longest silences that are borne, and a little.
BOUND_US: Final = 4 * MILLION + 5 * MILLION + 3 * MILLION
TROUBLE_US: Final = 45 * MILLION
SETTLE_US: Final = 32 * MILLION
FAULTS: Final = Profile(
    kinds=(("cut off together", 5), ("crash", 4), ("pause", 1), ("partition", 1), ("weather", 1)),
    most=6,
    longest_us=40 * MILLION,
    targets=BROKERS,
    groups=SIDES,
)


@scenario(
    "cluster",
    summary="whole clusters, cut off while brokers die in them: landmarks and provisional sessions",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World) -> list[Invariant]:
    stage = Stage(world, SETTINGS)
    stage.add_coordinators("coordinator-1")
    stage.add_brokers()
    for name in GUESTS:
        world.add(name, lambda _disk, name=name: Guest(name))  # type: ignore[misc]
    let_come(world, GUESTS, BROKERS, TROUBLE_US)
    return [Standing(world, (NORTH, SOUTH), SIDES, BOUND_US), OneOwner(), AllRunning()]
