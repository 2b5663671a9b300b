"""Plans of every strategy against the definitions of the paper, computed the slow way."""

from __future__ import annotations

import math

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.definitions import (
    assignments,
    feasible,
    lcs,
    matrices,
    mmcs,
    objectives,
    overhead,
    remote_overhead,
    workload,
)
from tests.unit.core.assignment.demands import chance, demands, network
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.outcome import Plan
from tocsin.core.assignment.planning import Strategy, plan

STRATEGIES: list[Strategy] = ["search", "lcs_mmcs", "random"]


def excess(made: Plan) -> tuple[int, float]:
    short = [each for each in made.shortfalls if each.kind == "capacity"]
    return len(short), math.fsum({each.backup: each.needed - each.available for each in short}.values())


@settings(max_examples=80)
@given(demands(handicaps=True), st.sampled_from(STRATEGIES), st.integers(0, 9))
def test_the_figures_of_a_plan_are_those_of_the_equations(
    demand: Demand, strategy: Strategy, seed: int
) -> None:
    made = plan(demand, strategy, chance(seed))
    m = matrices(demand)
    x, y = assignments(m, made)
    assert list(made.backups) == m.names
    for j, name in enumerate(m.names):
        assert made.overhead[name] == overhead(m, x, j)
        assert made.remote_overhead[name] == remote_overhead(m, x, y, j)
        assert made.load[name] == workload(m, x, y, j)
    if m.names:
        assert (made.overhead_total, made.remote_max) == objectives(m, x, y)


@settings(max_examples=80)
@given(demands(handicaps=True), st.sampled_from(STRATEGIES), st.integers(0, 9))
def test_a_plan_is_feasible_or_says_where_it_is_not(demand: Demand, strategy: Strategy, seed: int) -> None:
    made = plan(demand, strategy, chance(seed))
    m = matrices(demand)
    x, y = assignments(m, made)
    event("feasible" if not made.shortfalls else "falls short")
    assert feasible(m, x, y) == (not made.shortfalls)
    for i, name in enumerate(m.names):
        for role, given_to, candidates in (("local", x, m.e[i]), ("remote", y, [1 - e for e in m.e[i]])):
            able = [j for j, may in enumerate(candidates) if may and j != i]
            assert sum(given_to[i]) == (1 if able else 0)
            assert all(j in able for j, chosen in enumerate(given_to[i]) if chosen)
            told = [each for each in made.shortfalls if (each.broker, each.role) == (name, role)]
            if not able:
                assert [each.kind for each in told] == ["nobody"]
            for each in told:
                if each.kind == "capacity":
                    assert each.backup is not None
                    j = m.names.index(each.backup)
                    assert given_to[i][j]
                    assert m.capacity[j] == each.available <= each.needed <= workload(m, x, y, j)
    overfull = {
        name
        for j, name in enumerate(m.names)
        if workload(m, x, y, j) >= m.capacity[j] and any(x[i][j] or y[i][j] for i in range(len(m.names)))
    }
    assert {each.backup for each in made.shortfalls if each.kind == "capacity"} == overfull


@settings(max_examples=80)
@given(demands(handicaps=True))
def test_the_papers_strategy_is_its_algorithms_line_by_line(demand: Demand) -> None:
    m = matrices(demand)
    x = lcs(m)
    y = mmcs(m, x)
    assert assignments(m, plan(demand, "lcs_mmcs")) == (x, y)


@settings(max_examples=100)
@given(demands(least=2, most=10))
def test_the_search_is_never_worse_than_the_papers_strategy(demand: Demand) -> None:
    ours, theirs = plan(demand, "search"), plan(demand, "lcs_mmcs")
    assert excess(ours) <= excess(theirs)
    if excess(ours) == excess(theirs):
        assert ours.overhead_total <= theirs.overhead_total
        assert ours.remote_max <= theirs.remote_max
    event(
        "better"
        if (ours.overhead_total, ours.remote_max) != (theirs.overhead_total, theirs.remote_max)
        else "same"
    )


@pytest.mark.parametrize("room", [8.0, 4.0, 3.1])
def test_the_search_is_better_in_the_papers_setting(room: float) -> None:
    demand = network(30, 3, 300, 300, room=room)
    ours, theirs = plan(demand, "search"), plan(demand, "lcs_mmcs")
    assert not ours.shortfalls
    assert (ours.overhead_total, ours.remote_max) < (theirs.overhead_total, theirs.remote_max)


def test_a_plan_does_not_depend_on_the_order_of_its_input() -> None:
    demand = network(12, 3, 60, 40, room=4.0)
    turned = Demand(
        demand.members[::-1],
        {name: dict(reversed(list(held.items()))) for name, held in reversed(list(demand.holdings.items()))},
    )
    for strategy in STRATEGIES:
        assert plan(turned, strategy, chance()) == plan(demand, strategy, chance())


def test_equal_candidates_are_chosen_by_name() -> None:
    members = tuple(
        Member(name, cluster) for name, cluster in zip("cbadef", ["n"] * 3 + ["s"] * 3, strict=True)
    )
    made = plan(Demand(members, {name: {"k": 1} for name in "abcdef"}), "lcs_mmcs")
    assert [made.backups[name].local for name in "abc"] == ["b", "a", "a"]
    assert [made.backups[name].remote for name in "abc"] == ["d", "d", "d"]


def test_chance_decides_a_random_plan_and_nothing_else() -> None:
    demand = network(12, 3, 60, 40)
    assert plan(demand, "random", chance(1)) == plan(demand, "random", chance(1))
    assert plan(demand, "random", chance(1)) != plan(demand, "random", chance(2))
    with pytest.raises(ValueError, match="rng"):
        plan(demand, "random")


def test_a_broker_alone_has_no_backups_and_the_plan_says_so() -> None:
    made = plan(Demand((Member("only", "north"),), {"only": {"k": 3}}))
    assert [str(each) for each in made.shortfalls] == [
        "only has no local backup: its cluster has no other broker",
        "only has no remote backup: there is no other cluster",
    ]


def test_without_room_the_least_bad_is_taken_and_named() -> None:
    members = (
        Member("a", "n", 100),
        Member("b", "n", 12),
        Member("c", "n", 11),
        Member("d", "s"),
        Member("e", "s"),
    )
    demand = Demand(members, {"a": {"k": 50}, "b": {"k": 1}, "c": {"k": 1}, "d": {"k": 1}, "e": {"k": 1}})
    for strategy in STRATEGIES[:2]:
        made = plan(demand, strategy)
        assert made.backups["a"].local == "b"
        [short] = made.shortfalls
        assert (short.broker, short.role, short.kind, short.needed, short.available, short.backup) == (
            "a", "local", "capacity", 51, 12, "b",
        )  # fmt: skip
        assert str(short) == (
            "a has b as local backup, which would have to carry 51 and can carry less than 12: "
            "give a broker more capacity, or add one"
        )


def test_the_search_finds_room_where_the_papers_strategy_does_not() -> None:
    # b takes the room at a which c needs, because a comes first in the order of names.
    members = (*(Member(name, "n", 10) for name in "abc"), Member("d", "s"), Member("e", "s"))
    demand = Demand(members, {"a": {1: 5}, "b": {1: 1}, "c": {1: 4}, "d": {1: 1}, "e": {1: 1}})
    assert [each.broker for each in plan(demand, "lcs_mmcs").shortfalls] == ["c"]
    assert not plan(demand, "search").shortfalls


def test_a_handicap_keeps_backups_away_from_a_broker() -> None:
    holdings = {name: {"k": 1} for name in "abcd"}
    free = plan(Demand(tuple(Member(name, "n") for name in "abcd"), holdings))
    assert "a" in {each.local for each in free.backups.values()}
    members = (Member("a", "n", handicap=3), *(Member(name, "n") for name in "bcd"))
    kept = plan(Demand(members, holdings))
    assert "a" not in {each.local for each in kept.backups.values()}
    assert kept.overhead_total == 0  # handicaps are no subscriptions


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("room", [math.inf, 8.0, 5.0, 4.0, 3.2, 2.5])
def test_the_search_is_never_worse_on_networks_of_the_papers_size(room: float, seed: int) -> None:
    demand = network(100, 3, 1_000, 1_000, room=room, seed=seed)
    ours, theirs = plan(demand, "search"), plan(demand, "lcs_mmcs")
    assert excess(ours) <= excess(theirs)
    if excess(ours) == excess(theirs):
        assert ours.overhead_total <= theirs.overhead_total
        assert ours.remote_max <= theirs.remote_max
