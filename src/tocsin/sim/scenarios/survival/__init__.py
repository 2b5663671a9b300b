"""Survival: a whole network as it ships. Brokers in two clusters that back each other, a standby, two coordinators, and
programs that use the client.

Nothing is played here but the network, the store and the clock (``sim.process``). Brokers are killed alone and
together, frozen, and cut off from each other, from the coordinators and from the store; the bus and the store are slow
or away; coordinators fail over in the middle of it. Programs have homes and wills, publish and are told, leave and come
back, and some of them die.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tocsin.config.balance import Balance
from tocsin.config.recovery import Recovery
from tocsin.config.replication import Replication
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import Build, scenario
from tocsin.sim.scenarios.survival.balances import balanced
from tocsin.sim.scenarios.survival.doors import fill_doors
from tocsin.sim.scenarios.survival.drains import CLUSTER_ORDERS, GRACE_S, ORDERS
from tocsin.sim.scenarios.survival.long import LONG, LONG_FAULTS, forgetful
from tocsin.sim.scenarios.survival.population import FAULTS, Setting, fill, settings
from tocsin.sim.scenarios.survival.programs import Pace
from tocsin.sim.scenarios.survival.recruits import (
    RECOVERY,
    RECRUIT_BROKERS,
    RECRUIT_FAULTS,
    recruit_promises,
)
from tocsin.sim.scenarios.survival.standbys import FIT, STANDBY_BROKERS, STANDBY_FAULTS, STANDBY_SCORING
from tocsin.sim.world import World

SETTING: Final = Setting(
    # Positions go to backups more often than into cells, so that clients go on from a copy.
    settings=settings(recovery=Recovery(will_grace_s=5), replication=Replication(period_ms=300)),
    trouble_us=30 * MILLION,
    recovery_us=60 * MILLION,
    settle_us=90 * MILLION,
    look_us=MILLION,
    pace=Pace(),
    messages=25,
    calm=range(90, 116),
)


def _variant(
    name: str,
    setting: Setting,
    summary: str,
    *,
    faults: Profile = FAULTS,
    fills: Callable[[World, Setting], list[Invariant]] = fill,
) -> Build:
    """Register a scenario of this setting; what fills a world of it."""

    @scenario(
        name, summary=summary, faults=faults, trouble_us=setting.trouble_us, settle_us=setting.settle_us
    )
    def build(world: World) -> list[Invariant]:
        return fills(world, setting)

    return build


build = _variant(
    "survival",
    SETTING,
    "a whole network as it ships: takeovers, standbys, homes, wills, groups, queries, QoS 0 to 2",
)

STANDBYS: Final = msgspec.structs.replace(
    SETTING,
    settings=msgspec.structs.replace(SETTING.settings, brokers=STANDBY_BROKERS, scoring=STANDBY_SCORING),
    fit=FIT,
)

_variant(
    "survival-standbys",
    STANDBYS,
    "the same with three standbys, of which the last by name has the best machine",
    faults=STANDBY_FAULTS,
)

DRAINS: Final = msgspec.structs.replace(
    SETTING,
    settings=msgspec.structs.replace(SETTING.settings, balance=Balance(grace_s=GRACE_S)),
    drains=ORDERS,
)

_variant("survival-drain", DRAINS, "the same, with an operator who has brokers emptied meanwhile")

CLUSTER_DRAINS: Final = msgspec.structs.replace(DRAINS, drains=CLUSTER_ORDERS)

_variant(
    "survival-drain-clusters",
    CLUSTER_DRAINS,
    "the same, with all brokers of a cluster emptied at once, and for a while all that there are",
)

BALANCES: Final = msgspec.structs.replace(SETTING, settings=balanced(SETTING.settings), balances=True)
STEADY_FAULTS: Final = msgspec.structs.replace(
    FAULTS, kinds=tuple((kind, weight) for kind, weight in FAULTS.kinds if kind != "skew")
)

_variant(
    "survival-balance",
    BALANCES,
    "the same with a crowd at one broker, of which clients move to an emptier one",
    faults=STEADY_FAULTS,
)

RECRUITS: Final = msgspec.structs.replace(
    SETTING,
    settings=msgspec.structs.replace(
        SETTING.settings,
        brokers=RECRUIT_BROKERS,
        recovery=RECOVERY,
        balance=Balance(grace_s=GRACE_S, rate=1),
    ),
    trouble_us=40 * MILLION,
    recruits=True,
)

_variant(
    "survival-recruits",
    RECRUITS,
    "the same with one standby, and brokers that are recruited to stand by while it is in use",
    faults=RECRUIT_FAULTS,
    fills=lambda world, setting: fill(world, setting, more=recruit_promises),
)

MOVES: Final = msgspec.structs.replace(SETTING, moves=True)

_variant(
    "survival-moves", MOVES, "the same, with machines that get other addresses while their brokers serve"
)

_variant(
    "survival-doors",
    SETTING,
    "the same with the coordinators' doors, and clients that know nothing else",
    fills=fill_doors,
)

build_long = _variant(
    "survival-long",
    LONG,
    "the same, with faults of minutes, sessions that expire, and a log that soon forgets ids",
    faults=LONG_FAULTS,
    fills=lambda world, setting: fill(world, setting, forgetful(world)),
)
