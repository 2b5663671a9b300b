"""``durable`` with outages that outlast what the store remembers (``outages``)."""

from __future__ import annotations

from tocsin.sim.invariants import Invariant
from tocsin.sim.plan import EVERY_KIND, Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.durable.broker import Broker
from tocsin.sim.scenarios.durable.clients import AlarmingPublisher, Subscriber
from tocsin.sim.scenarios.durable.outages import (
    MINUTE_US,
    SILENCE_US,
    TICK_US,
    TROUBLE_US,
    Unhurried,
    UnhurriedPublisher,
    forgetful,
    lengthened,
)
from tocsin.sim.scenarios.durable.population import BROKERS, MakeBroker, fill
from tocsin.sim.scenarios.durable.wire import LOG
from tocsin.sim.world import World

MESSAGES = 30  # of each publisher
SETTLE_US = 4 * MINUTE_US
# A leader of the store that stood still may answer with old news when it goes on.
LONG_FAULTS = lengthened(Profile(kinds=(*EVERY_KIND, ("old news", 4)), targets=BROKERS, brokers=BROKERS))


class UnhurriedAlarmer(UnhurriedPublisher, AlarmingPublisher):
    pass


class UnhurriedSubscriber(Unhurried, Subscriber):
    pass


class PatientBroker(Broker):
    """A broker for such clients."""

    silence_us = SILENCE_US
    tick_us = TICK_US


@scenario(
    "durable-long",
    summary="the same, with faults of minutes, sessions that expire, and a log that soon forgets ids",
    faults=LONG_FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build_long(world: World, broker: MakeBroker = PatientBroker) -> list[Invariant]:
    """Fill a world; ``broker`` is the machine to use, so that a variant can be tried."""
    return fill(
        world,
        broker,
        TROUBLE_US,
        MESSAGES,
        log=forgetful(world, LOG),
        publisher=UnhurriedAlarmer,
        subscriber=UnhurriedSubscriber,
    )
