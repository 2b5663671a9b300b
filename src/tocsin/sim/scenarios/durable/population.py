"""Who lives in ``durable`` and in its long form: two brokers, two publishers, two subscribers, one store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tocsin.model.message import Address
from tocsin.ports import LogSpec
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.network import Link
from tocsin.sim.scenarios.durable.broker import Broker
from tocsin.sim.scenarios.durable.clients import AlarmingPublisher, Subscriber
from tocsin.sim.scenarios.durable.promises import promises
from tocsin.sim.scenarios.durable.wire import LOG, SESSIONS
from tocsin.sim.world import World

BROKERS: Final = ("broker/1", "broker/2")
PUBLISHERS: Final = ("publisher/1", "publisher/2")
# With their filters, of which each connection adds one, and the QoS.
SUBSCRIBERS: Final = (("subscriber/1", ("a/#", "b"), 1), ("subscriber/2", ("b", "a/x", "#"), 2))
TOPICS: Final = ("a/x", "a/y", "b")
_CONNECTION: Final = Link(fifo=True)

MakeBroker = Callable[[Address], Broker]


def fill(
    world: World,
    broker: MakeBroker,
    restless_us: int,
    messages: int,
    *,
    log: LogSpec = LOG,
    publisher: type[AlarmingPublisher] = AlarmingPublisher,
    subscriber: type[Subscriber] = Subscriber,
) -> list[Invariant]:
    """Fill a world. Clients come and go until ``restless_us``; each publisher has so many messages."""
    world.network.link_of = lambda sender, receiver: _CONNECTION
    world.log(log)
    world.table(SESSIONS)
    for address in BROKERS:
        world.add(address, lambda _disk, address=address: broker(address))  # type: ignore[misc]
    for address in PUBLISHERS:
        publishes = partial(publisher, address, BROKERS, restless_us, messages, TOPICS)
        world.add(address, lambda _disk, made=publishes: made())  # type: ignore[misc]
    for address, filters, qos in SUBSCRIBERS:
        subscribes = partial(subscriber, address, BROKERS, restless_us, filters, qos)
        world.add(address, lambda _disk, made=subscribes: made())  # type: ignore[misc]
    return [*promises(), AllRunning()]
