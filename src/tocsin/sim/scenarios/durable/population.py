"""The nodes of ``durable`` and of its long form: two brokers, a coordinator, two publishers and two subscribers."""

from __future__ import annotations

from functools import partial
from typing import Final

from tocsin.config import Settings
from tocsin.ports import LogSpec
from tocsin.sim.process.messages import AcknowledgedIsDurable, Written
from tocsin.sim.process.restless import AlarmingPublisher, Subscriber
from tocsin.sim.process.stage import LOG, NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.scenarios.durable.promises import Taken, message_key
from tocsin.sim.scenarios.durable.sessions import (
    CriticalFirst,
    Doors,
    OnlyTheUsurpedStop,
    SessionsLast,
    Settled,
)
from tocsin.sim.world import World

BROKERS: Final = ("broker-1", "broker-2")
COORDINATOR: Final = "coordinator-1"
PUBLISHERS: Final = ("publisher/1", "publisher/2")
# With their filters, of which each connection adds one, and the QoS.
SUBSCRIBERS: Final = (("subscriber/1", ("a/#", "b"), 1), ("subscriber/2", ("b", "a/x", "#"), 2))
TOPICS: Final = ("a/x", "a/y", "b")
SETTINGS: Final = Settings(network=NETWORK, brokers=tuple(configured(name) for name in BROKERS))


def fill(
    world: World,
    settings: Settings,
    restless_us: int,
    messages: int,
    *,
    log: LogSpec = LOG,
    publisher: type[AlarmingPublisher] = AlarmingPublisher,
    subscriber: type[Subscriber] = Subscriber,
) -> list[Invariant]:
    """Fill a world. Clients come and go until ``restless_us``; each publisher has so many messages."""
    stage = Stage(world, settings, messages=log)
    stage.add_coordinators(COORDINATOR)
    stage.add_brokers()
    for address in PUBLISHERS:
        stage.add_client(address, partial(publisher, address, BROKERS, restless_us, messages, TOPICS))
    for address, filters, qos in SUBSCRIBERS:
        stage.add_client(address, partial(subscriber, address, BROKERS, restless_us, filters, qos))
    return [*promises(), AllRunning()]


def promises() -> list[Invariant]:
    written, doors = Written(message_key), Doors()
    taken, sessions = Taken(written), SessionsLast(doors)
    return [
        doors,
        written,
        AcknowledgedIsDurable(written),
        taken,
        CriticalFirst(written, taken, doors),
        sessions,
        OnlyTheUsurpedStop(doors),
        Settled(sessions),
    ]
