"""Plans of faults that several scenarios with brokers are put through."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.sim.faults.kinds import Crash, Fault, LeaderLoss, Pause, StoreTrouble
from tocsin.sim.store import StoreWeather

SECOND = 1_000_000


def crashes_in_turn(seed: int, brokers: Sequence[str]) -> list[Fault]:
    """One broker after the other, between any two effects."""
    return [
        Crash(
            at_us=at * SECOND // 2,
            for_us=SECOND // 4,
            node=brokers[at % len(brokers)],
            after_effects=(seed + at) % 4,
        )
        for at in range(2, 38)
    ]


def freezes_and_late_writes(brokers: Sequence[str], second_s: int) -> list[Fault]:
    """The first two brokers freeze in turn, the second for so long, while the store applies writes late, or mutely."""
    slow = StoreWeather(slow_us=8 * SECOND, mute_ppm=200_000)
    return [
        StoreTrouble(at_us=SECOND, for_us=15 * SECOND, weather=slow),
        Pause(at_us=4 * SECOND, for_us=6 * SECOND, node=brokers[0]),
        LeaderLoss(at_us=8 * SECOND, for_us=SECOND),
        Pause(at_us=11 * SECOND, for_us=second_s * SECOND, node=brokers[1]),
    ]
