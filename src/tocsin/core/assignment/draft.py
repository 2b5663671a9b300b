"""A plan in the making: both sides, and what each broker would have to carry.

Locals come first. When they are settled, ``open_remote`` makes the remote side from them, for R[j] spares whatever
j keeps ready as a local backup. From then on the local side is not changed.

Invariants: ``carried[j]`` = its own load and those of all that it backs (P[j] of eq. 7), summed exactly, in
whatever order they came. ``room`` is what strategies keep to: the capacities, or less; shortfalls are held against
the capacities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tocsin.core.assignment.cover import cover_of
from tocsin.core.assignment.outcome import Backups, Plan, Role, Shortfall
from tocsin.core.assignment.side import NEVER, NOBODY, Side
from tocsin.core.assignment.table import Bools, Floats, Ints, Table


class Draft:
    """A plan under construction, on which a strategy works."""

    def __init__(self, table: Table, *, with_handicaps: bool = False) -> None:
        self.table = table
        self._penalty: Ints = table.handicap if with_handicaps else np.zeros(table.count, dtype=np.int64)
        same = table.cluster[:, None] == table.cluster[None, :]
        self._elsewhere: Bools = ~same
        missing: Ints = table.size[:, None] - table.shared
        np.fill_diagonal(same, False)
        self.local = Side(table, same, cover_of(table), missing, self._penalty)
        self._remote: Side | None = None
        self.carried: Floats = table.load.copy()
        self.room: Floats = table.capacity
        self._loads: list[float] = table.load.tolist()

    def copy(self) -> Draft:
        """One that changes by itself."""
        twin = Draft.__new__(Draft)
        twin.table, twin._penalty, twin._elsewhere = self.table, self._penalty, self._elsewhere
        twin.local = self.local.copy()
        twin._remote = None if self._remote is None else self._remote.copy()
        twin.carried = self.carried.copy()
        twin.room = self.room
        twin._loads = self._loads
        return twin

    @property
    def remote(self) -> Side:
        assert self._remote is not None, "locals are settled before remotes are looked at"
        return self._remote

    def open_remote(self) -> Side:
        """Begin with the remotes; those there were are forgotten."""
        cover = self.local.cover.based(self.local.group)
        missing = self.local.missing - self._penalty
        self._remote = Side(self.table, self._elsewhere, cover, missing, self._penalty)
        for j in range(self.table.count):
            self._count(j)
        return self._remote

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, side: Side, broker: int, backup: int) -> None:
        side.add(broker, backup)
        self._count(backup)

    def remove(self, side: Side, broker: int) -> int:
        backup = side.remove(broker)
        self._count(backup)
        return backup

    def move(self, side: Side, moves: Iterable[tuple[int, int]]) -> tuple[list[int], Ints]:
        """Brokers go to other backups, all at once; the backups that this touched, and what ``Side.settle`` says."""
        touched: set[int] = set()
        for broker, backup in moves:
            touched |= {side.move(broker, backup), backup}
        backups = sorted(touched)
        for each in backups:
            self._count(each)
        return backups, side.settle(backups)

    def follow(self, side: Side, chosen: Ints) -> None:
        """Have all these backups on a side where there were none."""
        side.follow(chosen)
        for j in range(self.table.count):
            self._count(j)

    def _count(self, backup: int) -> None:
        load = self._loads
        backed = [load[backup], *(load[each] for each in self.local.group[backup])]
        if self._remote is not None:
            backed += [load[each] for each in self._remote.group[backup]]
        self.carried[backup] = math.fsum(backed)

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────

    def fits(self, broker: int) -> Bools:
        """By broker, whether it could carry this broker too: eq. 7 if it were chosen."""
        fits: Bools = self.carried + self.table.load[broker] < self.room
        return fits

    def choose(self, side: Side, broker: int, price: Ints) -> None:
        """Give a broker the backup with the least price that has room, or the least bad; none if nobody could be it."""
        able = side.allowed[broker] & self.fits(broker)
        place = int(np.argmin(np.where(able, price, NEVER)))
        if not able[place]:
            candidates = np.flatnonzero(side.allowed[broker])
            if not len(candidates):
                return
            place = self.least_bad(side, broker, candidates)
        self.add(side, broker, place)

    def least_bad(self, side: Side, broker: int, candidates: Ints) -> int:
        """Where no candidate has room: the candidate that would be over by the least, then the one with the least to
        add.
        """
        over = self.carried[candidates] + self.table.load[broker] - self.room[candidates]
        order = np.lexsort((candidates, side.missing[broker, candidates], over))
        return int(candidates[order[0]])

    def excess(self) -> tuple[int, float]:
        """How many backups have no room, and by how much brokers are over. (0, 0.0): eq. 7 holds."""
        shortfalls = [each for each in self._shortfalls() if each.kind == "capacity"]
        over = {each.backup: each.needed - each.available for each in shortfalls}
        return len(shortfalls), math.fsum(over.values())

    def outcome(self, strategy: str) -> Plan:
        table, names = self.table, self.table.names
        return Plan(
            strategy=strategy,
            backups={
                name: Backups(self._name(self.local.chosen[i]), self._name(self.remote.chosen[i]))
                for i, name in enumerate(names)
            },
            overhead=self._by_name(self.local),
            remote_overhead=self._by_name(self.remote),
            load={name: float(self.carried[j]) for j, name in enumerate(table.names)},
            shortfalls=tuple(self._shortfalls()),
        )

    def _name(self, broker: int) -> str | None:
        return None if broker == NOBODY else self.table.names[broker]

    def _by_name(self, side: Side) -> dict[str, int]:
        """Subscriptions alone, without what was asked for the backups themselves."""
        return {
            name: int(side.cost[j]) - int(side.penalty[j]) * len(side.group[j])
            for j, name in enumerate(self.table.names)
        }

    def _shortfalls(self) -> list[Shortfall]:
        """The brokers that an overfull backup has no room for when they come in turn: locals, remotes, by name."""
        table = self.table
        sides: list[tuple[Role, Side]] = [("local", self.local)]
        if self._remote is not None:
            sides.append(("remote", self._remote))
        found = [
            Shortfall(table.names[i], role, "nobody", 1, 0)
            for role, side in sides
            for i in np.flatnonzero(side.chosen == NOBODY).tolist()
        ]
        for j in np.flatnonzero(self.carried >= table.capacity).tolist():
            backed = [j]
            for role, side in sides:
                for i in side.group[j]:
                    backed.append(i)
                    needed = math.fsum(table.load[backed])
                    if needed >= table.capacity[j]:
                        names = table.names
                        found.append(
                            Shortfall(names[i], role, "capacity", needed, float(table.capacity[j]), names[j])
                        )
        return sorted(found, key=lambda each: (each.broker, each.role))
