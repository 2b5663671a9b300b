"""First plans for the search: by regret, and largest first.

**Regret** is what a broker would lose if its best backup were taken by others and it had to have the second best.
Whoever would lose most chooses first. Cluster by cluster, for locals know no other clusters.

Remotes are taken from the largest to the smallest, as jobs are given to machines, and each goes where the largest
R[j] is least; of several such places to where R[j] would be least.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.side import NOBODY, Side
from tocsin.core.assignment.table import Ints

NEVER: Final = 1 << 40  # more than any sum of weights and handicaps


def by_regret(draft: Draft, waiting: Ints) -> None:
    """Give these brokers local backups."""
    clusters = draft.table.cluster
    for cluster in np.unique(clusters[waiting]):
        _cluster_by_regret(draft, waiting[clusters[waiting] == cluster], np.flatnonzero(clusters == cluster))


def _cluster_by_regret(draft: Draft, waiting: Ints, candidates: Ints) -> None:
    side, table = draft.local, draft.table
    if len(candidates) < 2:
        return
    while len(waiting):
        fits = draft.carried[candidates][None, :] + table.load[waiting][:, None] < draft.room[candidates]
        fits &= waiting[:, None] != candidates[None, :]
        added = np.where(fits, side.missing[np.ix_(waiting, candidates)], NEVER)
        best_two = np.partition(added, 1, axis=1)[:, :2]
        chooser = int(np.argmax(np.where(best_two[:, 0] < NEVER, best_two[:, 1] - best_two[:, 0], -1)))
        broker = int(waiting[chooser])
        if best_two[chooser, 0] < NEVER:
            draft.add(side, broker, int(candidates[np.argmin(added[chooser])]))
        else:  # then there is no room for any of the others either
            draft.add(side, broker, draft.least_bad(side, broker, candidates[candidates != broker]))
        waiting = np.delete(waiting, chooser)


def largest_first(draft: Draft, waiting: Ints) -> None:
    """Give these brokers remote backups."""
    side = draft.remote
    for broker in waiting[np.argsort(-draft.table.size[waiting], kind="stable")].tolist():
        place = best_remote(draft, side, broker)
        if place != NOBODY:
            draft.add(side, broker, place)


def best_remote(draft: Draft, side: Side, broker: int) -> int:
    """Where the largest R[j] would be least, then R[j]; without room the least bad; without candidates NOBODY."""
    candidates = np.flatnonzero(side.allowed[broker])
    if not len(candidates):
        return NOBODY
    able = candidates[draft.fits(broker)[candidates]]
    if not len(able):
        return draft.least_bad(side, broker, candidates)
    then = side.cost[able] + side.missing[broker, able]
    order = np.lexsort((side.missing[broker, able], then, np.maximum(then, side.cost.max())))
    return int(able[order[0]])
