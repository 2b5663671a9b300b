"""A demand as sparse arrays: brokers and their subscriptions, in both directions.

Brokers are rows, in the order of their names, so that *the first* of several means the smallest name everywhere.
Columns are subscriptions. Subscriptions that the same brokers hold are one column with a **weight**: to every plan they
are alike, and in networks whose regions have their own subscriptions there are far fewer columns than subscriptions.

All that strategies ask is ``spread``: of these columns, what weight does each broker hold? A small or a dense table has
a ``matrix`` of bits, in which many such questions are one. In others, columns that few brokers
hold are counted along their lists of holders, which are kept in **shelves** by length, each a matrix with a little room
left over; those that many hold (``heavy``, the first ones) as rows of a dense matrix. Either way a column costs about
as much as there is to count.

A ``part`` is the table of some of the brokers, without regard to others: the locals of a cluster are planned in it.

Invariants: rows and lists of holders are sorted; column k is heavy iff k < ``heavy_count``; weights are positive,
and all sums of them are below 2^24, so that single precision is exact.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tocsin.core.assignment.bits import Bools, Floats, Ints, Matrix
from tocsin.core.assignment.demand import FIGURE_MAX, Demand
from tocsin.errors import DemandInvalid

__all__ = ["Bools", "Floats", "Ints", "Matrix", "Table"]

HEAVY_SHARE: Final = 4  # held by more than a quarter of the brokers: then a dense row is the quicker one
HEAVY_LEAST: Final = 4


class _Shelf(NamedTuple):
    """The holders of the columns from ``begin`` on, a row each; ``plain``: all of weight 1."""

    begin: int
    holders: Ints
    plain: bool


class Table:
    """The demand, indexed. Nothing in it changes."""

    matrix: Matrix | None

    def __init__(
        self,
        names: Sequence[str],
        clusters: Sequence[str],
        capacity: Floats,
        load: Floats,
        handicap: Ints,
        rows: Sequence[Ints],
    ) -> None:
        """``rows``: for each broker the numbers of its subscriptions, each once, in any numbering from 0."""
        self.names = tuple(names)
        self.count = len(self.names)
        codes = {cluster: number for number, cluster in enumerate(sorted(set(clusters)))}
        self.cluster: Ints = np.array([codes[each] for each in clusters], dtype=np.int64)
        self.capacity = capacity
        self.load = load
        self.handicap = handicap
        self._merge(rows)

    @classmethod
    def of(cls, demand: Demand) -> Table:
        """Read a demand, which is checked on the way."""
        demand.check()
        members = sorted(demand.members, key=lambda each: each.name)
        numbers: defaultdict[Hashable, int] = defaultdict(itertools.count().__next__)
        rows: list[Ints] = []
        loads: list[float] = []
        for member in members:
            row, load = _read(member.name, demand.holdings.get(member.name, {}), demand.rates, numbers)
            rows.append(row)
            loads.append(load)
        return cls(
            [each.name for each in members],
            [each.cluster for each in members],
            np.array([each.capacity for each in members], dtype=np.float64),
            np.array(loads, dtype=np.float64),
            np.array([each.handicap for each in members], dtype=np.int64),
            rows,
        )

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def columns(self) -> int:
        return len(self.weight)

    @property
    def pairs(self) -> int:
        """How much there is to look at: (broker, column) pairs."""
        return len(self._row_columns)

    def row(self, broker: int) -> Ints:
        """The columns that a broker holds."""
        return self._row_columns[self._row_at[broker] : self._row_at[broker + 1]]

    def rows(self, brokers: Sequence[int]) -> Ints:
        """The columns of several brokers, one broker after the other."""
        if not brokers:
            return self._row_columns[:0]
        return np.concatenate([self.row(each) for each in brokers])

    def spread(self, columns: Ints) -> Ints:
        """The weight that each broker holds of these columns (sorted, each once)."""
        if self.matrix is not None:
            return self.matrix.spread(self.matrix.bits(columns))
        ends = np.searchsorted(columns, self._shelf_ends).tolist()
        counted = np.zeros(self.count, dtype=np.int64)
        if ends[0]:
            counted += self._heavy[columns[: ends[0]]].sum(axis=0).astype(np.int64)
        for shelf, begin, end in zip(self._shelves, ends[:-1], ends[1:], strict=True):
            if begin < end:
                counted += self._count(shelf, columns[begin:end])
        return counted

    def _count(self, shelf: _Shelf, columns: Ints) -> Ints:
        holders = shelf.holders[columns - shelf.begin]
        if shelf.plain:
            return np.bincount(holders.ravel(), minlength=self.count + 1)[:-1]
        weights = np.repeat(self.weight[columns], holders.shape[1])
        return np.bincount(holders.ravel(), weights, minlength=self.count + 1)[:-1].astype(np.int64)

    @cached_property
    def shared(self) -> Ints:
        """For each two brokers, the weight that both hold; on the diagonal what each holds."""
        if self.matrix is not None:
            return self.matrix.spread(self.matrix.held)
        shared = (self._heavy.T @ (self._heavy > 0).astype(np.float32)).astype(np.int64)
        for broker in range(self.count):
            row = self.row(broker)
            shared[broker] += self.spread(row[np.searchsorted(row, self.heavy_count) :])
        return shared

    def part(self, brokers: Ints) -> Table | None:
        """The table of these brokers alone (sorted), if it has a matrix. It knows no columns from this index on.

        A column with one holder left tells nothing but its weight: each broker has one column for all of those.
        """
        count = len(brokers)
        sizes = self._row_at[brokers + 1] - self._row_at[brokers]
        columns, holders = self.rows(brokers.tolist()), np.repeat(np.arange(count), sizes)
        shared = np.flatnonzero(np.bincount(columns, minlength=self.columns) > 1)
        numbers = np.full(self.columns, -1, dtype=np.int64)
        numbers[shared] = np.arange(len(shared))
        numbered = numbers[columns]
        single = np.bincount(holders, self.weight[columns] * (numbered < 0), minlength=count).astype(np.int64)
        holders, columns = holders[numbered >= 0], numbered[numbered >= 0]
        lonely = np.flatnonzero(single)
        holders = np.concatenate([holders, lonely])
        columns = np.concatenate([columns, len(shared) + np.arange(len(lonely))])
        weight = np.concatenate([self.weight[shared], single[lonely]])
        matrix = Matrix.of(count, holders, columns, weight)
        if matrix is None:
            return None
        found = Table.__new__(Table)
        found.names = tuple(self.names[each] for each in brokers.tolist())
        found.count = count
        found.cluster, found.capacity = self.cluster[brokers], self.capacity[brokers]
        found.load, found.handicap = self.load[brokers], self.handicap[brokers]
        found.size, found.weight, found.matrix = self.size[brokers], weight, matrix
        found._order(holders, columns)
        return found

    # ── building ────────────────────────────────────────────────────────────────────────────────────────────────

    def _merge(self, rows: Sequence[Ints]) -> None:
        sizes = np.array([len(row) for row in rows], dtype=np.int64)
        brokers = np.repeat(np.arange(self.count), sizes)
        subscriptions = np.concatenate([*rows, np.empty(0, dtype=np.int64)])
        pairs = np.sort(subscriptions * self.count + brokers)  # by subscription, and then by broker
        brokers = pairs % max(self.count, 1)
        held = np.bincount(subscriptions)
        held = held[held > 0]
        begin = np.cumsum(held) - held
        # The first of those that are alike stands for all; those with the most holders come first.
        standing, weight = _alike(brokers, begin, held)
        standing_order = np.lexsort((standing, -held[standing]))
        standing, weight = standing[standing_order], weight[standing_order]
        self.weight: Ints = weight.astype(np.int64)
        lengths = held[standing]
        self._holders_at: Ints = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        first = np.repeat(begin[standing] - self._holders_at[:-1], lengths)
        self._holders: Ints = brokers[first + np.arange(len(first))]
        columns = np.repeat(np.arange(len(lengths)), lengths)
        self._order(self._holders, columns)
        self.size: Ints = np.bincount(
            self._holders, np.repeat(self.weight, lengths), minlength=self.count
        ).astype(np.int64)
        self.matrix = Matrix.of(self.count, self._holders, columns, self.weight)
        if self.matrix is None:
            self._index(columns, lengths)

    def _order(self, holders: Ints, columns: Ints) -> None:
        """Put pairs in the order of brokers."""
        by_broker = np.argsort(holders.astype(np.uint16), kind="stable")  # few digits are sorted fast
        self._row_columns: Ints = columns[by_broker]
        self._row_at: Ints = np.concatenate([[0], np.cumsum(np.bincount(holders, minlength=self.count))])

    def _index(self, columns: Ints, lengths: Ints) -> None:
        """Make what columns are counted along."""
        self.heavy_count = int(np.sum(lengths > max(HEAVY_LEAST, self.count // HEAVY_SHARE)))
        self._heavy = np.zeros((self.heavy_count, self.count), dtype=np.float32)  # weight where it is held
        end = self._holders_at[self.heavy_count]
        self._heavy[columns[:end], self._holders[:end]] = self.weight[columns[:end]]
        self._shelve(lengths)

    def _shelve(self, lengths: Ints) -> None:
        """Put the lists of holders on shelves: lengths up to 1, 2, 4, … have a matrix each, filled up with nobody."""
        self._shelves: list[_Shelf] = []
        begin = self.heavy_count
        while begin < len(lengths):
            width = 1 << (int(lengths[begin]) - 1).bit_length()
            end = int(np.searchsorted(-lengths, -(width // 2), side="left"))
            end = max(end, begin + 1) if width > 1 else len(lengths)
            holders = np.full((end - begin, width), self.count, dtype=np.int64)
            first, last = self._holders_at[begin], self._holders_at[end]
            row = np.repeat(np.arange(end - begin), lengths[begin:end])
            place = np.arange(first, last) - np.repeat(self._holders_at[begin:end], lengths[begin:end])
            holders[row, place] = self._holders[first:last]
            self._shelves.append(_Shelf(begin, holders, bool((self.weight[begin:end] == 1).all())))
            begin = end
        self._shelf_ends = np.array(
            [self.heavy_count, *(each.begin for each in self._shelves[1:]), len(lengths)]
        )
        if not self._shelves:
            self._shelf_ends = np.array([self.heavy_count])


def _read(
    name: str, held: Mapping[Hashable, int], rates: Mapping[Hashable, float], numbers: Mapping[Hashable, int]
) -> tuple[Ints, float]:
    """A broker's subscriptions as numbers, and the load that they bring. ``numbers`` has one for whatever is asked."""
    if min(held.values(), default=0) < 0 or max(held.values(), default=0) > FIGURE_MAX:
        wrong = next(k for k, count in held.items() if not 0 <= count <= FIGURE_MAX)
        raise DemandInvalid(
            f"broker {name!r} has {held[wrong]} subscribers of {wrong!r}", f"give 0 to {FIGURE_MAX:g} of them"
        )
    kept = held if min(held.values(), default=1) else [k for k, count in held.items() if count]
    row = np.fromiter(map(numbers.__getitem__, kept), dtype=np.int64, count=len(kept))
    if not rates:
        return row, float(sum(held.values()))
    rate = rates.get
    return row, math.fsum(rate(k, 1.0) * held[k] for k in kept)  # the same in whatever order they come


def _alike(brokers: Ints, begin: Ints, held: Ints) -> tuple[Ints, Ints]:
    """The first of the columns with the same list of holders, and their number: by two sums of mixed bits, and a look.

    ``brokers`` has the lists one after the other; ``begin`` and ``held`` say where each is, and how long.
    """
    if not len(begin):
        return begin, begin
    sums, others = (np.add.reduceat(_mixed(brokers, salt), begin) for salt in (1, 2))
    order = np.argsort(sums, kind="stable")
    sums, others, lengths = sums[order], others[order], held[order]
    new = (sums[1:] != sums[:-1]) | (others[1:] != others[:-1]) | (lengths[1:] != lengths[:-1])
    at = np.flatnonzero(np.concatenate([[True], new]))
    weight = np.diff(at, append=len(order))
    leader = np.empty(len(begin), dtype=np.int64)
    leader[order] = np.repeat(order[at], weight)
    # Sums can be equal by chance; then nothing is merged, which costs time and changes no answer.
    offset = np.arange(len(brokers)) - np.repeat(begin, held)
    same = brokers == brokers[np.repeat(begin[leader], held) + offset]
    return (order[at], weight) if bool(same.all()) else (np.arange(len(begin)), np.ones_like(begin))


def _mixed(numbers: Ints, salt: int) -> npt.NDArray[np.uint64]:
    """Numbers as scattered bits (the finaliser of splitmix64)."""
    bits = (numbers.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
