"""Durable messages: two brokers on one store, publishers and subscribers with sessions, at QoS 1 and 2.

The cores are those that ship: group commit, attendance, custody, naming, delivery, inbound ids, stored sessions. The
machines here play the asyncio shells around them. Clients lose connections, leave, and come back to either broker. Some
messages are critical, and overtake the others.
"""

from __future__ import annotations

from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import Invariant
from tocsin.sim.plan import Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.durable.broker import Broker
from tocsin.sim.scenarios.durable.long import build_long as build_long
from tocsin.sim.scenarios.durable.population import BROKERS, MakeBroker, fill
from tocsin.sim.world import World

MESSAGES = 35  # of each publisher

FAULTS = Profile(targets=BROKERS)  # clients are the outside, which keeps its memory
TROUBLE_US = 20 * MILLION
SETTLE_US = 25 * MILLION


@scenario(
    "durable",
    summary="messages at QoS 1 and 2: two brokers, sessions that outlive connections",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World, broker: MakeBroker = Broker) -> list[Invariant]:
    """Fill a world; ``broker`` is the machine to use, so that a variant can be tried."""
    return fill(world, broker, TROUBLE_US, MESSAGES)
