"""What changes would save, as it is kept up, against making them and counting."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.demands import chance, demands
from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.paper import least_cost
from tocsin.core.assignment.relief import relieve
from tocsin.core.assignment.side import NOBODY, Side
from tocsin.core.assignment.table import Table


def drafted(demand: Demand, role: str, moves: int, seed: int) -> tuple[Draft, Side]:
    """A draft with some random moves on one side."""
    draws = chance(seed)
    draft = Draft(Table.of(demand), with_handicaps=True)
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
)


@settings(max_examples=100)
@given(some_drafts)
def test_a_side_keeps_its_invariants_through_any_moves(made: tuple[Draft, Side]) -> None:
    draft, side = made
    table = draft.table
    for j in range(table.count):
        own = {k for each in side._bases[j] for k in table.row(each).tolist()}
        cover = covered(draft, side, j)
        assert side.group[j] == np.flatnonzero(side.chosen == j).tolist()
        penalties = int(table.handicap[j]) * len(side.group[j])
        assert side.cost[j] == sum(int(table.weight[k]) for k in cover - own) + penalties
        for i in range(table.count):
            missing = set(table.row(i).tolist()) - cover
            assert side.missing[i, j] == sum(int(table.weight[k]) for k in missing) + table.handicap[j]


@settings(max_examples=100)
@given(some_drafts)
def test_every_change_costs_what_the_neighbourhood_says(made: tuple[Draft, Side]) -> None:
    draft, side = made
    hood = Neighbourhood(draft, side)
    before = int(side.cost.sum())
    for broker in np.flatnonzero(side.chosen != NOBODY).tolist():
        steps = [
            Step(int(hood.saved[broker] - added), broker, place)
            for place, added in enumerate(hood.places(broker).tolist())
            if side.allowed[broker, place] and draft.fits(broker)[place] and place != side.chosen[broker]
        ]
        others, there, here = hood.partners(broker)
        for other, at_theirs, at_its in zip(others.tolist(), there.tolist(), here.tolist(), strict=True):
            gain = int(hood.saved[broker] + hood.saved[other] - at_theirs - at_its)
            steps.append(Step(gain, broker, int(side.chosen[other]), other))
        for step in steps:
            trial = draft.copy()
            changed = trial.local if side is draft.local else trial.remote
            Neighbourhood(trial, changed).make(step)
            assert before - int(changed.cost.sum()) == step.gain
            over = trial.carried - draft.table.capacity
            assert ((over < 0) | (over <= draft.carried - draft.table.capacity)).all()


@settings(max_examples=100)
@given(some_drafts)
def test_prices_are_right_after_changes_too(made: tuple[Draft, Side]) -> None:
    draft, side = made
    hood = Neighbourhood(draft, side)
    toll = np.zeros(draft.table.count, dtype=np.int64)
    for broker in range(draft.table.count):
        step = hood.best(broker, toll)
        if step is not None:
            hood.make(step)
    anew = Neighbourhood(draft, side)
    backed = side.chosen != NOBODY
    assert (hood.saved[backed] == anew.saved[backed]).all()
    assert (hood.bared[backed] == anew.bared[backed]).all()


@settings(max_examples=100)
@given(some_drafts)
def test_relief_takes_from_the_overfull_and_overfills_nobody(made: tuple[Draft, Side]) -> None:
    draft, side = made
    before, backed = draft.carried.copy(), (side.chosen != NOBODY).sum()
    relieve(Neighbourhood(draft, side))
    was_over, is_over = before >= draft.table.capacity, draft.carried >= draft.table.capacity
    assert not (is_over & ~was_over).any()
    assert (draft.carried[is_over] <= before[is_over]).all()
    assert (side.chosen != NOBODY).sum() == backed
