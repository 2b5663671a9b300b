"""Fewer subscriptions in sum: local search over who is whose local backup.

1. Backups that have no room go where there is some (``relief``).
2. Brokers change their backups, alone or in exchange with another, as long as the sum falls.
3. **Gathering**: several brokers go to one backup together, of which the first may cost more than it saves. A
   backup pays when several share it, and no single change finds that.
4. **Dissolving**: all that one broker backs go elsewhere, each where it adds least; kept if the sum falls.

From 2 on again, until nothing helps. Every step lowers the sum, and rounds are bounded; 3 and 4 also by the work
that they are, so that small networks are searched well and large ones quickly.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tocsin.core.assignment.construction import NEVER, by_regret
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.relief import relieve

ROUNDS_MAX: Final = 30  # plans settle in a handful
UNPAID_MAX: Final = 3  # brokers that a gathering takes before it must begin to pay


def improve_locals(draft: Draft, most: int) -> None:
    """Lower the sum of costs as far as these changes can; ``most`` backups are tried as a whole in a round."""
    hood = Neighbourhood(draft, draft.local)
    relieve(hood)
    sweep(hood)
    for _ in range(ROUNDS_MAX):
        before = int(draft.local.cost.sum())
        order = np.argsort(-draft.local.cost, kind="stable").tolist()
        for backup in order[:most]:
            gather(hood, backup)
        for backup in order[:most]:
            dissolve(hood, backup)
        sweep(hood)
        if int(draft.local.cost.sum()) == before or len(order) > most:
            break


def sweep(hood: Neighbourhood) -> None:
    """Make the best change of each broker in turn, until none has one."""
    toll = np.zeros(hood.draft.table.count, dtype=np.int64)
    for _ in range(ROUNDS_MAX):
        changed = False
        for broker in range(hood.draft.table.count):
            step = hood.best(broker, toll)
            if step is not None:
                hood.make(step)
                changed = True
        if not changed:
            break


def gather(hood: Neighbourhood, backup: int) -> None:
    """Move those brokers to ``backup`` that pay together.

    What each saves where it is now is counted as if it left alone; together they save at least that.
    """
    side, draft, table = hood.side, hood.draft, hood.draft.table
    free = side.allowed[:, backup] & (side.chosen >= 0) & (side.chosen != backup)
    gain = np.where(free, hood.saved - side.missing[:, backup], -NEVER)
    room = draft.room[backup] - draft.carried[backup]
    chain: list[int] = []
    total = best = kept = unpaid = 0
    marked = np.zeros(table.columns, dtype=np.bool_)
    while unpaid < UNPAID_MAX:
        broker = int(np.argmax(np.where(table.load < room, gain, -NEVER)))
        if gain[broker] == -NEVER or not table.load[broker] < room:
            break
        total += int(gain[broker])
        unpaid += int(gain[broker] <= 0)
        chain.append(broker)
        if total > best:
            best, kept = total, len(chain)
        fresh = side.fresh(broker, backup)
        fresh = fresh[~marked[fresh]]
        marked[fresh] = True
        gain += table.spread(fresh)
        gain[~free] = -NEVER
        gain[broker] = -NEVER
        free[broker] = False
        room -= table.load[broker]
    for broker in chain[:kept]:
        if draft.fits(broker)[backup]:
            hood.make(Step(0, broker, backup))


def dissolve(hood: Neighbourhood, backup: int) -> None:
    """Give all that ``backup`` backs to others, if that lowers the sum."""
    side, draft = hood.side, hood.draft
    group = list(side.group[backup])
    if not group:
        return
    before, room, excess = int(side.cost.sum()), draft.room, draft.excess()
    for broker in group:
        draft.remove(side, broker)
    draft.room = room.copy()
    draft.room[backup] = -1
    by_regret(draft, np.array(group))
    draft.room = room
    touched = {backup, *side.chosen[group].tolist()}
    if int(side.cost.sum()) >= before or draft.excess() > excess:
        for broker in group:
            draft.move(side, broker, backup)
        return
    for each in touched:
        hood.refresh(each)
