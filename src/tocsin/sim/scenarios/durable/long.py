"""``durable`` with outages that outlast what the store remembers (``outages``)."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.config.coordinator import Coordinator
from tocsin.config.membership import Membership
from tocsin.sim.faults.plan import EVERY_KIND, Profile
from tocsin.sim.process.restless import AlarmingPublisher, Subscriber
from tocsin.sim.process.stage import LOG
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.durable.outages import (
    MINUTE_US,
    Unhurried,
    UnhurriedPublisher,
    forgetful,
    lengthened,
)
from tocsin.sim.scenarios.durable.population import BROKERS, SETTINGS, fill
from tocsin.sim.world import World

MESSAGES: Final = 30  # of each publisher
TROUBLE_US: Final = 15 * MINUTE_US
SETTLE_US: Final = 4 * MINUTE_US
CALM_US: Final = MINUTE_US
# A leader of the store that stood still may answer with old news when it goes on.
LONG_FAULTS: Final = lengthened(
    Profile(kinds=(*EVERY_KIND, ("old news", 4)), targets=BROKERS, brokers=BROKERS)
)
# Beats and leases are for takeovers, which ``survival`` is about: fewer of them make a run of minutes affordable.
LONG_SETTINGS: Final = msgspec.structs.replace(
    SETTINGS,
    membership=Membership(heartbeat_ms=5_000, suspect_least_ms=10_000, suspect_after_ms=20_000),
    coordinator=Coordinator(lease_s=20),
)


class UnhurriedAlarmer(UnhurriedPublisher, AlarmingPublisher):
    pass


class UnhurriedSubscriber(Unhurried, Subscriber):
    pass


def fill_long(world: World) -> list[Invariant]:
    """Fill a world with unhurried clients, and a log that soon forgets ids."""
    return fill(
        world,
        LONG_SETTINGS,
        TROUBLE_US,
        MESSAGES,
        log=forgetful(world, LOG),
        publisher=UnhurriedAlarmer,
        subscriber=UnhurriedSubscriber,
    )
