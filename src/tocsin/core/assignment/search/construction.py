"""First plans for the search: by regret, and largest first.

**Regret** is what a broker would lose if its best backup were taken by others and it had to have the second best.
The broker that would lose most chooses first. Cluster by cluster, for locals know no other clusters.

Remotes are taken from the largest to the smallest, as jobs are given to machines, and each goes where R[j] will be
least (which is also where the largest R[j] will be least); of several such places to where it adds least.
"""

from __future__ import annotations

import numpy as np

from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.side import NEVER
from tocsin.core.assignment.table import Ints


def by_regret(draft: Draft, waiting: Ints) -> None:
    """Give these brokers local backups."""
    clusters = draft.table.cluster
    for cluster in np.unique(clusters[waiting]):
        _cluster_by_regret(draft, waiting[clusters[waiting] == cluster], np.flatnonzero(clusters == cluster))


def _cluster_by_regret(draft: Draft, waiting: Ints, candidates: Ints) -> None:
    side, load = draft.local, draft.table.load[waiting]
    if len(candidates) < 2:
        return
    fits = draft.carried[candidates] + load[:, None] < draft.room[candidates]
    fits &= waiting[:, None] != candidates
    added = np.where(fits, side.missing[np.ix_(waiting, candidates)], NEVER)
    hopeless = np.full(len(waiting), -1, dtype=np.int64)
    for _ in range(len(waiting)):
        best_two = np.partition(added, 1, axis=1)
        regret = np.where(best_two[:, 0] < NEVER, best_two[:, 1] - best_two[:, 0], hopeless)
        chooser = int(np.argmax(regret))
        broker = int(waiting[chooser])
        if regret[chooser] >= 0:
            place = int(candidates[np.argmin(added[chooser])])
        else:  # then there is no room for any of the others either
            place = draft.least_bad(side, broker, candidates[candidates != broker])
        draft.add(side, broker, place)
        fits = (draft.carried[place] + load < draft.room[place]) & (waiting != place)
        added[:, np.searchsorted(candidates, place)] = np.where(fits, side.missing[waiting, place], NEVER)
        added[chooser] = NEVER
        hopeless[chooser] = -2  # it has chosen
        load[chooser] = np.inf


def largest_first(draft: Draft, waiting: Ints) -> None:
    """Give these brokers remote backups."""
    side = draft.remote
    for broker in waiting[np.argsort(-draft.table.size[waiting], kind="stable")].tolist():
        missing = side.missing[broker]
        then = side.cost + missing
        able = side.allowed[broker] & draft.fits(broker)
        least = np.where(able, then, NEVER).min()
        draft.choose(side, broker, np.where(then == least, missing, NEVER))
