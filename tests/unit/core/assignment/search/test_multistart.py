"""The parts of the search: each only ever improves what it is for."""

from __future__ import annotations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.demands import demands, network
from tests.unit.core.assignment.representations import BOTH, dense, sparse
from tests.unit.core.assignment.search.test_neighbourhood import drafted
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.paper import least_cost, min_max_cost
from tocsin.core.assignment.planning import plan
from tocsin.core.assignment.search.construction import by_regret, largest_first
from tocsin.core.assignment.search.locals import improve_locals
from tocsin.core.assignment.search.multistart import THOROUGH_MAX, parts, search, value
from tocsin.core.assignment.search.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.search.remotes import chain, improve_remotes, lowering
from tocsin.core.assignment.side import NOBODY
from tocsin.core.assignment.table import Table


@settings(max_examples=80)
@given(demands(least=2, most=9), st.integers(0, 30), st.integers(0, 99), st.sampled_from(sorted(BOTH)))
def test_improved_locals_are_no_more_in_sum_unless_that_makes_room(
    demand: Demand, moves: int, seed: int, way: str
) -> None:
    draft, side = drafted(demand, "local", moves, seed, way)
    backed = side.chosen != NOBODY
    cost, excess = int(side.cost.sum()), draft.excess()
    improve_locals(draft)
    assert ((side.chosen != NOBODY) == backed).all()
    assert draft.excess() <= excess or draft.excess()[1] <= excess[1]
    if draft.excess() == excess == (0, 0.0):
        assert int(side.cost.sum()) <= cost


@settings(max_examples=80)
@given(demands(least=2, most=9), st.integers(0, 30), st.integers(0, 99), st.sampled_from(sorted(BOTH)))
def test_improved_remotes_are_no_more_at_the_largest_unless_that_makes_room(
    demand: Demand, moves: int, seed: int, way: str
) -> None:
    draft, side = drafted(demand, "remote", moves, seed, way)
    largest, excess = int(side.cost.max()), draft.excess()
    improve_remotes(draft)
    if draft.excess() == excess == (0, 0.0):
        assert int(side.cost.max()) <= largest


@settings(max_examples=60)
@given(demands(least=2, most=9))
def test_first_plans_give_everybody_who_can_have_one_a_backup(demand: Demand) -> None:
    draft = Draft(Table.of(demand))
    everybody = np.arange(draft.table.count)
    by_regret(draft, everybody)
    assert ((draft.local.chosen != NOBODY) == draft.local.allowed.any(axis=1)).all()
    draft.open_remote()
    largest_first(draft, everybody)
    assert ((draft.remote.chosen != NOBODY) == draft.remote.allowed.any(axis=1)).all()


def test_locals_that_leave_no_room_for_remotes_are_planned_again() -> None:
    demand = network(20, 2, 60, 40, room=3.05)
    assert not plan(demand).shortfalls


@settings(max_examples=60)
@given(demands(least=1, most=10, handicaps=True), st.booleans())
def test_matrix_and_list_plans_are_no_worse_than_the_papers(demand: Demand, thorough: bool) -> None:
    theirs = value(_paper(demand))
    for table in (dense(demand), sparse(demand)):
        ours = value(search(table, THOROUGH_MAX if thorough else 0))
        assert ours[0] <= theirs[0]
        if ours[0] == theirs[0]:
            assert ours[1] <= theirs[1]
            assert ours[2] <= theirs[2]


def _paper(demand: Demand) -> Draft:
    """The paper's plan, with what handicaps make of its costs."""
    plain = Draft(Table.of(demand))
    least_cost(plain)
    min_max_cost(plain)
    draft = Draft(plain.table, with_handicaps=True)
    draft.follow(draft.local, plain.local.chosen)
    draft.follow(draft.open_remote(), plain.remote.chosen)
    return draft


@settings(max_examples=60)
@given(demands(least=1, most=9))
def test_the_parts_of_a_network_are_its_clusters_or_all_of_it(demand: Demand) -> None:
    [whole] = parts(sparse(demand))
    assert whole.table.count == len(demand.members)
    found = parts(dense(demand))
    assert sorted(i for each in found for i in each.brokers.tolist()) == list(range(len(demand.members)))
    assert len(found) == len({each.cluster for each in demand.members})
    for each in found:
        assert len(set(each.table.cluster.tolist())) == 1


@settings(max_examples=60)
@given(demands(least=2, most=9), st.integers(0, 20), st.integers(0, 99), st.integers(0, 12))
def test_remotes_are_improved_until_it_is_enough_or_nothing_helps(
    demand: Demand, moves: int, seed: int, enough: int
) -> None:
    draft, side = drafted(demand, "remote", moves, seed)
    twin = draft.copy()
    improve_remotes(draft)
    improve_remotes(twin, enough)
    assert (twin.remote.cost.max() <= enough) >= (side.cost.max() <= enough)
    improve_remotes(twin)
    if not twin.excess()[0]:
        assert (twin.remote.chosen == side.chosen).all()


def test_a_chain_lowers_the_largest_where_no_single_step_does() -> None:
    # m backs a and b, n backs c, which holds much that few want. Only n has room for a, if c is gone; o has room for c.
    clusters = {"a": "s", "b": "s", "c": "s", "m": "n", "n": "n", "o": "n"}
    sizes = {"a": 4, "b": 5, "c": 4, "m": 1, "n": 1, "o": 1}
    room = {"m": 11, "n": 6, "o": 4}
    holdings = {name: {(name, k): 1 for k in range(size)} for name, size in sizes.items()}
    rates = {("c", k): 0.5 for k in range(4)}
    members = tuple(Member(name, clusters[name], room.get(name, 99)) for name in clusters)
    draft = Draft(Table.of(Demand(members, holdings, rates)))
    draft.open_remote()
    for broker, backup in ((0, 3), (1, 3), (2, 4)):
        draft.add(draft.remote, broker, backup)
    hood = Neighbourhood(draft, draft.remote)
    assert draft.remote.cost.max() == 9
    assert lowering(hood, 3) is None
    assert chain(hood, 3) == [Step(0, 2, 5), Step(0, 0, 4)]
    twin = draft.copy()
    improve_remotes(twin, chains=False)
    assert twin.remote.cost.max() == 9
    improve_remotes(draft)
    assert draft.remote.cost.max() == 5
    assert not draft.excess()[0]


@settings(max_examples=80)
@given(demands(least=3, most=10), st.integers(0, 30), st.integers(0, 99), st.sampled_from(sorted(BOTH)))
def test_a_chain_leaves_everybody_in_it_below_the_largest_and_overfills_nobody(
    demand: Demand, moves: int, seed: int, way: str
) -> None:
    draft, side = drafted(demand, "remote", moves, seed, way)
    hood = Neighbourhood(draft, side)
    top = int(np.argmax(side.cost))
    largest, carried = side.cost[top], draft.carried.copy()
    steps = chain(hood, top)
    event("a chain" if steps else "none")
    touched = {top, *(each.backup for each in steps)}
    for each in steps:
        hood.make(each)
    if steps:
        assert max(side.cost[each] for each in touched) < largest
    over = draft.carried >= draft.room
    assert (draft.carried[over] <= carried[over]).all()
