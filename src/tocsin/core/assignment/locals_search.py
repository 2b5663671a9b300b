"""Fewer subscriptions in sum: local search over who is whose local backup.

1. Backups that have no room go where there is some (``relief``).
2. Brokers change their backups, alone or in exchange with another, as long as the sum falls.
3. Several brokers go to one backup together, or all that one backs go elsewhere (``wholes``).

From 2 on again, until nothing helps. Every step lowers the sum, and rounds are bounded; 3 also by the work that it is,
so that small networks are searched well and large ones quickly.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.relief import relieve
from tocsin.core.assignment.table import Bools, Ints
from tocsin.core.assignment.wholes import dissolve, gather

ROUNDS_MAX: Final = 30  # plans settle in a handful


def improve_locals(draft: Draft, most: int) -> None:
    """Lower the sum of costs as far as these changes can; ``most`` backups are tried as a whole in a round."""
    hood = Neighbourhood(draft, draft.local)
    relieve(hood)
    toll = np.zeros(draft.table.count, dtype=np.int64)
    sweep(hood, toll)
    for _ in range(ROUNDS_MAX):
        before = int(draft.local.cost.sum())
        order = np.argsort(-draft.local.cost, kind="stable").tolist()
        gather(hood, order[:most])
        dissolve(hood, order[:most])
        if int(draft.local.cost.sum()) == before:
            break
        sweep(hood, toll)
        if len(order) > most:
            break


def sweep(hood: Neighbourhood, toll: Ints, near: Bools | None = None, rounds: int = ROUNDS_MAX) -> list[Step]:
    """Make the best change of each broker in turn, until none has one; what was made."""
    made: list[Step] = []
    for _ in range(rounds):
        begin = 0
        while (step := hood.first(begin, toll, near)) is not None:
            hood.make(step)
            made.append(step)
            begin = step.broker + 1
        if not begin:
            break
    return made
