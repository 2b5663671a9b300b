"""The saving of every single change of a side: a broker given to another backup, or two brokers exchanged.

For each broker b with a backup j, ``saved[b]`` is what j would not need without it, and ``bared[b]`` by broker how
much of *its* subscriptions that is: so that what a stands to add at j once b has gone is ``missing[a, j] + bared[b,
a]``, and the gain of any exchange follows from four look-ups instead of two trials. Both are kept up with the
changes made through here: a change touches two groups, and only those are priced again.

The changes of many brokers are priced at once, as matrices. A change never makes a broker overfull, nor an overfull
broker fuller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.side import NEVER, NOBODY, Side
from tocsin.core.assignment.table import Bools, Ints

CELLS_MAX: Final = 1 << 14  # (broker, place) pairs that are priced at once


class Step(NamedTuple):
    """A change: ``broker`` gets ``backup``; if ``partner`` is a broker, that gets what ``broker`` had."""

    gain: int
    broker: int
    backup: int
    partner: int = NOBODY


class Exchanges(NamedTuple):
    """For some brokers, a row each, and every partner: whether they may change places, and what each would add."""

    may: Bools
    there: Ints  # the broker, at the partner's backup
    here: Ints  # the partner, at the broker's


class Neighbourhood:
    """A side of a draft with all its changes priced."""

    def __init__(self, draft: Draft, side: Side) -> None:
        self.draft = draft
        self.side = side
        count = draft.table.count
        self.saved: Ints = np.zeros(count, dtype=np.int64)
        self.bared: Ints = np.zeros((count, count), dtype=np.int64)
        backups = [backup for backup, group in enumerate(side.group) if group]
        self._price(backups, side.settle(backups))

    def _price(self, backups: Iterable[int], alone: Ints) -> None:
        """Take the prices of these backups' groups from what is covered for each member alone."""
        side = self.side
        members = np.array([each for backup in backups for each in side.group[backup]], dtype=np.int64)
        self.bared[members] = alone
        self.saved[members] = alone[np.arange(len(members)), members] + side.penalty[side.chosen[members]]

    def make(self, step: Step) -> None:
        """Carry a step out."""
        moves = [(step.broker, step.backup)]
        if step.partner != NOBODY:
            moves.append((step.partner, int(self.side.chosen[step.broker])))
        self.move(moves)

    def move(self, moves: Iterable[tuple[int, int]]) -> None:
        """Brokers go to other backups, all at once."""
        self._price(*self.draft.move(self.side, moves))

    # ── what could be done ──────────────────────────────────────────────────────────────────────────────────────

    def places(self, brokers: Ints) -> Ints:
        """By backup, what each of these brokers would add there; NEVER where it may not go, or is."""
        side, draft = self.side, self.draft
        may = draft.carried + draft.table.load[brokers][:, None] < draft.room
        may &= side.allowed[brokers]
        may[np.arange(len(brokers)), side.chosen[brokers]] = False
        return np.where(may, side.missing[brokers], NEVER)

    def exchanges(self, brokers: Ints) -> Exchanges:
        """The brokers with which each of these may be exchanged."""
        side, draft, load = self.side, self.draft, self.draft.table.load
        chosen, carried, room = side.chosen, draft.carried, draft.room
        own = chosen[brokers]
        more = load[brokers][:, None] - load
        theirs, ours = carried[chosen] + more, carried[own][:, None] - more
        # Each may carry less than it can, or no more than it does.
        may = (theirs < room[chosen]) | (more <= 0)
        may &= (ours < room[own][:, None]) | (more >= 0)
        may &= side.allowed[brokers].take(chosen, axis=1)
        may &= side.allowed.take(own, axis=1).T
        may &= (chosen != own[:, None]) & (chosen != NOBODY)
        there = side.missing[brokers].take(chosen, axis=1) + self.bared.take(brokers, axis=1).T
        here = side.missing.take(own, axis=1).T + self.bared[brokers]
        return Exchanges(may, there, here)

    def first(self, begin: int, toll: Ints, near: Bools | None = None) -> Step | None:
        """The change of backup that lowers the sum most, for the first broker from ``begin`` on that has one.

        ``toll[i]`` is what it must save at least for i to move, and more. ``near``: only changes that concern one
        of these.
        """
        count = self.draft.table.count
        size = max(CELLS_MAX // max(count, 1), 1)
        for at in range(begin, count, size):
            brokers = np.arange(at, min(at + size, count))
            # In an exchange, one of the two saves something.
            brokers = brokers[(self.side.chosen[brokers] != NOBODY) & (self.saved[brokers] > 0)]
            step = self._first(brokers, toll, near) if len(brokers) else None
            if step is not None:
                return step
        return None

    def _first(self, brokers: Ints, toll: Ints, near: Bools | None) -> Step | None:
        chosen, saved, rows = self.side.chosen, self.saved[brokers], np.arange(len(brokers))
        places = self.places(brokers)
        may, there, here = self.exchanges(brokers)
        gains = saved[:, None] + self.saved - there - here
        worth = np.where(may, gains - toll, -NEVER)
        if near is not None:
            far = ~(near[brokers] | near[chosen[brokers]])[:, None]
            places = np.where(far & ~near, NEVER, places)
            worth = np.where(far & ~(near | near[chosen]), -NEVER, worth)
        place, partner = places.argmin(axis=1), worth.argmax(axis=1)
        moving = saved - places[rows, place]
        exchanging = worth[rows, partner] > moving
        gain = np.where(exchanging, gains[rows, partner], moving)
        found = np.flatnonzero(gain > toll[brokers] + np.where(exchanging, toll[partner], 0))
        if not len(found):
            return None
        row = int(found[0])
        broker, other = int(brokers[row]), int(partner[row])
        if exchanging[row]:
            return Step(int(gain[row]), broker, int(chosen[other]), other)
        return Step(int(gain[row]), broker, int(place[row]))
