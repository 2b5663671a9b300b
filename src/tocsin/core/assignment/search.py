"""A plan that is never worse than LCS and MMCS, and mostly better: several first plans, each improved.

The paper's plan is one of them, with its remotes improved. Another is preferred only if it has less of a shortfall,
or the same and neither ΣO nor max R is larger than in the paper's plan. Where fewer locals make a larger max R, a
plan between the paper's locals and the better ones is looked for by halving the difference. If remotes find no room
because locals took it, locals are planned again with half of each broker's room left free. ``locals_search`` and
``remotes_search`` say how a plan is improved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tocsin.core.assignment.construction import by_regret, largest_first
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.locals_search import improve_locals
from tocsin.core.assignment.neighbourhood import Neighbourhood
from tocsin.core.assignment.paper import least_cost, min_max_cost
from tocsin.core.assignment.relief import relieve
from tocsin.core.assignment.remotes_search import improve_remotes
from tocsin.core.assignment.side import NOBODY, Side
from tocsin.core.assignment.table import Floats, Ints, Table

HALVINGS: Final = 6
Value = tuple[tuple[int, float], int, int]  # shortfalls; ΣO and max R with their handicaps


def search(table: Table) -> Draft:
    """The best plan found."""
    paper = Draft(table)
    least_cost(paper)
    min_max_cost(paper)
    start = Draft(table, with_handicaps=True)
    _follow(start, start.local, paper.local.chosen)
    base = start.copy()
    base.open_remote()
    remotes = paper.remote.chosen
    _follow(base, base.remote, remotes)
    bound = value(base)
    best = _better(_with_remotes(start.copy(), remotes), base, bound)
    for first in _first_plans(start, table.capacity):
        wanted = first.local.chosen
        best = _better(_with_remotes(first, remotes), best, bound)
        if best is not first:
            best = _between(start, wanted, remotes, best, bound)
    if value(best)[0][0]:
        for first in _first_plans(start, table.load + (table.capacity - table.load) / 2):
            best = _better(_with_remotes(first, remotes), best, bound)
    return best


def value(draft: Draft) -> Value:
    """What plans are compared by."""
    return draft.excess(), int(draft.local.cost.sum()), int(draft.remote.cost.max(initial=0))


def _better(one: Draft, other: Draft, bound: Value) -> Draft:
    """The first if it is better than the other, and not worse than ``bound`` in anything."""
    ours = value(one)
    return one if _sound(ours, bound) and ours < value(other) else other


def _sound(ours: Value, bound: Value) -> bool:
    return ours[0] < bound[0] or (ours[0] == bound[0] and ours[1] <= bound[1] and ours[2] <= bound[2])


def _between(start: Draft, wanted: Ints, remotes: Ints, best: Draft, bound: Value) -> Draft:
    """The best plan with some of the wanted locals, and the others as at the start."""
    differing = np.flatnonzero(start.local.chosen != wanted)
    low, high = 0, len(differing)
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        if middle == low:
            break
        draft = start.copy()
        for broker in differing[:middle].tolist():
            draft.move(draft.local, broker, int(wanted[broker]))
        relieve(Neighbourhood(draft, draft.local))
        draft = _with_remotes(draft, remotes)
        if _sound(value(draft), bound):
            low, best = middle, _better(draft, best, bound)
        else:
            high = middle
    return best


def _first_plans(start: Draft, room: Floats) -> Iterator[Draft]:
    """Locals from those of LCS, and by regret, improved."""
    regret = Draft(start.table, with_handicaps=True)
    regret.room = room
    by_regret(regret, np.arange(start.table.count))
    for draft in (start.copy(), regret):
        draft.room = room
        improve_locals(draft)
        draft.room = start.table.capacity
        yield draft


def _with_remotes(draft: Draft, known: Ints) -> Draft:
    """Add the remotes: the better of those that are known and of a plan with the largest first, both improved."""
    draft.open_remote()
    other = draft.copy()
    largest_first(draft, np.arange(draft.table.count))
    improve_remotes(draft)
    if value(draft)[0][0] == 0 and not draft.remote.cost.any():
        return draft
    _follow(other, other.remote, known)
    improve_remotes(other)
    return other if value(other) < value(draft) else draft


def _follow(draft: Draft, side: Side, chosen: Ints) -> None:
    for broker in np.flatnonzero(chosen != NOBODY).tolist():
        draft.add(side, broker, int(chosen[broker]))
