"""Outages that outlast what the store remembers: what ``durable-long`` adds.

Faults last half a minute to ten minutes. Sessions expire after a second to ten minutes, and clients are away for as
long. A log remembers ids for fifteen seconds to two minutes. The clocks of the store and of brokers jump.

Clients are slower than in the short scenario, so that a run of a quarter of an hour has about as many events of theirs.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.core.machine import Effect, Event
from tocsin.ports import LogSpec
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.process.restless import Client, Publisher
from tocsin.sim.world import World

MINUTE_US: Final = 60 * MILLION
HOUR_US: Final = 60 * MINUTE_US
EXPIRIES: Final = 11  # a session lasts 2⁰ to 2¹⁰ seconds, at most ten minutes
AWAYS: Final = 10  # and its client is away for as long
# For which the log remembers ids: at least for as long as a request may be under way (``StoreWeather.slow_us``).
WINDOW_S_MIN, WINDOW_S_MAX = 15, 120


def lengthened(faults: Profile) -> Profile:
    """The same kinds of faults, but long ones; and more of those that keep the store away, and jumps of clocks."""
    return msgspec.structs.replace(
        faults,
        kinds=(*faults.kinds, ("store partition", 3), ("store clock", 3)),
        most=6,
        shortest_us=30 * MILLION,
        longest_us=10 * MINUTE_US,
        ahead_max_us=10 * MINUTE_US,
        store_ahead_max_us=30 * HOUR_US,  # more than for how long a session is kept that nobody writes
    )


def forgetful(world: World, log: LogSpec) -> LogSpec:
    """The same log, which remembers ids for no longer than chance says."""
    window_s = WINDOW_S_MIN + world.chances.of("window").below(WINDOW_S_MAX - WINDOW_S_MIN + 1)
    return msgspec.structs.replace(log, dedupe_window_s=float(window_s))


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


class UnhurriedPublisher(Unhurried, Publisher):
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
