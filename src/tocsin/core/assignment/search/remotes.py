"""A smaller largest R: local search over the choice of remote backups.

The backup with the largest R (the first of several) gives one of its brokers to another, or exchanges one, such that
both are below that largest afterwards; the best such step leaves the larger of both least. If there is none, it may
give one to a broker that passes another on to a third: a **chain**. This goes on until there is neither: as long as one
broker has the largest R and cannot give, no step lowers the maximum.

Every step and every chain makes one broker fewer have the largest R, or lowers it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.search.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.search.relief import relieve
from tocsin.core.assignment.side import NEVER, NOBODY

STEPS_MAX: Final = 20  # for each broker; plans settle in a few


def improve_remotes(draft: Draft, enough: int = 0, chains: bool = True) -> None:
    """Lower the largest cost as far as steps can, and chains, or until it is ``enough``."""
    hood = Neighbourhood(draft, draft.remote)
    relieve(hood)
    for _ in range(STEPS_MAX * draft.table.count):
        top = int(np.argmax(draft.remote.cost))
        if draft.remote.cost[top] <= enough:
            break
        step = lowering(hood, top)
        steps = [step] if step is not None else chain(hood, top) if chains else []
        if not steps:
            break
        for each in steps:
            hood.make(each)


def lowering(hood: Neighbourhood, top: int) -> Step | None:
    """The step that lowers ``top`` most without raising another backup to its height; and by how much."""
    side = hood.side
    cost, chosen = side.cost, side.chosen
    if not side.group[top]:
        return None
    brokers = np.array(side.group[top])
    rest = (cost[top] - hood.saved[brokers])[:, None]
    places = hood.places(brokers)
    moved = np.where(places < NEVER, np.maximum(cost + places, rest), NEVER)
    may, there, here = hood.exchanges(brokers)
    exchanged = np.where(may, np.maximum(cost[chosen] - hood.saved + there, rest + here), NEVER)
    after = np.concatenate([moved, exchanged], axis=1)
    row, at = divmod(int(after.argmin()), after.shape[1])
    gain = int(cost[top] - after[row, at])
    if gain <= 0:
        return None
    broker, partner = int(brokers[row]), at - len(cost)
    return Step(gain, broker, at) if partner < 0 else Step(gain, broker, int(chosen[partner]), partner)


def chain(hood: Neighbourhood, top: int) -> list[Step]:
    """Two steps, to be made in turn: one of another's group goes to a third, and one of ``top``'s takes its place."""
    side, draft, load = hood.side, hood.draft, hood.draft.table.load
    cost, chosen = side.cost, side.chosen
    if not side.group[top]:
        return []
    brokers = np.array(side.group[top])
    places = hood.places(np.arange(draft.table.count))
    places[:, top] = NEVER
    onward = cost + places
    third = onward.argmin(axis=1)
    passed = onward[np.arange(len(cost)), third]
    more = load[brokers][:, None] - load
    may = (draft.carried[chosen] + more < draft.room[chosen]) | (more <= 0)
    may &= side.allowed[brokers].take(chosen, axis=1)
    may &= (chosen != top) & (chosen != NOBODY) & (passed < NEVER)
    then = cost[chosen] - hood.saved + hood.exchanges(brokers).there
    rest = (cost[top] - hood.saved[brokers])[:, None]
    after = np.where(may, np.maximum(np.maximum(then, passed), rest), NEVER)
    row, other = divmod(int(after.argmin()), len(cost))
    if after[row, other] >= cost[top]:
        return []
    return [Step(0, other, int(third[other])), Step(0, int(brokers[row]), int(chosen[other]))]
