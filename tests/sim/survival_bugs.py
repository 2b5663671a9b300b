"""How bugs are planted in ``survival``, and found."""

from __future__ import annotations

from functools import partial

import msgspec

from tocsin.sim.plan import Profile
from tocsin.sim.runner import Broken, run
from tocsin.sim.scenario import Scenario, find
from tocsin.sim.scenarios import survival
from tocsin.sim.scenarios.survival.broker import SurvivalBroker
from tocsin.sim.scenarios.survival.long import PatientSurvivor


def with_bug(bug: type[SurvivalBroker], faults: Profile | None = None) -> Scenario:
    """``survival``, or its long form for a broker of that one; with its own faults unless told."""
    long = issubclass(bug, PatientSurvivor)
    scenario = find("survival-long" if long else "survival")
    build = partial(survival.build_long if long else survival.build, broker=bug)
    return msgspec.structs.replace(scenario, build=build, faults=faults or scenario.faults)


def first_broken(scenario: Scenario, seeds: int) -> Broken | None:
    """What the first seed breaks that breaks anything, from 0 on; None if none of so many does."""
    return next((broken for seed in range(seeds) if (broken := run(scenario, seed).broken)), None)
