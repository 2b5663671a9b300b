"""Plans that are fitted to changes: nothing moves without a reason, and the reasons hold."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.definitions import assignments, feasible, matrices, objectives, workload
from tests.unit.core.assignment.demands import chance, demands, network
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.outcome import Plan, Replan
from tocsin.core.assignment.planning import plan
from tocsin.core.assignment.replanning import HYSTERESIS, replan


def differing(before: Plan, after: Plan) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    """By (broker, role), what it was and is, where that is not the same."""
    found = {}
    for name, now in after.backups.items():
        was = before.backups.get(name)
        for role in ("local", "remote"):
            pair = (getattr(was, role) if was else None, getattr(now, role))
            if pair[0] != pair[1]:
                found[name, role] = pair
    return found


def check(before: Plan, demand: Demand, made: Replan) -> None:
    """What holds of every plan that was made from another."""
    m = matrices(demand)
    x, y = assignments(m, made.plan)
    assert feasible(m, x, y) == (not made.plan.shortfalls)
    if m.names:
        assert objectives(m, x, y) == (made.plan.overhead_total, made.plan.remote_max)
    assert differing(before, made.plan) == {
        (each.broker, each.role): (each.before, each.after) for each in made.moves
    }
    cluster = {each.name: each.cluster for each in demand.members}
    for move in made.moves:
        alive = move.before in cluster and move.before is not None
        right = alive and (cluster[move.before or ""] == cluster[move.broker]) == (move.role == "local")
        assert (move.reason == "new") == (move.before is None)
        assert (move.reason == "lost") == (move.before is not None and not right)


@settings(max_examples=80)
@given(
    demands(most=8, handicaps=True), demands(most=8, handicaps=True), st.sampled_from([0.0, 0.1, math.inf])
)
def test_any_plan_can_be_fitted_to_any_network(before: Demand, after: Demand, hysteresis: float) -> None:
    known = plan(before, "lcs_mmcs")
    made = replan(known, after, hysteresis=hysteresis)
    check(known, after, made)
    for move in made.moves:
        event(move.reason)


@settings(max_examples=50)
@given(demands(most=9, handicaps=True))
def test_without_a_change_and_a_gain_nothing_moves(demand: Demand) -> None:
    known = plan(demand, "search")
    made = replan(known, demand, hysteresis=math.inf)
    if not known.shortfalls:
        assert made.moves == ()
        assert msgspec.structs.replace(made.plan, strategy="") == msgspec.structs.replace(known, strategy="")


@settings(max_examples=50)
@given(demands(least=3, most=9), st.data())
def test_losing_a_broker_moves_only_those_that_it_backed_or_crowded(
    demand: Demand, data: st.DataObject
) -> None:
    known = plan(demand, "search")
    gone = data.draw(st.sampled_from(sorted(each.name for each in demand.members)))
    left = Demand(
        tuple(each for each in demand.members if each.name != gone),
        {name: held for name, held in demand.holdings.items() if name != gone},
        demand.rates,
    )
    made = replan(known, left, changed={gone}, hysteresis=math.inf)
    check(known, left, made)
    orphans = {
        (name, role)
        for name, backups in known.backups.items()
        for role in ("local", "remote")
        if name != gone and getattr(backups, role) == gone
    }
    assert {(each.broker, each.role) for each in made.moves if each.reason == "lost"} == orphans
    if not made.plan.shortfalls and math.isinf(min(each.capacity for each in demand.members)):
        assert len(made.moves) == len(orphans)


@settings(max_examples=50)
@given(demands(least=2, most=9), demands(least=2, most=9))
def test_what_moves_for_the_better_saves_more_than_the_hysteresis_asks(before: Demand, after: Demand) -> None:
    members = tuple(msgspec.structs.replace(each, capacity=math.inf) for each in before.members)
    known = plan(Demand(members, before.holdings, before.rates), "lcs_mmcs")
    holdings = {each.name: after.holdings.get(each.name, {}) for each in members}
    stay = replan(known, Demand(members, holdings), hysteresis=math.inf)
    made = replan(known, Demand(members, holdings))
    locals_moved = [each for each in made.moves if each.role == "local"]
    held = {name: sum(count > 0 for count in each.values()) for name, each in holdings.items()}
    saved = stay.plan.overhead_total - made.plan.overhead_total
    assert saved >= sum(HYSTERESIS * held[each.broker] for each in locals_moved)
    assert all(each.reason == "better" for each in made.moves)


def test_a_new_broker_gets_backups_and_takes_what_is_worth_it() -> None:
    members = (Member("a", "n"), Member("b", "n"), Member("z", "s"))
    demand = Demand(members, {"a": {n: 1 for n in range(20)}, "b": {n: 1 for n in range(10, 40)}})
    known = plan(demand)
    grown = Demand((*members, Member("c", "n")), {**demand.holdings, "c": {n: 1 for n in range(18)}})
    made = replan(known, grown, changed={"c"})
    check(known, grown, made)
    assert {(each.broker, each.role, each.after, each.reason) for each in made.moves} == {
        ("a", "local", "c", "better"),  # c has all but two of its subscriptions, b all but ten
        ("c", "local", "a", "new"),
        ("c", "remote", "z", "new"),
    }
    assert replan(known, grown, changed={"c"}, hysteresis=0.4).plan.backups["a"].local == "b"


def test_only_what_concerns_a_change_moves_for_the_better() -> None:
    demand = network(20, 2, 80, 50)
    bad = plan(demand, "random", chance())
    free = replan(bad, demand, hysteresis=0.0)
    near = replan(bad, demand, changed={"b000"}, hysteresis=0.0)
    nobody = replan(bad, demand, changed=(), hysteresis=0.0)
    assert nobody.moves == ()
    assert 0 < len(near.moves) < len(free.moves)
    for move in near.moves:
        place = getattr(bad.backups["b000"], move.role)  # where one is that changed places with it
        assert "b000" in (move.broker, move.before, move.after) or move.after == place


def test_a_backup_that_has_no_room_any_more_is_moved_for_that() -> None:
    members = (Member("a", "n", 99), Member("b", "n", 18), Member("c", "n", 99), Member("z", "s"))
    light = Demand(members, {"a": {1: 2}, "b": {1: 2}, "c": {2: 9}})
    known = plan(light)
    assert known.backups["a"].local == "b"
    heavy = Demand(members, {"a": {1: 15}, "b": {1: 5}, "c": {2: 1}})
    made = replan(known, heavy, hysteresis=math.inf)
    check(known, heavy, made)
    assert [(each.broker, each.after, each.reason) for each in made.moves if each.role == "local"] == [
        ("a", "c", "capacity")
    ]
    m = matrices(heavy)
    x, y = assignments(m, made.plan)
    assert workload(m, x, y, m.names.index("b")) < 18


@pytest.mark.parametrize("wrong", [-0.1, math.nan])
def test_a_hysteresis_that_makes_no_sense_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="hysteresis"):
        replan(plan(network(4, 2, 5, 5)), network(4, 2, 5, 5), hysteresis=wrong)
