"""One kind of backup, local or remote: who backs whom, and what each further one would add.

A broker j **covers** the subscriptions it needs not create: those it has for reasons of its own (``base``) and
those of the brokers that it backs already (``group``). ``missing[i, j]`` is the weight of what i holds and j does
not cover, so that it is what backing i would add to ``cost[j]``; it includes ``penalty[j]``, what is asked for any
backup at j. The paper's delta[j] of LCS is ``missing[i, j]`` on the local side; on the remote side the base has
what j keeps ready as a local backup, and ``cost[j]`` is R[j].

Invariants, with C(j) what j covers: ``missing[i, j]`` = |S_i \\ C(j)| + penalty[j]; ``cost[j]`` = |C(j) \\ base| + the
penalties of its group; ``group[j]`` = the i with ``chosen[i]`` = j, sorted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Final

import numpy as np

from tocsin.core.assignment.table import Bools, Ints, Table

NOBODY: Final = -1


class Side:
    """Who backs whom. ``allowed[i, j]`` says who may."""

    def __init__(
        self, table: Table, allowed: Bools, bases: Sequence[Sequence[int]], missing: Ints, penalty: Ints
    ) -> None:
        """``bases[j]``: the brokers whose subscriptions j has anyway; ``missing`` goes with them, without penalties."""
        self.table = table
        self.allowed = allowed
        self.penalty = penalty
        self.missing: Ints = missing + penalty
        self.cost: Ints = np.zeros(table.count, dtype=np.int64)
        self.chosen: Ints = np.full(table.count, NOBODY, dtype=np.int64)
        self.group: list[list[int]] = [[] for _ in range(table.count)]
        self._bases = bases
        self._cover: list[Ints | None] = [None] * table.count  # None: not known just now
        self._marked: Bools = np.zeros(table.columns, dtype=np.bool_)

    def add(self, broker: int, backup: int) -> None:
        """``backup`` backs ``broker`` from now on, which had none."""
        fresh = self._shift(broker, backup, 1)
        insort(self.group[backup], broker)
        self.chosen[broker] = backup
        self._cover[backup] = np.concatenate([self._covered(backup), fresh])

    def remove(self, broker: int) -> int:
        """The broker has no backup any more; which one it had."""
        backup = int(self.chosen[broker])
        self.group[backup].remove(broker)
        self.chosen[broker] = NOBODY
        self._cover[backup] = None
        self._shift(broker, backup, -1)
        return backup

    def _shift(self, broker: int, backup: int, sign: int) -> Ints:
        fresh = self.fresh(broker, backup)
        self.cost[backup] += sign * (int(self.table.weight[fresh].sum()) + int(self.penalty[backup]))
        self.missing[:, backup] -= sign * self.table.spread(fresh)
        return fresh

    def fresh(self, broker: int, backup: int) -> Ints:
        """The columns that ``broker`` holds and ``backup`` does not cover."""
        covered = self._covered(backup)
        self._marked[covered] = True
        row = self.table.row(broker)
        fresh = row[~self._marked[row]]
        self._marked[covered] = False
        return fresh

    def _covered(self, backup: int) -> Ints:
        """The columns that ``backup`` covers, some of them more than once."""
        covered = self._cover[backup]
        if covered is None:
            covered = self._cover[backup] = self.table.rows([*self._bases[backup], *self.group[backup]])
        return covered

    def alone(self, backup: int) -> list[Ints]:
        """For each of the group, the columns that ``backup`` covers for its sake alone."""
        group = self.group[backup]
        if not group:
            return []
        covered = self.table.rows(self._bases[backup])
        self._marked[covered] = True
        once = np.bincount(self.table.rows(group), minlength=self.table.columns) == 1
        rows = [self.table.row(each) for each in group]
        found = [row[once[row] & ~self._marked[row]] for row in rows]
        self._marked[covered] = False
        return found

    def copy(self) -> Side:
        """One that changes by itself."""
        twin = Side(self.table, self.allowed, self._bases, self.missing - self.penalty, self.penalty)
        twin.cost = self.cost.copy()
        twin.chosen = self.chosen.copy()
        twin.group = [list(each) for each in self.group]
        twin._cover = list(self._cover)
        return twin
