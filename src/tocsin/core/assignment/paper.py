"""The paper's own strategies, line by line: Least Cost Selection and Min Max Cost Selection (algorithms 1 and 2).

The paper's open points are decided so:

- brokers are taken in the order of their names, and among equally good candidates the smallest name wins,
  as it does in a loop with ``<``;
- where no candidate has room (the paper's b = none) the one that would be over by the least is taken, then the one
  with the least to add; the plan says that it falls short;
- a broker without candidates has no backup, and the plan says that too.

LCS counts P with locals alone (eq. 8), for remotes are not known yet; MMCS counts both.
"""

from __future__ import annotations

import numpy as np

from tocsin.core.assignment.draft import Draft


def least_cost(draft: Draft) -> None:
    """LCS: each broker in turn gets the local backup that adds the fewest subscriptions."""
    side = draft.local
    for broker in range(draft.table.count):
        draft.choose(side, broker, side.missing[broker])


def min_max_cost(draft: Draft) -> None:
    """MMCS: each broker in turn gets the remote backup with which the largest R[j] is least."""
    side = draft.open_remote()
    for broker in range(draft.table.count):
        draft.choose(side, broker, np.maximum(side.cost.max(), side.cost + side.missing[broker]))
