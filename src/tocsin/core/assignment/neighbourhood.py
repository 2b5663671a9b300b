"""What every single change of a side would save: a broker given to another backup, or two that change places.

For each broker b with a backup j, ``saved[b]`` is what j would not need without it, and ``bared[b]`` by broker how
much of *its* subscriptions that is: so that what a stands to add at j once b has gone is ``missing[a, j] + bared[b,
a]``, and the gain of any exchange follows from four look-ups instead of two trials. Both are kept up with the
changes made through here.

A change never makes a broker overfull, nor one that is overfull fuller.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.core.assignment.construction import NEVER
from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.side import NOBODY, Side
from tocsin.core.assignment.table import Bools, Floats, Ints


class Step(NamedTuple):
    """A change: ``broker`` gets ``backup``; if ``partner`` is a broker, that gets what ``broker`` had."""

    gain: int
    broker: int
    backup: int
    partner: int = NOBODY


class Neighbourhood:
    """A side of a draft with all its changes priced."""

    def __init__(self, draft: Draft, side: Side) -> None:
        self.draft = draft
        self.side = side
        count = draft.table.count
        self.saved: Ints = np.zeros(count, dtype=np.int64)
        self.bared: Ints = np.zeros((count, count), dtype=np.int64)
        for backup in range(count):
            self.refresh(backup)

    def refresh(self, backup: int) -> None:
        """Price a backup's group anew."""
        side, table = self.side, self.draft.table
        for broker, columns in zip(side.group[backup], side.alone(backup), strict=True):
            self.saved[broker] = int(table.weight[columns].sum()) + int(side.penalty[backup])
            self.bared[broker] = table.spread(columns)

    def make(self, step: Step) -> None:
        """Carry a step out."""
        side, draft = self.side, self.draft
        before = draft.remove(side, step.broker)
        if step.partner != NOBODY:
            draft.remove(side, step.partner)
            draft.add(side, step.partner, before)
        draft.add(side, step.broker, step.backup)
        self.refresh(before)
        self.refresh(step.backup)

    # ── what could be done ──────────────────────────────────────────────────────────────────────────────────────

    def holds(self, backups: Ints, then: Floats) -> Bools:
        """Whether these backups may carry so much: less than they can, or no more than they do."""
        draft = self.draft
        allowed: Bools = (then < draft.room[backups]) | (then <= draft.carried[backups])
        return allowed

    def places(self, broker: int) -> Ints:
        """By backup, what this broker would add there; NEVER where it may not go, or is."""
        side = self.side
        may = side.allowed[broker] & self.draft.fits(broker)
        may[side.chosen[broker]] = False
        return np.where(may, side.missing[broker], NEVER)

    def partners(self, broker: int) -> tuple[Ints, Ints, Ints]:
        """Those with whom this broker may change places; what it would add at theirs, and they at its."""
        side, table, carried = self.side, self.draft.table, self.draft.carried
        backup = int(side.chosen[broker])
        others = np.flatnonzero((side.chosen != NOBODY) & (side.chosen != backup) & side.allowed[:, backup])
        theirs = side.chosen[others]
        more = table.load[broker] - table.load[others]
        may = side.allowed[broker, theirs] & self.holds(theirs, carried[theirs] + more)
        may &= self.holds(np.full(len(others), backup), carried[backup] - more)
        others, theirs = others[may], theirs[may]
        there = side.missing[broker, theirs] + self.bared[others, broker]
        here = side.missing[others, backup] + self.bared[broker, others]
        return others, there, here

    def best(self, broker: int, toll: Ints, near: Bools | None = None) -> Step | None:
        """The change of this broker's backup that lowers the sum of costs most; None if none does.

        ``toll[i]`` is what it must save at least for i to move, and more. ``near``: only changes that concern one
        of these.
        """
        side = self.side
        backup = int(side.chosen[broker])
        if backup == NOBODY or self.saved[broker] == 0:  # of an exchange, one of the two saves something
            return None
        places = self.places(broker)
        others, there, here = self.partners(broker)
        gains = self.saved[broker] + self.saved[others] - there - here
        worth = gains - toll[others]
        if near is not None and not (near[broker] or near[backup]):
            places = np.where(near, places, NEVER)
            worth = np.where(near[others] | near[side.chosen[others]], worth, -NEVER)
        place = int(np.argmin(places))
        step = Step(int(self.saved[broker] - places[place]), broker, place)
        at = int(np.argmax(worth)) if len(worth) else 0
        if len(worth) and worth[at] > step.gain:
            step = Step(int(gains[at]), broker, int(side.chosen[others[at]]), int(others[at]))
        least = toll[broker] + (0 if step.partner == NOBODY else toll[step.partner])
        return step if step.gain > least else None
