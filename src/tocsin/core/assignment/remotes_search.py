"""A smaller largest R: local search over who is whose remote backup.

The broker with the largest R (the first of several) gives one that it backs to another, or exchanges one, such that
both are below that largest afterwards; of all such steps the one that leaves the larger of both least. This goes on
until there is none: as long as one broker has the largest R and cannot give, no step lowers the maximum.

Every step makes one broker fewer have the largest R, or lowers it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tocsin.core.assignment.construction import NEVER
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.relief import relieve

STEPS_MAX: Final = 20  # for each broker; plans settle in a few


def improve_remotes(draft: Draft) -> None:
    """Lower the largest cost as far as single steps can."""
    hood = Neighbourhood(draft, draft.remote)
    relieve(hood)
    for _ in range(STEPS_MAX * draft.table.count):
        top = int(np.argmax(draft.remote.cost))
        step = lowering(hood, top) if draft.remote.cost[top] else None
        if step is None:
            break
        hood.make(step)


def lowering(hood: Neighbourhood, top: int) -> Step | None:
    """The step that takes ``top`` furthest down, with nobody who takes part as high as it was; by how much."""
    side = hood.side
    cost = side.cost
    best: tuple[int, Step] = (int(cost[top]), Step(0, top, top))
    for broker in side.group[top]:
        rest = int(cost[top] - hood.saved[broker])
        places = hood.places(broker)
        then = np.where(places < NEVER, np.maximum(cost + places, rest), NEVER)
        place = int(np.argmin(then))
        if then[place] < best[0]:
            best = int(then[place]), Step(int(cost[top] - then[place]), broker, place)
        others, there, here = hood.partners(broker)
        if not len(others):
            continue
        after = np.maximum(cost[side.chosen[others]] - hood.saved[others] + there, rest + here)
        at = int(np.argmin(after))
        if after[at] < best[0]:
            gain, backup = int(cost[top] - after[at]), int(side.chosen[others[at]])
            best = int(after[at]), Step(gain, broker, backup, int(others[at]))
    return None if best[0] == cost[top] else best[1]
