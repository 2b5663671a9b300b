"""How bugs are planted in ``survival``, and found."""

from __future__ import annotations

from functools import partial

import msgspec

from tocsin.sim.plan import Profile
from tocsin.sim.runner import Broken, run
from tocsin.sim.scenario import Scenario, find
from tocsin.sim.scenarios import survival
from tocsin.sim.scenarios.survival import FAULTS
from tocsin.sim.scenarios.survival.broker import SurvivalBroker


def with_bug(bug: type[SurvivalBroker], faults: Profile = FAULTS) -> Scenario:
    return msgspec.structs.replace(find("survival"), build=partial(survival.build, broker=bug), faults=faults)


def first_broken(scenario: Scenario, seeds: int, first: int = 0) -> Broken | None:
    """What the first seed breaks that breaks anything; None if none of so many does."""
    found = (run(scenario, seed).broken for seed in range(first, first + seeds))
    return next((broken for broken in found if broken), None)
