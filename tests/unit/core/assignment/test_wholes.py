"""Changes of whole groups: they pay as much as was said, and one by one as all at once."""

from __future__ import annotations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.demands import demands
from tests.unit.core.assignment.representations import BOTH
from tests.unit.core.assignment.test_neighbourhood import drafted
from tocsin.core.assignment.construction import by_regret
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.neighbourhood import Neighbourhood
from tocsin.core.assignment.side import Side
from tocsin.core.assignment.table import Table
from tocsin.core.assignment.wholes import dissolve, dissolvings, gather, gatherings

local_drafts = st.builds(
    drafted,
    demands(least=2, most=9, handicaps=True),
    st.just("local"),
    st.integers(0, 30),
    st.integers(0, 99),
    st.sampled_from(sorted(BOTH)),
)


@settings(max_examples=80)
@given(local_drafts)
def test_many_backups_at_once_are_looked_at_as_each_by_itself(made: tuple[Draft, Side]) -> None:
    hood = Neighbourhood(*made)
    everybody = np.arange(hood.draft.table.count)
    for look in (gatherings, dissolvings):
        assert look(hood, everybody) == [look(hood, np.array([each]))[0] for each in everybody]


@settings(max_examples=80)
@given(local_drafts)
def test_whole_groups_move_only_if_the_sum_falls_and_nobody_is_overfilled(made: tuple[Draft, Side]) -> None:
    draft, side = made
    hood = Neighbourhood(draft, side)
    everybody = range(draft.table.count)
    for change in (gather, dissolve):
        before, carried = side.cost.sum(), draft.carried.copy()
        chosen = side.chosen.copy()
        change(hood, everybody)
        if (side.chosen != chosen).any():
            event(change.__name__)
            assert side.cost.sum() < before
        over = draft.carried >= draft.room
        assert (draft.carried[over] <= carried[over]).all()


@settings(max_examples=80)
@given(local_drafts)
def test_a_group_is_dissolved_as_by_regret_if_that_pays(made: tuple[Draft, Side]) -> None:
    draft, side = made
    hood = Neighbourhood(draft, side)
    for backup in range(draft.table.count):
        group = list(side.group[backup])
        trial = draft.copy()
        trial.room = trial.room.copy()
        trial.room[backup] = -1
        for broker in group:
            trial.remove(trial.local, broker)
        by_regret(trial, np.array(group, dtype=np.int64))
        fits = all(trial.carried[each] < trial.room[each] for each in trial.local.chosen[group].tolist())
        pays = fits and trial.local.cost.sum() < side.cost.sum()
        [found] = dissolvings(hood, np.array([backup]))
        assert dict(found) == ({each: trial.local.chosen[each] for each in group} if pays else {})


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
    gather(hood, [0])
    assert hood.side.group[0] == [1, 2, 3]
    assert hood.side.cost.sum() == 6


def test_a_gathering_goes_no_further_than_there_is_room() -> None:
    hood = alike()
    hood.draft.room = hood.draft.room.copy()
    hood.draft.room[0] = 13.0  # for two of six each, and then they do not pay enough
    gather(hood, [0])
    assert len(hood.side.group[0]) == 2
    hood = alike()
    hood.draft.room = hood.draft.room.copy()
    hood.draft.room[0] = 12.0
    gather(hood, [0])
    assert hood.side.group[0] == []


def test_a_group_is_dissolved_if_others_need_less_for_it_and_else_left_alone() -> None:
    hood = alike()
    dissolve(hood, [4])  # x backs p, for which q has everything
    assert hood.side.group[4] == []
    assert hood.side.cost.sum() == 8
    before = hood.side.chosen.tolist()
    backup = int(hood.side.chosen[1])
    dissolve(hood, [backup])
    assert hood.side.cost.sum() == 8
    assert hood.side.chosen.tolist() == before
    anew = Neighbourhood(hood.draft, hood.side)
    assert (anew.saved == hood.saved).all()
