"""Durable messages: two whole brokers on one store, publishers and subscribers with sessions, at QoS 1 and 2.

Nothing of a broker is played here: ``broker.assembly`` runs on a virtual event loop (``sim.process``), with its codec,
its sessions, its log and its part in the network. Clients speak MQTT 5 over connections. They lose them, leave, and
come back to either broker. Some messages are critical, and overtake the others.
"""

from __future__ import annotations

from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.durable import long
from tocsin.sim.scenarios.durable.population import BROKERS, SETTINGS, fill
from tocsin.sim.world import World

MESSAGES = 35  # of each publisher

FAULTS = Profile(targets=BROKERS)  # clients are the outside, which keeps its memory
TROUBLE_US = 20 * MILLION
SETTLE_US = 40 * MILLION
CALM_US = 8 * MILLION  # longer than a request to the store may take


@scenario(
    "durable",
    summary="messages at QoS 1 and 2: two whole brokers, clients over MQTT, sessions that outlive connections",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
    calm_us=CALM_US,
)
def build(world: World) -> list[Invariant]:
    return fill(world, SETTINGS, TROUBLE_US, MESSAGES)


@scenario(
    "durable-long",
    summary="the same, with faults of minutes, sessions that expire, and a log that soon forgets ids",
    faults=long.LONG_FAULTS,
    trouble_us=long.TROUBLE_US,
    settle_us=long.SETTLE_US,
    calm_us=long.CALM_US,
)
def build_long(world: World) -> list[Invariant]:
    return long.fill_long(world)
