"""A plan that is never worse than LCS and MMCS, and mostly better: several first plans, each improved.

Locals are planned cluster by cluster, for they know no other clusters: from those of LCS and, if the network is not too
large, from a plan by regret; each cluster has the better of both. A plan is preferred to the paper's only if it has
less of a shortfall, or the same and neither ΣO nor max R is larger. The plan with the least ΣO is chosen, and then the
one with the least max R: so remotes are only looked at as long as it takes to know that max R is no larger, and
improved further for the plan that is chosen.

Where fewer locals make a larger max R, a plan between the paper's locals and the better ones is looked for by halving
the difference. If remotes find no room because locals took it, locals are planned again with half of each broker's room
left free. ``locals_search`` and ``remotes_search`` say how a plan is improved. Large networks do with fewer first
plans, and nothing between.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.paper import least_cost, min_max_cost
from tocsin.core.assignment.search.construction import by_regret, largest_first
from tocsin.core.assignment.search.locals import improve_locals
from tocsin.core.assignment.search.remotes import improve_remotes
from tocsin.core.assignment.side import NOBODY
from tocsin.core.assignment.table import Floats, Ints, Table

# Brokers × pairs up to which a network is searched thoroughly: 100 brokers with 3 000 subscriptions each.
THOROUGH_MAX: Final = 30_000_000
HALVINGS: Final = 6
Value = tuple[tuple[int, float], int, int]  # shortfalls; ΣO and max R with their handicaps


def search(table: Table, thorough_max: int = THOROUGH_MAX) -> Draft:
    """The best plan found; a network of up to so many brokers × pairs is searched thoroughly."""
    return _Search(table, table.count * table.pairs <= thorough_max).run()


class Part(NamedTuple):
    """Brokers whose locals are planned by themselves, and their table."""

    brokers: Ints
    table: Table


def parts(table: Table) -> list[Part]:
    """The clusters, if their tables are small enough; else all brokers together."""
    found = []
    for cluster in np.unique(table.cluster):
        brokers = np.flatnonzero(table.cluster == cluster)
        part = table.part(brokers)
        if part is None:
            return [Part(np.arange(table.count), table)]
        found.append(Part(brokers, part))
    return found


class _Plan(NamedTuple):
    """A draft, and whether its remotes come from the largest first, or from MMCS."""

    draft: Draft
    by_size: bool


class _Search:
    """From the paper's plan to a better one."""

    def __init__(self, table: Table, thorough: bool) -> None:
        self.table = table
        self.thorough = thorough
        self.parts = parts(table)
        self.start: Ints = np.full(table.count, NOBODY, dtype=np.int64)  # locals of LCS
        for brokers, part in self.parts:
            draft = Draft(part)
            least_cost(draft)
            self._put(self.start, brokers, draft)
        paper = Draft(table)
        paper.follow(paper.local, self.start)
        min_max_cost(paper)
        self.remotes = paper.remote.chosen  # of MMCS
        if table.handicap.any():
            paper = self._locally(self.start)
            paper.follow(paper.open_remote(), self.remotes)
        self.best = [_Plan(paper, by_size=False)]  # those with the least ΣO
        self.bound = value(paper)

    def run(self) -> Draft:
        table = self.table
        for room in (table.capacity, table.load + (table.capacity - table.load) / 2):
            for wanted in self._wanted(room):
                if not self._propose(wanted) and self.thorough and room is table.capacity:
                    self._look_between(wanted)
            if not value(self.best[0].draft)[0][0]:
                break
        return self._lowest()

    def _propose(self, wanted: Ints) -> bool:
        """Keep a plan with these locals if none is better but for max R; whether it is sound."""
        plan = self._with_remotes(wanted, self.bound[2])
        ours, best = value(plan.draft), value(self.best[0].draft)
        if not self._sound(ours):
            return False
        if ours[:2] < best[:2]:
            self.best = [plan]
        elif ours[:2] == best[:2]:
            self.best.append(plan)
        return True

    def _sound(self, ours: Value) -> bool:
        """Not worse than the paper's plan in anything, unless it falls less short."""
        bound = self.bound
        return ours[0] < bound[0] or (ours[0] == bound[0] and ours[1] <= bound[1] and ours[2] <= bound[2])

    # ── locals ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _wanted(self, room: Floats) -> list[Ints]:
        """Improved locals: each cluster's better ones of those from LCS and by regret, and whatever is as good."""
        plans = []
        for brokers, part in self.parts:
            drafts = []
            for regret in (False, True)[: 1 + self.thorough]:
                draft = Draft(part, with_handicaps=True)
                draft.room = room[brokers]
                if regret:
                    by_regret(draft, np.arange(part.count))
                else:
                    draft.follow(draft.local, self._take(self.start, brokers))
                improve_locals(draft)
                draft.room = part.capacity
                drafts.append(draft)
            best = min(map(_local_value, drafts))
            plans.append([each for each in drafts if _local_value(each) == best])
        found: dict[bytes, Ints] = {}
        for which in (0, -1):
            chosen = np.full(self.table.count, NOBODY, dtype=np.int64)
            for (brokers, _), drafts in zip(self.parts, plans, strict=True):
                self._put(chosen, brokers, drafts[which])
            found[chosen.tobytes()] = chosen
        return list(found.values())

    @staticmethod
    def _take(chosen: Ints, brokers: Ints) -> Ints:
        """The locals of a part's brokers, in its own numbers."""
        found = chosen[brokers]
        return np.where(found == NOBODY, NOBODY, np.searchsorted(brokers, found))

    @staticmethod
    def _put(chosen: Ints, brokers: Ints, draft: Draft) -> None:
        """The locals of a part's draft, in the numbers of the whole table."""
        found = draft.local.chosen
        chosen[brokers] = np.where(found == NOBODY, NOBODY, brokers[found])

    def _locally(self, chosen: Ints) -> Draft:
        """A draft with these locals."""
        draft = Draft(self.table, with_handicaps=True)
        draft.follow(draft.local, chosen)
        return draft

    # ── remotes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _with_remotes(self, chosen: Ints, enough: int) -> _Plan:
        """These locals, and remotes with max R no larger than that, if they are found.

        Tried are a plan with the largest first and the remotes of MMCS, both improved: the better of them.
        """
        first = _Plan(self._by_size(chosen, enough), by_size=True)
        reached = value(first.draft)
        if reached[0][0] == 0 and (reached[2] <= enough or (not self.thorough and self._sound(reached))):
            return first
        second = _Plan(self._by_paper(chosen, enough), by_size=False)
        return second if value(second.draft) < reached else first

    def _by_size(self, chosen: Ints, enough: int) -> Draft:
        draft = self._locally(chosen)
        draft.open_remote()
        largest_first(draft, np.arange(draft.table.count))
        improve_remotes(draft, enough, self.thorough)
        return draft

    def _by_paper(self, chosen: Ints, enough: int) -> Draft:
        draft = self._locally(chosen)
        draft.follow(draft.open_remote(), self.remotes)
        improve_remotes(draft, enough, self.thorough)
        return draft

    def _lowest(self) -> Draft:
        """The best plan with the least max R, when that is as low as it gets."""
        for each in self.best:
            improve_remotes(each.draft, 0, self.thorough)
        draft, by_size = min(self.best, key=lambda each: (value(each.draft), not each.by_size))
        if not self.thorough or not value(draft)[2]:
            return draft
        other = (self._by_paper if by_size else self._by_size)(draft.local.chosen, 0)
        return min(draft, other, key=value)

    def _look_between(self, wanted: Ints) -> None:
        """Look for a plan with some of the wanted locals, and the others as at the start."""
        differing = np.flatnonzero(self.start != wanted)
        low, high = 0, len(differing)
        for _ in range(HALVINGS):
            middle = (low + high) // 2
            if middle == low:
                break
            chosen = self.start.copy()
            chosen[differing[:middle]] = wanted[differing[:middle]]
            if self._propose(chosen):
                low = middle
            else:
                high = middle


def _local_value(draft: Draft) -> tuple[tuple[int, float], int]:
    return draft.excess(), int(draft.local.cost.sum())


def value(draft: Draft) -> Value:
    """The key by which plans are compared."""
    return draft.excess(), int(draft.local.cost.sum()), int(draft.remote.cost.max(initial=0))
