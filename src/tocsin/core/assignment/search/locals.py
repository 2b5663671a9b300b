"""Fewer subscriptions in sum: local search over the choice of local backups.

1. Backups that have no room go where there is some (``relief``).
2. Brokers change their backups, alone or in exchange with another, as long as the sum falls.

Every step lowers the sum, and rounds are bounded.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.search.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.search.relief import relieve
from tocsin.core.assignment.table import Bools, Ints

ROUNDS_MAX: Final = 30  # plans settle in a handful


def improve_locals(draft: Draft) -> None:
    """Lower the sum of costs as far as these changes can."""
    hood = Neighbourhood(draft, draft.local)
    relieve(hood)
    sweep(hood, np.zeros(draft.table.count, dtype=np.int64))


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
