"""Survival: brokers in two clusters that back each other, a standby, coordinators that fail over, clients with homes.

The cores are those that ship, composed as the real shells do it: coordinators and participants, primaries and backups,
holdings with standby cells, attendances, stored sessions; and in the clients the dialler. Brokers are killed alone and
together, frozen, and cut off from each other, from the coordinators and from the store; the bus loses and delays; the
store is slow or away; coordinators fail over in the middle of it.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.places import Options
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.survival.broker import HEARTBEAT_US, SUSPECT_AFTER_US, SurvivalBroker
from tocsin.sim.scenarios.survival.long import build_long as build_long
from tocsin.sim.scenarios.survival.population import (
    FAULTS,
    MakeBroker,
    Setting,
    fill,
)
from tocsin.sim.world import World

OPTIONS: Final = Options(
    suspect_after_us=SUSPECT_AFTER_US,
    suspect_least_us=MILLION,
    lease_us=2 * MILLION,
    promote_after_us=4 * MILLION,
    snapshot_every=40,
    margin=30,
    heartbeat_us=HEARTBEAT_US,
)
SETTING: Final = Setting(
    trouble_us=20 * MILLION,
    results_us=22 * MILLION,
    recovery_us=25 * MILLION,
    settle_us=35 * MILLION,
    look_us=MILLION,
    options=OPTIONS,
    messages=30,
)


@scenario(
    "survival",
    summary="four brokers in two clusters, a standby, two coordinators: backups take over, clients go home",
    faults=FAULTS,
    trouble_us=SETTING.trouble_us,
    settle_us=SETTING.settle_us,
)
def build(
    world: World, broker: MakeBroker = SurvivalBroker, coordinator: type[Coordinator] = Coordinator
) -> list[Invariant]:
    """Fill a world; ``broker`` is the machine to use, so that a variant can be tried."""
    return fill(world, SETTING, broker, coordinator)
