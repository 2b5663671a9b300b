"""Publishers with streams, and subscribers that ask queries, at whole brokers in two clusters.

Clients speak MQTT to brokers as they ship: with their gates, forwarding tables, listings and links, and the message log
that every broker follows at its own pace. Subscribers listen to the set of a query and to its messages; some of them
are slow now and then, and get what the log has later. Askers want to know whether anybody else wants topics of a
filter, while listeners subscribe to some, and unsubscribe.
"""

from __future__ import annotations

from typing import Final

from tocsin.config import Settings
from tocsin.config.membership import Membership
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.process.stage import NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.streams.asking import let_ask
from tocsin.sim.scenarios.streams.clients import Heard, let_act
from tocsin.sim.scenarios.streams.promises import Complete, InTurn, NothingWaits, Truthful
from tocsin.sim.world import World

HUBS: Final = ("north-hub", "south-hub")
BROKERS: Final = ("north-1", "north-hub", "south-1", "south-hub")
SETTINGS: Final = Settings(
    network=NETWORK,
    brokers=tuple(
        configured(name, name.partition("-")[0], "routing" if name in HUBS else "edge") for name in BROKERS
    ),
    membership=Membership(heartbeat_ms=1_000),
)
COORDINATORS: Final = ("coordinator-1", "coordinator-2")
TROUBLE_US: Final = 20 * MILLION
SETTLE_US: Final = 14 * MILLION


@scenario(
    "streams",
    summary="publishers and queries at whole brokers: joined, messages, left, in this order",
    faults=Profile(most=8, targets=(*BROKERS, *COORDINATORS), brokers=BROKERS),
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World) -> list[Invariant]:
    stage = Stage(world, SETTINGS)
    stage.add_coordinators(*COORDINATORS)
    stage.add_brokers()
    heard = Heard()
    readers = let_act(world, heard, BROKERS, TROUBLE_US)
    askers = let_ask(world, BROKERS, TROUBLE_US)
    return [
        InTurn(heard),
        Complete(heard, readers),
        NothingWaits(BROKERS),
        Truthful(BROKERS, askers),
        AllRunning(),
    ]
