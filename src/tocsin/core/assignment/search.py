"""A plan that is never worse than LCS and MMCS, and mostly better: several first plans, each improved.

The paper's plan is one of them, with its remotes improved. Another is preferred only if it has less of a shortfall,
or the same and neither ΣO nor max R is larger than in the paper's plan. Where fewer locals make a larger max R, a
plan between the paper's locals and the better ones is looked for by halving the difference. If remotes find no room
because locals took it, locals are planned again with half of each broker's room left free. ``locals_search`` and
``remotes_search`` say how a plan is improved. Large networks do with fewer first plans, and nothing between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tocsin.core.assignment.construction import by_regret, largest_first
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.locals_search import improve_locals
from tocsin.core.assignment.paper import least_cost, min_max_cost
from tocsin.core.assignment.remotes_search import improve_remotes
from tocsin.core.assignment.side import NOBODY, Side
from tocsin.core.assignment.table import Floats, Ints, Table

WORK: Final = (
    30_000_000  # all there is for 100 brokers with 3 000 subscriptions each, little for 1 000 of them
)
HALVINGS: Final = 6
Value = tuple[tuple[int, float], int, int]  # shortfalls; ΣO and max R with their handicaps


def search(table: Table, work: int = WORK) -> Draft:
    """The best plan found. ``work``: about how many pairs are looked at in trying whole groups, in each round."""
    paper = Draft(table)
    least_cost(paper)
    start = _again(paper)
    min_max_cost(paper)
    base = start.copy()
    remotes = paper.remote.chosen
    base.open_remote()
    _follow(base, base.remote, remotes)
    return _Search(start, base, remotes, max(work // max(table.pairs, 1), 1)).run()


class _Search:
    """From the paper's plan to a better one."""

    def __init__(self, start: Draft, base: Draft, remotes: Ints, tries: int) -> None:
        self.start = start  # locals of LCS
        self.remotes = remotes  # of MMCS
        self.bound = value(base)
        self.best = base
        self.tries = tries  # backups that are tried as a whole in a round
        self.thorough = tries >= start.table.count  # the network is small enough for all there is

    def run(self) -> Draft:
        table = self.start.table
        self._offer(self._with_remotes(self.start.copy()))
        for first in self._first_plans(table.capacity):
            wanted = first.local.chosen
            self._offer(self._with_remotes(first))
            if self.best is not first and self.thorough:
                self._look_between(wanted)
        if value(self.best)[0][0]:
            for first in self._first_plans(table.load + (table.capacity - table.load) / 2):
                self._offer(self._with_remotes(first))
        return self.best

    def _offer(self, draft: Draft) -> None:
        """Take this plan if it is better than the best, and sound."""
        ours = value(draft)
        if self._sound(ours) and ours < value(self.best):
            self.best = draft

    def _sound(self, ours: Value) -> bool:
        """Not worse than the paper's plan in anything, unless it falls less short."""
        bound = self.bound
        return ours[0] < bound[0] or (ours[0] == bound[0] and ours[1] <= bound[1] and ours[2] <= bound[2])

    def _first_plans(self, room: Floats) -> Iterator[Draft]:
        """Locals from those of LCS, and by regret, improved."""
        drafts = [self.start.copy()]
        if self.thorough:
            regret = Draft(self.start.table, with_handicaps=True)
            regret.room = room
            by_regret(regret, np.arange(regret.table.count))
            drafts.append(regret)
        for draft in drafts:
            draft.room = room
            improve_locals(draft, self.tries)
            draft.room = draft.table.capacity
            yield draft

    def _with_remotes(self, draft: Draft) -> Draft:
        """Add the remotes: the better of those of MMCS and of a plan with the largest first, both improved."""
        draft.open_remote()
        other = draft.copy()
        largest_first(draft, np.arange(draft.table.count))
        improve_remotes(draft)
        reached = value(draft)
        if reached[0][0] == 0 and (reached[2] == 0 or (not self.thorough and self._sound(reached))):
            return draft
        _follow(other, other.remote, self.remotes)
        improve_remotes(other)
        return other if value(other) < reached else draft

    def _look_between(self, wanted: Ints) -> None:
        """Look for a plan with some of the wanted locals, and the others as at the start."""
        differing = np.flatnonzero(self.start.local.chosen != wanted)
        low, high = 0, len(differing)
        for _ in range(HALVINGS):
            middle = (low + high) // 2
            if middle == low:
                break
            draft = self.start.copy()
            for broker in differing[:middle].tolist():
                draft.move(draft.local, broker, int(wanted[broker]))
            draft = self._with_remotes(draft)
            self._offer(draft)
            if self._sound(value(draft)):
                low = middle
            else:
                high = middle


def value(draft: Draft) -> Value:
    """What plans are compared by."""
    return draft.excess(), int(draft.local.cost.sum()), int(draft.remote.cost.max(initial=0))


def _again(paper: Draft) -> Draft:
    """The locals of a draft without handicaps, in one with them."""
    if not paper.table.handicap.any():
        return paper.copy()
    draft = Draft(paper.table, with_handicaps=True)
    _follow(draft, draft.local, paper.local.chosen)
    return draft


def _follow(draft: Draft, side: Side, chosen: Ints) -> None:
    for broker in np.flatnonzero(chosen != NOBODY).tolist():
        draft.add(side, broker, int(chosen[broker]))
