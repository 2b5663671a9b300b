"""The network in virtual time: who is in it, and what its shells do around the machines."""

from __future__ import annotations

import pytest

from tocsin.config import Membership, Recovery
from tocsin.core.coordination.leader.backup_planning import PlanMade, WantPlan
from tocsin.core.coordination.participant.signals import BackupsKnown, StandDown, StandIn
from tocsin.core.machine import Effect, Event, Started, TimerFired
from tocsin.model.network import Role
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.probe import Probe
from tocsin.sim.world import World
from tocsin.wire.internal.control import Beat, Pulse, encode_envelope
from tocsin_labs.landmark.simulated import (
    COMMON,
    LEADER,
    POOL,
    SUBSCRIPTIONS,
    Network,
    Planner,
    brokers_of,
    filter_of,
    holdings_of,
)


def network(count: int = 12, promote_after_ms: int = 1_000) -> Network:
    return Network(brokers_of(count, 5, 1), Membership(), Recovery(promote_after_ms=promote_after_ms), seed=1)


def formed(count: int = 12) -> Network:
    made = network(count)
    made.world.run_until(5 * MILLION)
    assert made.is_whole()
    return made


def test_clusters_have_five_brokers_and_a_standby_except_the_last() -> None:
    brokers = brokers_of(16, 5, 1)
    assert len({each.id for each in brokers}) == len({each.port for each in brokers}) == 16
    assert [each.id for each in brokers if each.role == Role.STANDBY] == ["c1-s1", "c2-s1"]
    assert [each.id for each in brokers[12:]] == ["c3-b1", "c3-b2", "c3-b3", "c3-b4"]
    assert {each.cluster for each in brokers[6:12]} == {"c2"}


def test_brokers_hold_what_their_cluster_asks_for_and_what_anybody_does() -> None:
    brokers = brokers_of(12, 5, 1)
    held = holdings_of(brokers, Chance(1, "held"))
    assert held.keys() == {each.id for each in brokers if each.role != Role.STANDBY}
    for name, subscriptions in held.items():
        common = [k for k in subscriptions if k < COMMON]
        first = COMMON + POOL * (name.startswith("c2"))
        assert len(subscriptions) == SUBSCRIPTIONS == 2 * len(common)
        assert all(k in common or first <= k < first + POOL for k in subscriptions)
        assert min(subscriptions.values()) >= 1
    assert held == holdings_of(brokers, Chance(1, "held"))


def test_every_broker_joins_and_has_backups_where_they_belong() -> None:
    made = formed()
    clusters = {each.id: each.cluster for each in made.brokers.values()}
    plan = made.state.survival.plan
    assert len(plan) == 10
    for name, each in plan.items():
        assert each.local is not None and each.remote is not None
        assert clusters[each.local] == clusters[name] != clusters[each.remote]


def test_what_the_leader_hears_and_says_is_counted_as_it_is_encoded() -> None:
    made, sizes = formed(), []
    for kind in (Beat, Pulse):
        made.world.observers.on_delivery(
            kind, lambda sender, receiver, message: sizes.append(len(encode_envelope("", "", message)))
        )
    before = made.coordinator.bytes, made.coordinator.messages
    began_us = made.world.now_us
    made.world.run_until(began_us + 10 * MILLION)
    carried = made.coordinator.bytes - before[0], made.coordinator.messages - before[1]
    assert carried[0] == pytest.approx(sum(sizes), rel=0.02), "all but what is under way at either end"
    assert carried[1] == pytest.approx(len(sizes), rel=0.02)
    assert made.coordinator.processor_s > 0


def test_a_standby_takes_a_lost_brokers_name_and_gives_it_back() -> None:
    made = formed()
    own = made.brokers["c1-b2"]
    made.world.crash("c1-b2")
    made.world.run_until(made.world.now_us + 10 * MILLION)
    member = made.state.members["c1-b2"]
    assert member.info.port == made.brokers["c1-s1"].port
    assert (member.info.cluster, member.info.role) == (own.cluster, own.role)
    assert "c1-s1" not in made.state.members
    assert not made.is_whole()
    made.world.restart("c1-b2")
    made.world.run_until(made.world.now_us + 10 * MILLION)
    assert made.state.members["c1-b2"].info == own
    assert made.state.members["c1-s1"].info == made.brokers["c1-s1"]
    assert made.is_whole()


def test_the_backup_holds_the_lost_brokers_interests_until_it_returns() -> None:
    made = network(promote_after_ms=600_000)
    told: list[tuple[str, BackupsKnown | StandIn | StandDown]] = []
    made.told.append(lambda address, effect: told.append((address, effect)))
    made.world.run_until(5 * MILLION)
    made.subscribers_come()
    made.world.run_until(6 * MILLION)
    interests = made.state.interest.plan.interests
    wanted = filter_of("c1-b2")
    assert interests("c1-b2") == {wanted}
    made.world.crash("c1-b2")
    made.world.run_until(12 * MILLION)
    (by,) = [address for address, effect in told if isinstance(effect, StandIn)]
    assert interests(by) == {filter_of(by), wanted}
    made.world.restart("c1-b2")
    made.world.run_until(18 * MILLION)
    assert [address for address, effect in told if isinstance(effect, StandDown)] == [by]
    assert interests(by) == {filter_of(by)}
    assert interests("c1-b2") == {wanted}


def test_who_wants_a_plan_while_one_is_made_is_not_heard() -> None:
    brokers = tuple(each for each in brokers_of(12, 5, 1) if each.role != Role.STANDBY)
    want = WantPlan(brokers=brokers, previous={})

    def ask(event: Event, now_us: int) -> list[Effect]:
        return [want, want] if isinstance(event, Started | TimerFired) else []

    world, leader = World(1), Probe(ask)
    planner = Planner(world, holdings_of(brokers, Chance(1, "held")))
    world.add(LEADER, leader.make)
    world.run_until(MILLION)
    assert (planner.plans, len(leader.events(PlanMade))) == (1, 1)
    world.post(LEADER, TimerFired(name="again"))
    world.run_until(2 * MILLION)
    assert (planner.plans, len(leader.events(PlanMade))) == (2, 2)
    first, second = leader.events(PlanMade)
    assert first.backups == second.backups
    assert first.backups.keys() == {each.id for each in brokers}
    assert planner.processor_s > 0
