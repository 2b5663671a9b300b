"""Durable messages: two brokers on one store, publishers and subscribers with sessions, at QoS 1 and 2.

The cores are those that ship: group commit, attendance, custody, naming, delivery, inbound ids, stored sessions. The
machines here play the asyncio shells around them. Clients lose connections, leave, and come back to either broker. Some
messages are critical, and overtake the others.
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.model.message import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.network import Link
from tocsin.sim.plan import Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.durable.broker import Broker
from tocsin.sim.scenarios.durable.clients import AlarmingPublisher, Subscriber
from tocsin.sim.scenarios.durable.long import build_long as build_long
from tocsin.sim.scenarios.durable.promises import promises
from tocsin.sim.scenarios.durable.wire import LOG, SESSIONS
from tocsin.sim.world import World

BROKERS = ("broker/1", "broker/2")
PUBLISHERS = ("publisher/1", "publisher/2")
# With their filters, of which each connection adds one, and the QoS.
SUBSCRIBERS = (("subscriber/1", ("a/#", "b"), 1), ("subscriber/2", ("b", "a/x", "#"), 2))
TOPICS = ("a/x", "a/y", "b")
MESSAGES = 35  # of each publisher

FAULTS = Profile(targets=BROKERS)  # clients are the outside, which keeps its memory
TROUBLE_US = 20 * MILLION
SETTLE_US = 25 * MILLION
_CONNECTION = Link(fifo=True)


@scenario(
    "durable",
    summary="messages at QoS 1 and 2: two brokers, sessions that outlive connections",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World, broker: Callable[[Address], Broker] = Broker) -> list[Invariant]:
    """Fill a world; ``broker`` is the machine to use, so that a variant can be tried."""
    world.network.link_of = lambda sender, receiver: _CONNECTION
    world.log(LOG)
    world.table(SESSIONS)
    for address in BROKERS:
        world.add(address, lambda _disk, address=address: broker(address))  # type: ignore[misc]
    for address in PUBLISHERS:
        world.add(
            address,
            lambda _disk, address=address: AlarmingPublisher(  # type: ignore[misc]
                address, BROKERS, TROUBLE_US, MESSAGES, TOPICS
            ),
        )
    for address, filters, qos in SUBSCRIBERS:
        world.add(
            address,
            lambda _disk, address=address, filters=filters, qos=qos: Subscriber(  # type: ignore[misc]
                address, BROKERS, TROUBLE_US, filters, qos
            ),
        )
    return [*promises(), AllRunning()]
