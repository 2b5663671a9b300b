"""One kind of backup, local or remote: which brokers back which, and the cost of each further one.

A broker j **covers** the subscriptions it needs not create: those it has for reasons of its own (its base) and those
of the brokers that it backs already (``group``). ``missing[i, j]`` is the weight of what i holds and j does not
cover, so that it is what backing i would add to ``cost[j]``; it includes ``penalty[j]``, what is asked for any
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

from tocsin.core.assignment.cover import Cover
from tocsin.core.assignment.table import Bools, Ints, Table

NOBODY: Final = -1
NEVER: Final = 1 << 40  # more than any sum of weights and handicaps


class Side:
    """The assignment of backups of one kind. ``allowed[i, j]``: broker i may be the backup of j."""

    def __init__(self, table: Table, allowed: Bools, cover: Cover, missing: Ints, penalty: Ints) -> None:
        """``missing`` goes with ``cover``, without penalties. Nobody backs anybody yet."""
        self.table = table
        self.allowed = allowed
        self.cover = cover
        self.penalty = penalty
        self._bare: Ints = missing + penalty  # what would be missing if nobody backed anybody
        self.missing: Ints = self._bare.copy()
        self.cost: Ints = np.zeros(table.count, dtype=np.int64)
        self.chosen: Ints = np.full(table.count, NOBODY, dtype=np.int64)
        self.group: list[list[int]] = [[] for _ in range(table.count)]

    def add(self, broker: int, backup: int) -> None:
        """``backup`` backs ``broker`` from now on, which had none."""
        self.cost[backup] += self.missing[broker, backup]
        self.missing[:, backup] -= self.cover.add(broker, backup)
        insort(self.group[backup], broker)
        self.chosen[broker] = backup

    def remove(self, broker: int) -> int:
        """The broker has no backup any more; which one it had."""
        backup = int(self.chosen[broker])
        self.group[backup].remove(broker)
        self.chosen[broker] = NOBODY
        self.missing[:, backup] += self.cover.remove(broker, backup, self.group[backup])
        self.cost[backup] -= self.missing[broker, backup]
        return backup

    def follow(self, chosen: Ints) -> None:
        """Have all these backups, where there were none: what adding them one by one would make."""
        self.chosen = chosen.copy()
        for broker, backup in enumerate(chosen.tolist()):
            if backup != NOBODY:
                self.group[backup].append(broker)
        self.settle([backup for backup, group in enumerate(self.group) if group], priced=False)

    def move(self, broker: int, backup: int) -> int:
        """The broker goes to another backup, and both are to be settled; which one it had."""
        before = int(self.chosen[broker])
        self.group[before].remove(broker)
        insort(self.group[backup], broker)
        self.chosen[broker] = backup
        return before

    def settle(self, backups: Sequence[int], priced: bool = True) -> Ints:
        """Count again for these backups; returns their ``Settled.alone``."""
        settled = self.cover.settle(backups, self.group, priced)
        numbers = np.array(backups, dtype=np.int64)
        sizes = np.array([len(self.group[each]) for each in backups], dtype=np.int64)
        self.missing[:, numbers] = self._bare[:, numbers] - settled.spreads.T
        self.cost[numbers] = settled.weights + self.penalty[numbers] * sizes
        return settled.alone

    def fresh(self, broker: int, backup: int) -> Ints:
        """The columns that ``broker`` holds and ``backup`` does not cover."""
        return self.cover.fresh(broker, backup)

    def copy(self) -> Side:
        """One that changes by itself."""
        twin = Side(self.table, self.allowed, self.cover.copy(), self._bare - self.penalty, self.penalty)
        twin.missing = self.missing.copy()
        twin.cost = self.cost.copy()
        twin.chosen = self.chosen.copy()
        twin.group = [list(each) for each in self.group]
        return twin
