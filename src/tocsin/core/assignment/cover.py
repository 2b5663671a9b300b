"""The subscriptions that each broker of a side covers, and the effects of a change.

A backup j covers its **base**, which it has for reasons of its own, and all that the brokers of its **group** hold. A
cover answers in *spreads*: of some columns, the weight that each broker holds. It is kept in one of two ways, after
the table: as a matrix of bits, where many spreads are one (``DenseCover``), or as lists
of columns, where each is counted along the lists of holders (``SparseCover``). Both give the same numbers.

A **trial** says what would happen if brokers joined backups, for many at once; nothing changes by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tocsin.core.assignment.bits import Bools, Ints, Matrix, Words
from tocsin.core.assignment.table import Table

Groups = Sequence[Sequence[int]]  # by backup, the brokers that it backs


class Settled(NamedTuple):
    """The subscriptions that some backups cover beside their bases."""

    spreads: Ints  # of all that, a row for each backup
    weights: Ints
    alone: Ints  # for each member of their groups in turn, the spread of what is covered for its sake alone


class Cover(Protocol):
    """The subscriptions that each backup covers."""

    many: bool  # whether many sets at once cost less than one by one

    def add(self, broker: int, backup: int) -> Ints:
        """``backup`` covers what ``broker`` holds too; the spread of what is new in that."""

    def remove(self, broker: int, backup: int, group: Sequence[int]) -> Ints:
        """``backup`` covers for this group alone, ``broker`` has left it; the spread of what is no longer covered."""

    def settle(self, backups: Sequence[int], groups: Groups, priced: bool = True) -> Settled:
        """These backups cover for their groups as they are now. If it is not ``priced``, ``alone`` is left out."""

    def fresh(self, broker: int, backup: int) -> Ints:
        """The columns that ``broker`` holds and ``backup`` does not cover."""

    def based(self, groups: Groups) -> Cover:
        """A cover on top of this one as its base, with these groups."""

    def copy(self) -> Cover:
        """One that changes by itself."""


def cover_of(table: Table) -> Cover:
    """Everybody covers what it holds."""
    if table.matrix is not None:
        return DenseCover(table.matrix, table.matrix.held, table.matrix.held.copy())
    return SparseCover(table, [[j] for j in range(table.count)])


# ── bits ─────────────────────────────────────────────────────────────────────────────────────────────────────


class DenseCover:
    """Rows of bits."""

    many = True

    def __init__(self, matrix: Matrix, base: Words, cover: Words) -> None:
        self._matrix = matrix
        self._base = base
        self._cover = cover

    def add(self, broker: int, backup: int) -> Ints:
        held, covered = self._matrix.held[broker], self._cover[backup]
        fresh = held & ~covered
        covered |= held
        return self._matrix.spread(fresh)

    def remove(self, broker: int, backup: int, group: Sequence[int]) -> Ints:
        self._recover(backup, group)
        return self._matrix.spread(self._matrix.held[broker] & ~self._cover[backup])

    def _recover(self, backup: int, group: Sequence[int]) -> None:
        covered = self._cover[backup]
        covered[:] = self._base[backup]
        for each in group:
            covered |= self._matrix.held[each]

    def settle(self, backups: Sequence[int], groups: Groups, priced: bool = True) -> Settled:
        held, count = self._matrix.held, len(backups)
        members = sum(len(groups[backup]) for backup in backups) if priced else 0
        sets = np.empty((count + members, held.shape[1]), dtype=np.uint64)
        at = count
        for row, backup in enumerate(backups):
            group, base = groups[backup], self._base[backup]
            covered = self._cover[backup]
            covered[:] = base
            shared = base.copy()  # by the base or two of the group
            for each in group:
                if priced:
                    shared |= covered & held[each]
                covered |= held[each]
            np.bitwise_and(covered, ~base, out=sets[row])
            np.bitwise_and(covered, ~shared, out=shared)
            for each in group if priced else ():
                np.bitwise_and(held[each], shared, out=sets[at])
                at += 1
        spreads = self._matrix.spread(sets)
        return Settled(spreads[:count], self._matrix.weigh(sets[:count]), spreads[count:])

    def fresh(self, broker: int, backup: int) -> Ints:
        return self._matrix.columns(self._matrix.held[broker] & ~self._cover[backup])

    def based(self, groups: Groups) -> Cover:
        return DenseCover(self._matrix, self._cover.copy(), self._cover.copy())

    def copy(self) -> Cover:
        return DenseCover(self._matrix, self._base, self._cover.copy())


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────


class SparseCover:
    """Lists of columns, of which some may be there more than once."""

    many = False

    def __init__(self, table: Table, bases: Groups) -> None:
        self._table = table
        self._bases = bases
        self._covers: list[Ints | None] = [None] * table.count  # None: not known just now
        self._marked: Bools = np.zeros(table.columns, dtype=np.bool_)  # all False between calls

    def add(self, broker: int, backup: int) -> Ints:
        fresh = self.fresh(broker, backup)
        self._covers[backup] = np.concatenate([self._covered(backup), fresh])
        return self._table.spread(fresh)

    def remove(self, broker: int, backup: int, group: Sequence[int]) -> Ints:
        self._covers[backup] = self._table.rows([*self._bases[backup], *group])
        return self._table.spread(self.fresh(broker, backup))

    def _covered(self, backup: int) -> Ints:
        covered = self._covers[backup]
        if covered is None:
            covered = self._covers[backup] = self._table.rows(self._bases[backup])
        return covered

    def settle(self, backups: Sequence[int], groups: Groups, priced: bool = True) -> Settled:
        table = self._table
        spreads, alone = ([np.empty((0, table.count), dtype=np.int64)] for _ in range(2))
        weights = np.zeros(len(backups), dtype=np.int64)
        for row, backup in enumerate(backups):
            group, base = groups[backup], table.rows(self._bases[backup])
            columns, held = np.unique(table.rows(group), return_counts=True)
            fresh = self._less(columns, base)
            self._covers[backup] = np.concatenate([base, fresh])
            spreads.append(table.spread(fresh)[None])
            weights[row] = table.weight[fresh].sum()
            if priced and len(group) == 1:
                alone.append(spreads[-1])
            elif priced:
                known = np.concatenate([base, columns[held > 1]])
                alone += [table.spread(self._less(table.row(each), known))[None] for each in group]
        return Settled(np.concatenate(spreads), weights, np.concatenate(alone))

    def fresh(self, broker: int, backup: int) -> Ints:
        return self._less(self._table.row(broker), self._covered(backup))

    def _less(self, columns: Ints, others: Ints) -> Ints:
        """Those of the columns that are not among the others."""
        self._marked[others] = True
        left = columns[~self._marked[columns]]
        self._marked[others] = False
        return left

    def based(self, groups: Groups) -> Cover:
        bases = [[*base, *group] for base, group in zip(self._bases, groups, strict=True)]
        return SparseCover(self._table, bases)

    def copy(self) -> Cover:
        twin = SparseCover(self._table, self._bases)
        twin._covers = list(self._covers)
        return twin
