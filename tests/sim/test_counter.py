"""The counter survives whatever the seeds invent."""

from __future__ import annotations

import pytest

from tocsin.sim.faults.kinds import Crash, LeaderLoss, Pause, StoreTrouble
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.store import StoreWeather

SECOND = 1_000_000
ONCE_FAILED = (591, 623, 1387, 1642, 4112, 5018)  # seeds that found a bug, in the counter or in the simulator


def test_three_hundred_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("counter", 0, 300) if outcome.broken] == []


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert run(find("counter"), seed).broken is None


def test_the_holder_is_frozen_for_longer_than_its_lease_again_and_again() -> None:
    plan = [
        Pause(at_us=at * SECOND, for_us=3 * SECOND, node=f"server/{1 + at % 3}") for at in range(0, 20, 2)
    ]
    for seed in range(20):
        assert run(find("counter"), seed, plan=[*plan]).broken is None


def test_appends_are_applied_late_while_leaders_come_and_go() -> None:
    slow = StoreWeather(slow_us=8 * SECOND)
    for seed in range(20):
        plan = [
            StoreTrouble(at_us=SECOND, for_us=15 * SECOND, weather=slow),
            LeaderLoss(at_us=6 * SECOND, for_us=SECOND),
            Crash(at_us=9 * SECOND, for_us=SECOND, node="server/1"),
            Crash(at_us=9 * SECOND, for_us=2 * SECOND, node="notifier", after_effects=1),
        ]
        assert run(find("counter"), seed, plan=[*plan]).broken is None
