"""Survival: a whole network as it ships. Brokers in two clusters that back each other, a standby, two coordinators, and
programs that use the client.

Nothing is played here but the network, the store and the clock (``sim.process``). Brokers are killed alone and
together, frozen, and cut off from each other, from the coordinators and from the store; the bus and the store are slow
or away; coordinators fail over in the middle of it. Programs have homes and wills, publish and are told, leave and come
back, and some of them die.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.config.balance import Balance
from tocsin.config.recovery import Recovery
from tocsin.config.replication import Replication
from tocsin.sim.chance import MILLION
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import scenario
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


@scenario(
    "survival",
    summary="a whole network as it ships: takeovers, standbys, homes, wills, groups, queries, QoS 0 to 2",
    faults=FAULTS,
    trouble_us=SETTING.trouble_us,
    settle_us=SETTING.settle_us,
)
def build(world: World) -> list[Invariant]:
    return fill(world, SETTING)


STANDBYS: Final = msgspec.structs.replace(
    SETTING,
    settings=msgspec.structs.replace(SETTING.settings, brokers=STANDBY_BROKERS, scoring=STANDBY_SCORING),
    fit=FIT,
)


@scenario(
    "survival-standbys",
    summary="the same with three standbys, of which the last by name has the best machine",
    faults=STANDBY_FAULTS,
    trouble_us=STANDBYS.trouble_us,
    settle_us=STANDBYS.settle_us,
)
def build_standbys(world: World) -> list[Invariant]:
    return fill(world, STANDBYS)


DRAINS: Final = msgspec.structs.replace(
    SETTING,
    settings=msgspec.structs.replace(SETTING.settings, balance=Balance(grace_s=GRACE_S)),
    drains=ORDERS,
)


@scenario(
    "survival-drain",
    summary="the same, with an operator who has brokers emptied meanwhile",
    faults=FAULTS,
    trouble_us=DRAINS.trouble_us,
    settle_us=DRAINS.settle_us,
)
def build_drain(world: World) -> list[Invariant]:
    return fill(world, DRAINS)


CLUSTER_DRAINS: Final = msgspec.structs.replace(DRAINS, drains=CLUSTER_ORDERS)


@scenario(
    "survival-drain-clusters",
    summary="the same, with all brokers of a cluster emptied at once, and for a while all that there are",
    faults=FAULTS,
    trouble_us=CLUSTER_DRAINS.trouble_us,
    settle_us=CLUSTER_DRAINS.settle_us,
)
def build_cluster_drains(world: World) -> list[Invariant]:
    return fill(world, CLUSTER_DRAINS)


BALANCES: Final = msgspec.structs.replace(SETTING, settings=balanced(SETTING.settings), balances=True)
STEADY_FAULTS: Final = msgspec.structs.replace(
    FAULTS, kinds=tuple((kind, weight) for kind, weight in FAULTS.kinds if kind != "skew")
)


@scenario(
    "survival-balance",
    summary="the same with a crowd at one broker, of which clients move to an emptier one",
    faults=STEADY_FAULTS,
    trouble_us=BALANCES.trouble_us,
    settle_us=BALANCES.settle_us,
)
def build_balance(world: World) -> list[Invariant]:
    return fill(world, BALANCES)


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


@scenario(
    "survival-recruits",
    summary="the same with one standby, and brokers that are recruited to stand by while it is in use",
    faults=RECRUIT_FAULTS,
    trouble_us=RECRUITS.trouble_us,
    settle_us=RECRUITS.settle_us,
)
def build_recruits(world: World) -> list[Invariant]:
    return fill(world, RECRUITS, more=recruit_promises)


MOVES: Final = msgspec.structs.replace(SETTING, moves=True)


@scenario(
    "survival-moves",
    summary="the same, with machines that get other addresses while their brokers serve",
    faults=FAULTS,
    trouble_us=MOVES.trouble_us,
    settle_us=MOVES.settle_us,
)
def build_moves(world: World) -> list[Invariant]:
    return fill(world, MOVES)


@scenario(
    "survival-doors",
    summary="the same with the coordinators' doors, and clients that know nothing else",
    faults=FAULTS,
    trouble_us=SETTING.trouble_us,
    settle_us=SETTING.settle_us,
)
def build_doors(world: World) -> list[Invariant]:
    return fill_doors(world, SETTING)


@scenario(
    "survival-long",
    summary="the same, with faults of minutes, sessions that expire, and a log that soon forgets ids",
    faults=LONG_FAULTS,
    trouble_us=LONG.trouble_us,
    settle_us=LONG.settle_us,
)
def build_long(world: World) -> list[Invariant]:
    return fill(world, LONG, forgetful(world))
