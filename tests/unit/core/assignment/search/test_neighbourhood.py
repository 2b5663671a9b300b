"""What changes would save, as it is kept up, against making them and counting."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.demands import chance, demands
from tests.unit.core.assignment.representations import BOTH
from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.paper import least_cost
from tocsin.core.assignment.search import neighbourhood
from tocsin.core.assignment.search.locals import sweep
from tocsin.core.assignment.search.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.search.relief import relieve
from tocsin.core.assignment.side import NOBODY, Side
from tocsin.core.assignment.table import Bools, Ints


def drafted(demand: Demand, role: str, moves: int, seed: int, way: str = "dense") -> tuple[Draft, Side]:
    """A draft with some random moves on one side."""
    draws = chance(seed)
    draft = Draft(BOTH[way](demand), with_handicaps=True)
    if role == "remote":
        least_cost(draft)
        draft.open_remote()
    side = draft.local if role == "local" else draft.remote
    for _ in range(moves):
        broker = draws.below(draft.table.count)
        candidates = np.flatnonzero(side.allowed[broker])
        if side.chosen[broker] != NOBODY:
            draft.remove(side, broker)
        if len(candidates):
            draft.add(side, broker, int(candidates[draws.below(len(candidates))]))
    return draft, side


def covered(draft: Draft, side: Side, j: int) -> set[int]:
    """What j covers, from the definition."""
    brokers = [j, *side.group[j], *(draft.local.group[j] if side is not draft.local else ())]
    return {k for each in brokers for k in draft.table.row(each).tolist()}


some_drafts = st.builds(
    drafted,
    demands(least=1, most=9, handicaps=True),
    st.sampled_from(["local", "remote"]),
    st.integers(0, 25),
    st.integers(0, 99),
    st.sampled_from(sorted(BOTH)),
)


@settings(max_examples=80)
@given(some_drafts)
def test_a_side_keeps_its_invariants_through_any_moves(made: tuple[Draft, Side]) -> None:
    draft, side = made
    table = draft.table
    for j in range(table.count):
        bases = [j, *(draft.local.group[j] if side is not draft.local else ())]
        own = {k for each in bases for k in table.row(each).tolist()}
        cover = covered(draft, side, j)
        assert side.group[j] == np.flatnonzero(side.chosen == j).tolist()
        penalties = int(table.handicap[j]) * len(side.group[j])
        assert side.cost[j] == sum(int(table.weight[k]) for k in cover - own) + penalties
        for i in range(table.count):
            missing = set(table.row(i).tolist()) - cover
            assert side.missing[i, j] == sum(int(table.weight[k]) for k in missing) + table.handicap[j]


@settings(max_examples=80)
@given(some_drafts)
def test_every_change_costs_what_the_neighbourhood_says(made: tuple[Draft, Side]) -> None:
    draft, side = made
    hood = Neighbourhood(draft, side)
    before = int(side.cost.sum())
    for broker in np.flatnonzero(side.chosen != NOBODY).tolist():
        steps = [
            Step(int(hood.saved[broker] - added), broker, place)
            for place, added in enumerate(hood.places(np.array([broker]))[0].tolist())
            if side.allowed[broker, place] and draft.fits(broker)[place] and place != side.chosen[broker]
        ]
        may, there, here = (each[0] for each in hood.exchanges(np.array([broker])))
        for other in np.flatnonzero(may).tolist():
            gain = int(hood.saved[broker] + hood.saved[other] - there[other] - here[other])
            steps.append(Step(gain, broker, int(side.chosen[other]), other))
        for step in steps:
            trial = draft.copy()
            changed = trial.local if side is draft.local else trial.remote
            Neighbourhood(trial, changed).make(step)
            assert before - int(changed.cost.sum()) == step.gain
            over = trial.carried - draft.table.capacity
            assert ((over < 0) | (over <= draft.carried - draft.table.capacity)).all()


@settings(max_examples=80)
@given(some_drafts)
def test_prices_are_right_after_changes_too(made: tuple[Draft, Side]) -> None:
    draft, side = made
    hood = Neighbourhood(draft, side)
    sweep(hood, np.zeros(draft.table.count, dtype=np.int64))
    anew = Neighbourhood(draft, side)
    backed = side.chosen != NOBODY
    assert (hood.saved[backed] == anew.saved[backed]).all()
    assert (hood.bared[backed] == anew.bared[backed]).all()


@settings(max_examples=80)
@given(some_drafts)
def test_backups_that_come_at_once_are_the_same_as_one_by_one(made: tuple[Draft, Side]) -> None:
    draft, side = made
    anew = Draft(draft.table, with_handicaps=True)
    anew.follow(anew.local, draft.local.chosen)
    assert (anew.local.missing == draft.local.missing).all()
    assert (anew.local.cost == draft.local.cost).all()
    if side is not draft.local:
        anew.follow(anew.open_remote(), side.chosen)
        assert (anew.remote.missing == side.missing).all()
        assert (anew.remote.cost == side.cost).all()
        assert anew.remote.group == side.group
    assert (anew.carried == draft.carried).all()
    assert anew.local.group == draft.local.group


@settings(max_examples=80)
@given(some_drafts, st.data())
def test_the_first_change_is_the_best_of_the_first_improvable_broker(
    made: tuple[Draft, Side], data: st.DataObject
) -> None:
    draft, side = made
    hood, count = Neighbourhood(draft, side), draft.table.count
    toll = np.array(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    near = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    asked = near if data.draw(st.booleans()) else None
    begin = data.draw(st.integers(0, count))
    options = (best(hood, broker, toll, asked) for broker in range(begin, count))
    expected = next((each for each in options if each is not None), None)
    for cells in (1, count * 3, 1 << 14):
        with patch.object(neighbourhood, "CELLS_MAX", cells):
            assert hood.first(begin, toll, asked) == expected


def best(hood: Neighbourhood, broker: int, toll: Ints, near: Bools | None) -> Step | None:
    """The best change of one broker, each of them tried by itself: the first place, then the first partner."""
    draft, side = hood.draft, hood.side
    if side.chosen[broker] == NOBODY or not hood.saved[broker]:
        return None
    found: Step | None = None
    worth = 0

    def propose(step: Step, moved: list[int]) -> None:
        nonlocal found, worth
        touched = {*moved, *side.chosen[moved].tolist(), step.backup}
        if near is not None and not any(near[each] for each in touched):
            return
        value = step.gain - (int(toll[step.partner]) if step.partner != NOBODY else 0)
        if found is None or value > worth:
            found, worth = step, value

    for place in np.flatnonzero(side.allowed[broker] & draft.fits(broker)).tolist():
        if place != side.chosen[broker]:
            propose(Step(_gain(draft, side, Step(0, broker, place)), broker, place), [broker])
    own = int(side.chosen[broker])
    for other in np.flatnonzero(side.chosen != NOBODY).tolist():
        theirs = int(side.chosen[other])
        if theirs == own or not side.allowed[broker, theirs] or not side.allowed[other, own]:
            continue
        more = draft.table.load[broker] - draft.table.load[other]
        ways = ((theirs, more), (own, -more))
        if all(draft.carried[j] + load < draft.room[j] or load <= 0 for j, load in ways):
            step = Step(0, broker, theirs, other)
            propose(step._replace(gain=_gain(draft, side, step)), [broker, other])
    return found if found is not None and worth > toll[broker] else None


def _gain(draft: Draft, side: Side, step: Step) -> int:
    """What a step saves, by making it in a copy."""
    trial = draft.copy()
    changed = trial.local if side is draft.local else trial.remote
    Neighbourhood(trial, changed).make(step)
    return int(side.cost.sum() - changed.cost.sum())


@settings(max_examples=80)
@given(some_drafts)
def test_relief_takes_from_the_overfull_and_overfills_nobody(made: tuple[Draft, Side]) -> None:
    draft, side = made
    before, backed = draft.carried.copy(), (side.chosen != NOBODY).sum()
    relieve(Neighbourhood(draft, side))
    was_over, is_over = before >= draft.table.capacity, draft.carried >= draft.table.capacity
    assert not (is_over & ~was_over).any()
    assert (draft.carried[is_over] <= before[is_over]).all()
    assert (side.chosen != NOBODY).sum() == backed
