"""``survival`` with three standbys in one cluster: who of them takes a place is decided by their machines."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.config.recovery import Scoring
from tocsin.sim.process.stage import configured
from tocsin.sim.scenarios.survival.population import BROKERS, FAULTS, NODES

# The best is the last by name.
FIT: Final = {"north-spare": 0.2, "north-spare-2": 0.5, "north-spare-3": 0.9}
MORE: Final = tuple(configured(each, "north", "standby") for each in FIT if each not in NODES)
STANDBY_BROKERS: Final = (*BROKERS, *MORE)
# The machine alone decides, so that the better standby is known.
STANDBY_SCORING: Final = Scoring(bandwidth_weight=0, delay_weight=0)
STANDBY_FAULTS: Final = msgspec.structs.replace(
    FAULTS,
    targets=(*(FAULTS.targets or ()), *(each.id for each in MORE)),
    brokers=tuple(each.id for each in STANDBY_BROKERS),
)
