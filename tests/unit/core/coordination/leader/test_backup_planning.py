"""When the leader wants a plan of backups, and what it does with it."""

from __future__ import annotations

import msgspec

from tests.unit.core.coordination.desk import OPTIONS, Desk, of
from tests.unit.core.coordination.histories import NORTH, SOUTH
from tocsin.core.coordination.leader.backup_planning import (
    AGAIN_US,
    PATIENCE_US,
    SETTLE_US,
    PlanClock,
    PlanMade,
    WantPlan,
)
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.state.backups import Backups
from tocsin.core.machine import Append
from tocsin.model.network import BrokerInfo, Entrance, Scheme
from tocsin.wire.internal.commands import Joined, Planned

DOOR = (Entrance(Scheme.MQTT, "x:1883"),)
NORTH_1, SOUTH_1 = (msgspec.structs.replace(each, entrances=DOOR) for each in (NORTH, SOUTH))
BOTH = {"north": Backups(None, "south"), "south": Backups(None, "north")}


def with_two() -> Desk:
    desk = Desk(msgspec.structs.replace(OPTIONS, lease_us=10**12))
    desk.lead()
    desk.take(desk.submit(Joined(NORTH_1)))
    desk.take(desk.submit(Joined(SOUTH_1), broker="south"))
    desk.now_us += SETTLE_US
    return desk


def wanted(desk: Desk) -> list[tuple[BrokerInfo, ...]]:
    return [each.brokers for each in of(WantPlan, desk.fire(CoordinatorTimer.PLAN))]


def test_the_leader_logs_a_plan_once_the_brokers_have_settled() -> None:
    desk = with_two()
    assert wanted(desk) == [(NORTH_1, SOUTH_1)]
    assert wanted(desk) == [], "it is under way"
    desk.take(desk.handle(PlanMade(backups=BOTH)))
    assert desk.batches[-1].commands == (Planned((("north", None, "south"), ("south", None, "north"))),)
    assert desk.machine.replica.survival.plan == BOTH
    assert of(Append, desk.handle(PlanMade(backups=BOTH))) == [], "nothing new"


def test_one_broker_alone_needs_no_plan() -> None:
    desk = Desk()
    desk.lead()
    desk.take(desk.submit(Joined(NORTH_1)))
    desk.now_us += SETTLE_US
    assert wanted(desk) == []


def test_a_follower_ignores_a_plan() -> None:
    desk = Desk()
    desk.start()
    assert desk.handle(PlanMade(backups=BOTH)) == []


def test_a_change_while_a_plan_is_made_is_not_forgotten() -> None:
    clock = PlanClock(0)
    assert not clock.is_due(SETTLE_US - 1)
    assert clock.is_due(SETTLE_US)
    clock.changed(SETTLE_US + 1)
    clock.made(SETTLE_US + 2)
    assert clock.is_due(2 * SETTLE_US + 2)
    clock.made(3 * SETTLE_US)
    assert not clock.is_due(3 * SETTLE_US + AGAIN_US - 1)
    assert clock.is_due(3 * SETTLE_US + AGAIN_US)
    assert clock.is_due(3 * SETTLE_US + AGAIN_US + PATIENCE_US), "never answered"


def test_a_change_during_a_long_planning_run_is_not_forgotten() -> None:
    clock = PlanClock(0)
    assert clock.is_due(SETTLE_US)
    clock.changed(SETTLE_US + 1)
    assert clock.is_due(2 * SETTLE_US + 1), "it is asked again, and whoever plans does not hear it"
    clock.made(3 * SETTLE_US)
    assert clock.is_due(4 * SETTLE_US)
    clock.made(5 * SETTLE_US)
    assert not clock.is_due(5 * SETTLE_US + AGAIN_US - 1)
