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
    Promotions,
    WantPlan,
)
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.state.backups import Backups, Survival
from tocsin.core.machine import Append
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.wire.commands import Joined, Left, Planned, Promoted

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


def test_the_best_standby_replaces_a_broker_that_stays_away() -> None:
    survival, promotions = Survival(), Promotions(after_us=5)
    standbys = [
        BrokerInfo(name, cluster, Role.STANDBY, "127.0.0.1", 9)
        for name, cluster in (("a", "s"), ("b", "n"), ("c", "n"))
    ]
    promotions.scores = {"a": 1.0, "b": 0.4, "c": 0.6}
    survival.lost(NORTH_1, ())
    assert promotions.due(survival, standbys, 10) == promotions.due(survival, standbys, 14) == []
    assert promotions.due(survival, standbys, 15) == [Promoted("north", "c")], "of its cluster, the better"
    survival.promoted("north", "c")
    assert promotions.due(survival, standbys, 16) == []
    survival.lost(standbys[2], ())
    assert promotions.due(survival, standbys[:2], 17) == [Promoted("north", "b")], "the first one failed"
    survival.lost(SOUTH_1, ())
    promotions.due(survival, standbys[:2], 18)
    assert promotions.due(survival, standbys[:2], 23) == [Promoted("north", "b"), Promoted("south", "a")]
    survival.joined("north")
    survival.joined("south")
    assert promotions.due(survival, standbys, 24) == []
    survival.lost(NORTH_1, ())
    assert promotions.due(survival, standbys, 24) == [], "it was back in between"


def test_a_promotion_is_in_the_log() -> None:
    desk = with_two()
    spare = BrokerInfo("spare", "n", Role.STANDBY, "127.0.0.1", 9)
    desk.take(desk.submit(Joined(spare), broker="spare"))
    desk.take(desk.submit(Left(), first=2))
    desk.fire(CoordinatorTimer.PLAN)
    desk.now_us += OPTIONS.promote_after_us
    desk.take(desk.fire(CoordinatorTimer.PLAN))
    assert desk.batches[-1].commands == (Promoted("north", "spare"),)
    assert desk.machine.replica.survival.promotions == {"spare": "north"}
