"""After a change: the same plan again, with as little moved as can be.

A backup stays unless it is **lost** (gone, or in the wrong cluster by now), has no **room** any more, or another would
be **better** by more than a hysteresis: a move copies a broker's state and creates its subscriptions again. For a local
backup, what a change saves must be more than ``hysteresis`` times what the moved brokers hold; for a remote one, the
largest R must fall by more than ``hysteresis`` times itself. Brokers that are new, or lost a backup, are given one as
the search would.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final, Literal

import numpy as np

from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.outcome import Move, Plan, Replan, Role
from tocsin.core.assignment.search.construction import by_regret, largest_first
from tocsin.core.assignment.search.locals import sweep
from tocsin.core.assignment.search.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.search.relief import relieve
from tocsin.core.assignment.search.remotes import lowering
from tocsin.core.assignment.side import NOBODY, Side
from tocsin.core.assignment.table import Bools, Ints, Table

HYSTERESIS: Final = 0.1
ROUNDS_MAX: Final = 5  # over all brokers; what is still better after that waits for the next time

Reason = Literal["new", "lost", "capacity", "better"]


def replan(
    previous: Plan,
    demand: Demand | Table,
    changed: Collection[str] | None = None,
    hysteresis: float = HYSTERESIS,
) -> Replan:
    """The previous plan, fitted to this demand. ``changed``: only what concerns these brokers may move for the better.

    An infinite hysteresis moves nothing for the better.
    """
    if not hysteresis >= 0:
        raise ValueError(f"a hysteresis of {hysteresis}: give a number from 0 up")
    table = demand if isinstance(demand, Table) else Table.of(demand)
    near = None if changed is None else np.isin(np.array(table.names, dtype=object), list(changed))
    draft = Draft(table, with_handicaps=True)
    local = _Refit(draft, draft.local, "local", previous, near)
    local.settle(hysteresis)
    remote = _Refit(draft, draft.open_remote(), "remote", previous, near)
    remote.settle(hysteresis)
    return Replan(draft.outcome(previous.strategy), (*local.moves(), *remote.moves()))


class _Refit:
    """One side on its way from the previous plan to the next."""

    def __init__(self, draft: Draft, side: Side, role: Role, previous: Plan, near: Bools | None) -> None:
        self.draft = draft
        self.side = side
        self.role = role
        self.near = near
        self.reasons: dict[int, Reason] = {}
        self.saved: dict[int, int] = {}
        known = {
            name: each.local if role == "local" else each.remote for name, each in previous.backups.items()
        }
        names = draft.table.names
        numbers = {name: number for number, name in enumerate(names)}
        self.before = [known.get(name) for name in names]
        self.waiting: list[int] = []
        kept = np.full(len(names), NOBODY, dtype=np.int64)
        for broker, backup in enumerate(self.before):
            number = numbers.get(backup, NOBODY) if backup is not None else NOBODY
            if number != NOBODY and side.allowed[broker, number]:
                kept[broker] = number
            elif side.allowed[broker].any():
                self.waiting.append(broker)
                self.reasons[broker] = "new" if backup is None else "lost"
            elif backup is not None:
                self.reasons[broker] = "lost"
        draft.follow(side, kept)

    def settle(self, hysteresis: float) -> None:
        """Give everybody a backup with room, and then move what is worth it."""
        self._relieve()
        waiting = np.array(self.waiting, dtype=np.int64)
        if len(waiting):
            (by_regret if self.role == "local" else largest_first)(self.draft, waiting)
            self._relieve()
        if not math.isinf(hysteresis) and (self.near is None or self.near.any()):
            hood = Neighbourhood(self.draft, self.side)
            (self._lower_sum if self.role == "local" else self._lower_largest)(hood, hysteresis)

    def _relieve(self) -> None:
        draft, side = self.draft, self.side
        if not (draft.carried >= draft.room).any():
            return
        before = side.chosen.copy()
        relieve(Neighbourhood(draft, side))
        for broker in np.flatnonzero((side.chosen != before) & (before != NOBODY)).tolist():
            self.reasons.setdefault(broker, "capacity")

    def _lower_sum(self, hood: Neighbourhood, hysteresis: float) -> None:
        toll: Ints = np.floor(hysteresis * self.draft.table.size).astype(np.int64)
        for step in sweep(hood, toll, self.near, ROUNDS_MAX):
            self._note(step)

    def _lower_largest(self, hood: Neighbourhood, hysteresis: float) -> None:
        for _ in range(ROUNDS_MAX * self.draft.table.count):
            cost = self.side.cost
            top = int(np.argmax(cost))
            step = lowering(hood, top) if cost[top] else None
            if step is None or not step.gain > hysteresis * cost[top] or not self._concerns(step, top):
                break
            hood.make(step)
            self._note(step)

    def _concerns(self, step: Step, top: int) -> bool:
        return self.near is None or any(
            self.near[each] for each in (step.broker, step.backup, step.partner, top) if each != NOBODY
        )

    def _note(self, step: Step) -> None:
        moved = [each for each in (step.broker, step.partner) if each != NOBODY]
        for each in moved:
            self.reasons.setdefault(each, "better")
            self.saved[each] = self.saved.get(each, 0) + step.gain // len(moved)

    def moves(self) -> list[Move]:
        names = self.draft.table.names
        found = []
        for broker, reason in sorted(self.reasons.items()):
            chosen = int(self.side.chosen[broker])
            after = None if chosen == NOBODY else names[chosen]
            if after != self.before[broker]:
                saved = self.saved.get(broker, 0)
                found.append(Move(names[broker], self.role, self.before[broker], after, reason, saved))
        return found
