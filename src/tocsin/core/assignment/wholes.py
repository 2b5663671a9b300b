"""Changes of whole groups, priced for many backups at once and without making them.

**Gathering**: several brokers go to one backup together, of which the first may cost more than it saves. A backup
pays when several share it, and no single change finds that. What each saves where it is now is counted as if it left
alone; together they save at least that.

**Dissolving**: all that one broker backs go elsewhere, by regret, each where it adds least.

Both look at each backup as if nothing else changed. So of those that would pay the first is carried out, and what
comes after it is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from tocsin.core.assignment.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.side import NEVER
from tocsin.core.assignment.table import Ints

UNPAID_MAX: Final = 3  # brokers that a gathering takes before it must begin to pay
AT_ONCE: Final = 64  # backups that are looked at together

Placed = list[tuple[int, int]]  # brokers and where they go
Look = Callable[[Neighbourhood, Ints], list[Placed]]


def gather(hood: Neighbourhood, backups: Sequence[int]) -> None:
    """Move those brokers to each of these backups that pay together."""
    for placed in _in_turn(hood, backups, gatherings):
        for broker, backup in placed:
            if hood.draft.fits(broker)[backup]:
                hood.make(Step(0, broker, backup))


def dissolve(hood: Neighbourhood, backups: Sequence[int]) -> None:
    """Give all that each of these backs to others, if that lowers the sum."""
    for placed in _in_turn(hood, backups, dissolvings):
        hood.move(placed)


def _in_turn(hood: Neighbourhood, backups: Sequence[int], look: Look) -> Iterator[Placed]:
    """What pays, backup by backup; each is made before the next is asked for."""
    at = 0
    size = most = AT_ONCE if hood.side.cover.many else 1
    while at < len(backups):
        found = look(hood, np.array(backups[at : at + size], dtype=np.int64))
        paying = next((number for number, placed in enumerate(found) if placed), None)
        if paying is None:
            at += size
            size = min(2 * size, most)
        else:
            yield found[paying]
            at += paying + 1
            size = max(size // 4, 1)


def gatherings(hood: Neighbourhood, backups: Ints) -> list[Placed]:
    """For each of these backups, who would pay if they went there together."""
    side, draft, load = hood.side, hood.draft, hood.draft.table.load
    free = side.allowed[:, backups].T & (side.chosen >= 0) & (side.chosen != backups[:, None])
    gain = np.where(free, hood.saved - side.missing[:, backups].T, -NEVER)
    room = draft.room[backups] - draft.carried[backups]
    chains: list[list[int]] = [[] for _ in backups]
    kept = [0] * len(backups)
    total, best, unpaid = (np.zeros(len(backups), dtype=np.int64) for _ in range(3))
    live = np.arange(len(backups))  # the rows of those that go on
    trial = side.cover.trial(backups)
    while len(live):
        able = np.where(load < room[live][:, None], gain[live], -NEVER)
        brokers = able.argmax(axis=1)
        gained = able[np.arange(len(live)), brokers]
        going = gained > -NEVER
        live, brokers, gained = live[going], brokers[going], gained[going]
        total[live] += gained
        unpaid[live] += gained <= 0
        better = total[live] > best[live]
        best[live] = np.maximum(best[live], total[live])
        for row, broker, now in zip(live.tolist(), brokers.tolist(), better.tolist(), strict=True):
            chains[row].append(broker)
            if now:
                kept[row] = len(chains[row])
        going = unpaid[live] < UNPAID_MAX
        live, brokers = live[going], brokers[going]
        if not len(live):
            break
        free[live, brokers] = False
        gain[live] = np.where(free[live], gain[live] + trial.join(live, brokers), -NEVER)
        room[live] -= load[brokers]
    return [
        [(broker, int(backup)) for broker in chain[:count]]
        for chain, count, backup in zip(chains, kept, backups, strict=True)
    ]


def dissolvings(hood: Neighbourhood, backups: Ints) -> list[Placed]:
    """For each of these backups, where all that it backs would go, if that pays."""
    side = hood.side
    found: list[Placed] = [[] for _ in backups]
    # Groups of about the same size are looked at together, for all are filled up to the largest.
    alike: dict[int, list[int]] = {}
    for row, backup in enumerate(backups.tolist()):
        if side.cost[backup]:
            alike.setdefault(len(side.group[backup]).bit_length(), []).append(row)
    for rows in alike.values():
        for row, placed in zip(rows, _Dissolving(hood, backups[rows]).run(), strict=True):
            found[row] = placed
    return found


class _Dissolving:
    """Groups of some backups on their way to other places, a row each.

    ``waiting`` has the members, filled up with the first of them, which are not ``left``; ``added`` what each of them
    would add at each place.
    """

    def __init__(self, hood: Neighbourhood, backups: Ints) -> None:
        self.hood = hood
        side, draft = hood.side, hood.draft
        groups = [side.group[each] for each in backups.tolist()]
        width = max(map(len, groups))
        self.waiting = np.array([[*each, *[each[0]] * (width - len(each))] for each in groups])
        self.left = np.arange(width) < np.array([len(each) for each in groups])[:, None]
        self.load = draft.table.load[self.waiting]
        self.carried = np.tile(draft.carried, (len(groups), 1))
        self.added = side.missing[self.waiting]
        fits = self.carried[:, None, :] + self.load[:, :, None] < draft.room
        fits &= side.allowed[self.waiting]
        fits &= np.arange(draft.table.count) != backups[:, None, None]
        self.added[~fits] = NEVER
        self.trial = side.cover.trial(np.tile(np.arange(draft.table.count), len(groups)))
        self.budget = side.cost[backups]  # what may still be added for the whole to pay

    def run(self) -> list[Placed]:
        """Where the members of each row go; nowhere if that does not pay."""
        placed: list[Placed] = [[] for _ in self.waiting]
        live = np.arange(len(self.waiting))
        while len(live):
            member, place, added = self._choose(live)
            self.budget[live] -= added
            going = self.budget[live] > 0
            live, member, place = live[going], member[going], place[going]
            broker = self.waiting[live, member]
            for row, one, there in zip(live.tolist(), broker.tolist(), place.tolist(), strict=True):
                placed[row].append((one, there))
            self.left[live, member] = False
            self._join(live, broker, place)
            live = live[self.left[live].any(axis=1)]
        return [
            moves if budget > 0 else [] for moves, budget in zip(placed, self.budget.tolist(), strict=True)
        ]

    def _choose(self, live: Ints) -> tuple[Ints, Ints, Ints]:
        """In each row, whoever would regret most, its place, and what it adds there; NEVER if there is no room."""
        rows = np.arange(len(live))
        added = self.added[live]
        best_two = np.partition(added, 1, axis=2)[:, :, :2]
        regret = np.where(best_two[:, :, 0] < NEVER, best_two[:, :, 1] - best_two[:, :, 0], -1)
        member = np.where(self.left[live], regret, -2).argmax(axis=1)
        place = added[rows, member].argmin(axis=1)
        return member, place, added[rows, member, place]

    def _join(self, live: Ints, broker: Ints, place: Ints) -> None:
        """Have these brokers at these places, and price the places anew."""
        draft = self.hood.draft
        if not len(live):
            return
        spread = self.trial.join(live * draft.table.count + place, broker)
        spread = np.take_along_axis(spread, self.waiting[live], axis=1)
        self.carried[live, place] += draft.table.load[broker]
        added = self.added[live, :, place]
        fits = self.carried[live, place][:, None] + self.load[live] < draft.room[place][:, None]
        self.added[live, :, place] = np.where(fits & (added < NEVER), added - spread, NEVER)
