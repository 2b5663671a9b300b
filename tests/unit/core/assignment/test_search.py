"""The parts of the search: each only ever improves what it is for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.demands import demands, network
from tests.unit.core.assignment.test_neighbourhood import drafted
from tocsin.core.assignment import locals_search
from tocsin.core.assignment.construction import by_regret, largest_first
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.locals_search import dissolve, gather, improve_locals
from tocsin.core.assignment.neighbourhood import Neighbourhood
from tocsin.core.assignment.planning import plan
from tocsin.core.assignment.remotes_search import improve_remotes
from tocsin.core.assignment.search import search
from tocsin.core.assignment.side import NOBODY
from tocsin.core.assignment.table import Table


@settings(max_examples=100)
@given(demands(least=2, most=9), st.integers(0, 30), st.integers(0, 99))
def test_improved_locals_are_no_more_in_sum_unless_that_makes_room(
    demand: Demand, moves: int, seed: int
) -> None:
    draft, side = drafted(demand, "local", moves, seed)
    backed = side.chosen != NOBODY
    cost, excess = int(side.cost.sum()), draft.excess()
    improve_locals(draft, draft.table.count)
    assert ((side.chosen != NOBODY) == backed).all()
    assert draft.excess() <= excess or draft.excess()[1] <= excess[1]
    if draft.excess() == excess == (0, 0.0):
        assert int(side.cost.sum()) <= cost


@settings(max_examples=100)
@given(demands(least=2, most=9), st.integers(0, 30), st.integers(0, 99))
def test_improved_remotes_are_no_more_at_the_largest_unless_that_makes_room(
    demand: Demand, moves: int, seed: int
) -> None:
    draft, side = drafted(demand, "remote", moves, seed)
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


def alike() -> Neighbourhood:
    """p, q and r hold the same; x, y and z each hold a third of that and back one of them; h holds nothing of it."""
    holdings: dict[str, dict[object, int]] = {name: {n: 1 for n in range(6)} for name in "pqr"}
    holdings |= {name: {2 * at: 1, 2 * at + 1: 1} for at, name in enumerate("xyz")}
    names = sorted([*holdings, "h"])
    draft = Draft(Table.of(Demand(tuple(Member(name, "n") for name in names), holdings)))
    for broker, backup in zip("pqr", "xyz", strict=True):
        draft.add(draft.local, names.index(broker), names.index(backup))
    return Neighbourhood(draft, draft.local)


def test_a_gathering_moves_several_where_one_alone_would_not_pay() -> None:
    hood = alike()
    assert hood.draft.table.names == tuple("hpqrxyz")
    assert (hood.saved[1:4] - hood.side.missing[1:4, 0] < 0).all()
    assert hood.side.cost.sum() == 12
    gather(hood, 0)
    assert hood.side.group[0] == [1, 2, 3]
    assert hood.side.cost.sum() == 6


def test_a_gathering_goes_no_further_than_there_is_room() -> None:
    hood = alike()
    hood.draft.room = hood.draft.room.copy()
    hood.draft.room[0] = 13.0  # for two of six each, and then they do not pay enough
    gather(hood, 0)
    assert len(hood.side.group[0]) == 2
    hood = alike()
    hood.draft.room = hood.draft.room.copy()
    hood.draft.room[0] = 12.0
    gather(hood, 0)
    assert hood.side.group[0] == []


def test_a_group_is_dissolved_if_others_need_less_for_it_and_else_left_alone() -> None:
    hood = alike()
    dissolve(hood, 4)  # x backs p, for which q has everything
    assert hood.side.group[4] == []
    assert hood.side.cost.sum() == 8
    before = hood.side.chosen.tolist()
    backup = int(hood.side.chosen[1])
    dissolve(hood, backup)
    assert hood.side.cost.sum() == 8
    assert hood.side.chosen.tolist() == before
    anew = Neighbourhood(hood.draft, hood.side)
    assert (anew.saved == hood.saved).all()


def test_the_work_of_the_search_is_bounded_by_the_size_of_what_it_looks_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []
    monkeypatch.setattr(locals_search, "gather", lambda hood, backup: tried.append(backup))
    monkeypatch.setattr(locals_search, "dissolve", lambda hood, backup: None)
    demand = network(20, 2, 50, 40)
    pairs = sum(len(held) for held in demand.holdings.values())
    search(Table.of(demand), work=3 * pairs)
    assert len(tried) == 3  # of the one first plan three backups
    tried.clear()
    search(Table.of(demand))
    assert len(tried) == 2 * 20  # of two first plans all


def test_locals_that_leave_no_room_for_remotes_are_planned_again() -> None:
    demand = network(20, 2, 60, 40, room=3.05)
    assert not plan(demand).shortfalls
