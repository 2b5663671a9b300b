"""A plan by the name of its strategy.

| strategy | what it does |
| --- | --- |
| ``search`` | never worse than the paper's, mostly better; what the product uses |
| ``lcs_mmcs`` | Least Cost Selection and Min Max Cost Selection, as the paper has them |
| ``random`` | the paper's baseline RND: any backup with room, from the chance that the caller hands in |

Active replication is no way to choose backups but one to use them: ``costs`` compares it over any plan.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.outcome import Plan
from tocsin.core.assignment.paper import least_cost, min_max_cost
from tocsin.core.assignment.search.multistart import search
from tocsin.core.assignment.side import Side
from tocsin.core.assignment.table import Table
from tocsin.ports import Rng

Strategy = Literal["search", "lcs_mmcs", "random"]


def plan(demand: Demand | Table, strategy: Strategy = "search", rng: Rng | None = None) -> Plan:
    """Choose backups for all.

    ``random`` needs ``rng``; the others give one answer to one demand.
    """
    table = demand if isinstance(demand, Table) else Table.of(demand)
    if strategy == "search":
        return search(table).outcome(strategy)
    draft = Draft(table)
    if strategy == "lcs_mmcs":
        least_cost(draft)
        min_max_cost(draft)
    else:
        if rng is None:
            raise ValueError("a random plan needs chance: pass rng")
        _any(draft, draft.local, rng)
        _any(draft, draft.open_remote(), rng)
    return draft.outcome(strategy)


def _any(draft: Draft, side: Side, rng: Rng) -> None:
    for broker in range(draft.table.count):
        price = np.ones(draft.table.count, dtype=np.int64)
        able = np.flatnonzero(side.allowed[broker] & draft.fits(broker))
        if len(able):
            price[able[rng.below(len(able))]] = 0
        draft.choose(side, broker, price)
