"""``survival`` with outages that outlast what the store and the brokers remember.

Faults last from twenty seconds to four minutes, and the clocks of the store and of processes jump. Residents' sessions
expire after a second to four minutes, and they are away for as long. The log remembers ids for fifteen seconds to a
minute. Heartbeats, leases and suspicion are five times slower, so that a run has not five times as many events.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.config.coordinator import Coordinator
from tocsin.config.membership import Membership
from tocsin.config.recovery import Recovery
from tocsin.config.replication import Replication
from tocsin.ports import LogSpec
from tocsin.runtime.machines.clock import random_bits
from tocsin.sim.chance import MILLION
from tocsin.sim.process.stage import LOG
from tocsin.sim.scenarios.survival.population import FAULTS, Setting, settings
from tocsin.sim.scenarios.survival.programs import Pace
from tocsin.sim.world import World

SLOWER: Final = 5  # than in ``survival``: heartbeats, leases, suspicion
MINUTE_US: Final = 60 * MILLION
HOUR_US: Final = 60 * MINUTE_US
LONGEST_S: Final = 240  # of a session that is not served, and of an absence
# For which the log remembers ids: at least for as long as a request may be under way (``StoreWeather.slow_us``).
WINDOW_S_MIN, WINDOW_S_MAX = 15, 60
LONG_FAULTS: Final = msgspec.structs.replace(
    FAULTS,
    kinds=(*FAULTS.kinds, ("store partition", 3), ("store clock", 3)),
    most=6,
    shortest_us=20 * MILLION,
    longest_us=LONGEST_S * MILLION,
    ahead_max_us=LONGEST_S * MILLION,
    store_ahead_max_us=30 * HOUR_US,  # more than for how long a session is kept that nobody writes
)


class LongPace(Pace):
    """Programs that take their time, and residents that are away for minutes, or whose sessions are soon over."""

    keep_alive_s = 20
    think_ms = 40_000
    restless_ms = 30_000
    read_ms = 2_000
    notice_s = 90

    def resident_expiry_s(self) -> int:
        return min(LONGEST_S, 1 << random_bits(16) % 9)

    def away_s(self) -> float:
        return min(LONGEST_S, random_bits(32) % (1_000 << random_bits(16) % 9) / 1_000)


LONG: Final = Setting(
    settings=settings(
        membership=Membership(heartbeat_ms=500 * SLOWER, suspect_least_ms=5_000, suspect_after_ms=25_000),
        recovery=Recovery(will_grace_s=15, promote_after_ms=20_000),
        coordinator=Coordinator(lease_s=2 * SLOWER),
        replication=Replication(period_ms=25_000),
    ),
    trouble_us=8 * MINUTE_US,
    recovery_us=3 * MINUTE_US,
    settle_us=5 * MINUTE_US,
    look_us=10 * MILLION,
    pace=LongPace(),
    messages=20,
    calm=range(13 * 60 - 20, 13 * 60 - 5),
)


def forgetful(world: World) -> LogSpec:
    """The message log, which remembers ids for no longer than chance says."""
    window_s = WINDOW_S_MIN + world.chances.of("window").below(WINDOW_S_MAX - WINDOW_S_MIN + 1)
    return msgspec.structs.replace(LOG, dedupe_window_s=float(window_s))
