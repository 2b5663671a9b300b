"""The same with long faults, of half a minute to ten minutes, and whatever the store forgets by itself: sessions of a
second to ten minutes, a log that remembers ids for fifteen seconds to two minutes, and a store's clock that jumps.

Clients are slower than in ``durable``, so that a run of twenty minutes has about as many events.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tocsin.core.machine import Effect, Event
from tocsin.model.message import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.network import Link
from tocsin.sim.plan import EVERY_KIND, Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.durable.broker import Broker
from tocsin.sim.scenarios.durable.clients import AlarmingPublisher, Client, Subscriber
from tocsin.sim.scenarios.durable.promises import promises
from tocsin.sim.scenarios.durable.wire import LOG, SESSIONS
from tocsin.sim.world import World

BROKERS = ("broker/1", "broker/2")
PUBLISHERS = ("publisher/1", "publisher/2")
SUBSCRIBERS = (("subscriber/1", ("a/#", "b"), 1), ("subscriber/2", ("b", "a/x", "#"), 2))
TOPICS = ("a/x", "a/y", "b")
MESSAGES = 30  # of each publisher

MINUTE_US = 60 * MILLION
HOUR_US = 60 * MINUTE_US
TROUBLE_US = 20 * MINUTE_US
SETTLE_US = 4 * MINUTE_US
LONG_FAULTS = Profile(
    kinds=(*EVERY_KIND, ("store partition", 3), ("store clock", 3)),
    most=6,
    shortest_us=30 * MILLION,
    longest_us=10 * MINUTE_US,
    targets=BROKERS,
    ahead_max_us=10 * MINUTE_US,
    store_ahead_max_us=30 * HOUR_US,  # more than for how long a session is kept that nobody writes
)
EXPIRIES = 11  # a session lasts 2⁰ to 2¹⁰ seconds, at most ten minutes
AWAYS = 10  # and its client is away for as long
# For which the log remembers ids: at least for as long as a request may be under way (``StoreWeather.slow_us``).
WINDOW_S_MIN, WINDOW_S_MAX = 15, 120
_CONNECTION = Link(fifo=True)


class Unhurried(Client):
    """A client that speaks every few seconds, stays for minutes, and is away for up to ten."""

    ping_us = 10 * MILLION
    silence_us = 30 * MILLION
    eager = False

    def _begin(self) -> None:
        self.expiry_s = min(600, 1 << self._draw(0xFFFF) % EXPIRIES)

    def _stay_us(self) -> int:
        return self._draw(0xFFFFF) * 256  # up to four and a half minutes

    def _away_us(self, now_us: int) -> int:
        if self._draw(1):
            return super()._away_us(now_us)
        longest_us = max(1, self._restless_us - now_us)
        return min(longest_us, MILLION << self._draw(0xFFFF) % AWAYS)


class UnhurriedPublisher(Unhurried, AlarmingPublisher):
    """It publishes for as long as there is trouble, and then what is left."""

    _now_us = 0

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        self._now_us = now_us
        return super().handle(event, now_us)

    def _think(self) -> None:
        if self._now_us < self._restless_us:
            self._timer("publish", self._draw(0xFFFFF) * 64)  # up to a minute
        else:
            super()._think()


class UnhurriedSubscriber(Unhurried, Subscriber):
    pass


class PatientBroker(Broker):
    """A broker for such clients."""

    silence_us = 45 * MILLION
    tick_us = 5 * MILLION


@scenario(
    "durable-long",
    summary="the same, with faults of minutes, sessions that expire, and a log that soon forgets ids",
    faults=LONG_FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build_long(world: World, broker: Callable[[Address], Broker] = PatientBroker) -> list[Invariant]:
    """Fill a world; ``broker`` is the machine to use, so that a variant can be tried."""
    world.network.link_of = lambda sender, receiver: _CONNECTION
    window_s = WINDOW_S_MIN + world.streams.stream("window").below(WINDOW_S_MAX - WINDOW_S_MIN + 1)
    world.log(msgspec.structs.replace(LOG, dedupe_window_s=float(window_s)))
    world.table(SESSIONS)
    for address in BROKERS:
        world.add(address, lambda _disk, address=address: broker(address))  # type: ignore[misc]
    for address in PUBLISHERS:
        world.add(
            address,
            lambda _disk, address=address: UnhurriedPublisher(  # type: ignore[misc]
                address, BROKERS, TROUBLE_US, MESSAGES, TOPICS
            ),
        )
    for address, filters, qos in SUBSCRIBERS:
        world.add(
            address,
            lambda _disk, address=address, filters=filters, qos=qos: UnhurriedSubscriber(  # type: ignore[misc]
                address, BROKERS, TROUBLE_US, filters, qos
            ),
        )
    return [*promises(), AllRunning()]
