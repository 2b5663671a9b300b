"""How good a plan of backups could be: the optimum of small networks, and bounds that no plan can beat for larger ones.

A broker j and the brokers that it backs are a **group**; its cost is what j would have to create for them. A plan
is a choice of groups that has every broker in exactly one, and each j with at most one.

- ``least_sum``: the least ΣO of any locals, each cluster by itself. ``least_largest``: the least max R of any
  remotes, for given locals. Room is what eq. 7 leaves: for locals with no remotes there, for remotes beside the
  locals.
- If all groups can be written down (few brokers, or room for few each), HiGHS chooses among them: an integer
  programme with a column for each group. It proves the optimum in time, or else a bound.
- Otherwise groups are **counted**: of each size up to four the cheapest group of each j is known by trying all, a
  larger one costs no less, and one that leaves out r brokers has whatever more than r hold. The cheapest sizes that
  add up to all brokers are a bound, for in truth brokers cannot be in several groups.

HiGHS (package ``highspy``) is the extra ``optimize``; without it, all is counted.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tocsin.core.assignment.draft import Draft
from tocsin.core.assignment.side import Side
from tocsin.core.assignment.table import Bools, Ints

GROUPS_MAX: Final = 60_000  # columns of one integer programme
TRIED_MAX: Final = 40_000  # groups of one size that are tried for one backup when they are counted
SIZE_TRIED: Final = 4
CELLS: Final = 20_000_000  # of the matrices in which groups are tried at once
NEVER: Final = math.inf


class Bound(msgspec.Struct, frozen=True):
    """No plan has less than ``value``; ``exact``: there is one that has it."""

    value: int
    exact: bool
    how: str  # groups: by HiGHS among all groups; counting

    def gap(self, reached: int) -> float:
        """How far above the bound a plan is, as a share of what it has: 0 means that it is proven to be best."""
        return (reached - self.value) / reached if reached else 0.0


class Groups(NamedTuple):
    """All groups of one backup that have room: the members of each (a row each, as numbers), and their costs."""

    backup: int
    members: list[Ints]  # by size, from 1 on
    costs: list[Ints]


def least_sum(draft: Draft, deadline_s: float = 60.0) -> Bound:
    """The least ΣO, whatever the draft's locals are."""
    empty = Draft(draft.table)
    clusters = [np.flatnonzero(draft.table.cluster == each) for each in np.unique(draft.table.cluster)]
    found = [
        _bound(empty, empty.local, each, largest=False, deadline_s=deadline_s / len(clusters))
        for each in clusters
        if len(each) > 1
    ]
    how = "+".join(sorted({each.how for each in found}))
    return Bound(sum(each.value for each in found), all(each.exact for each in found), how)


def least_largest(draft: Draft, deadline_s: float = 60.0) -> Bound:
    """The least max R with this draft's locals."""
    empty = draft.copy()
    side = empty.open_remote()
    brokers = np.flatnonzero(side.allowed.any(axis=1))
    if not len(brokers):
        return Bound(0, True, "counting")
    return _bound(empty, side, brokers, largest=True, deadline_s=deadline_s)


def _bound(draft: Draft, side: Side, brokers: Ints, *, largest: bool, deadline_s: float) -> Bound:
    sizes = {int(j): _most(draft, side, int(j)) for j in brokers}
    candidates = {j: int(side.allowed[:, j].sum()) for j in sizes}
    total = sum(math.comb(candidates[j], g) for j, most in sizes.items() for g in range(1, most + 1))
    found = Bound(0, False, "counting")
    if total <= GROUPS_MAX and importlib.util.find_spec("highspy") is not None:
        groups = [_groups(draft, side, j, most) for j, most in sizes.items()]
        found = _chosen(groups, brokers, largest, deadline_s)
        if found.exact:
            return found
    tables = {j: _cheapest(draft, side, j, most, len(brokers)) for j, most in sizes.items()}
    counted = _counted_largest(side, brokers, tables) if largest else _counted_sum(tables, len(brokers))
    return found if found.value > counted else Bound(counted, False, "counting")


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────


def _most(draft: Draft, side: Side, backup: int) -> int:
    """How many a broker can back at most: the lightest first."""
    loads = np.sort(draft.table.load[side.allowed[:, backup]])
    return int(np.sum(draft.carried[backup] + np.cumsum(loads) < draft.table.capacity[backup]))


def _lacking(side: Side, backup: int) -> tuple[Ints, Bools, Ints]:
    """The brokers that could be backed, the columns that the backup would have to create for each, and their
    weights."""
    table = side.table
    candidates = np.flatnonzero(side.allowed[:, backup])
    lacks = np.zeros((len(candidates), table.columns), dtype=np.bool_)
    for row, each in enumerate(candidates.tolist()):
        lacks[row, side.fresh(each, backup)] = True
    used = lacks.any(axis=0)
    return candidates, lacks[:, used], table.weight[used]


def _tried(
    draft: Draft, side: Side, backup: int, sizes: range, lacking: tuple[Ints, Bools, Ints]
) -> Iterator[tuple[Ints, Ints]]:
    """For each size, all groups that have room, and their costs."""
    candidates, lacks, weight = lacking
    load = draft.table.load[candidates]
    for size in sizes:
        rows = np.array(list(combinations(range(len(candidates)), size)), dtype=np.int64).reshape(-1, size)
        rows = rows[draft.carried[backup] + load[rows].sum(axis=1) < draft.table.capacity[backup]]
        step = max(CELLS // max(size * len(weight), 1), 1)
        parts = [lacks[rows[at : at + step]].any(axis=1) @ weight for at in range(0, len(rows), step)]
        yield candidates[rows], np.concatenate([*parts, np.empty(0, dtype=np.int64)]).astype(np.int64)


def _groups(draft: Draft, side: Side, backup: int, most: int) -> Groups:
    tried = list(_tried(draft, side, backup, range(1, most + 1), _lacking(side, backup)))
    return Groups(backup, [members for members, _ in tried], [costs for _, costs in tried])


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────


def _chosen(groups: list[Groups], brokers: Ints, largest: bool, deadline_s: float) -> Bound:
    """Choose among all groups: the least sum, or the least largest cost."""
    members = [each for group in groups for level in group.members for each in level.tolist()]
    costs = np.concatenate([level for group in groups for level in (np.empty(0), *group.costs)])
    owner = np.repeat(np.arange(len(groups)), [sum(map(len, group.costs)) for group in groups])
    row_of = {int(each): row for row, each in enumerate(brokers)}
    once, most_one, below = 0, len(brokers), len(brokers) + len(groups)
    starts, rows, values = [0], [], []
    for number, group in enumerate(members):
        rows += [once + row_of[each] for each in group] + [most_one + int(owner[number])]
        values += [1.0] * (len(group) + 1)
        if largest:
            rows.append(below + int(owner[number]))
            values.append(float(costs[number]))
        starts.append(len(rows))
    lower = [1.0] * len(brokers) + [-NEVER] * len(groups)
    upper = [1.0] * len(brokers) + [1.0] * len(groups)
    objective = costs
    if largest:  # one more column, the largest cost itself
        rows += range(below, below + len(groups))
        values += [-1.0] * len(groups)
        starts.append(len(rows))
        lower += [-NEVER] * len(groups)
        upper += [0.0] * len(groups)
        objective = np.concatenate([np.zeros(len(members)), [1.0]])
    return _solved(objective, len(members), (starts, rows, values), (lower, upper), deadline_s)


def _solved(
    objective: npt.NDArray[np.float64],
    choices: int,
    matrix: tuple[list[int], list[int], list[float]],
    limits: tuple[list[float], list[float]],
    deadline_s: float,
) -> Bound:
    highs: Any = importlib.import_module("highspy")
    model = highs.HighsLp()
    count = len(objective)
    model.num_col_, model.num_row_ = count, len(limits[0])
    model.col_cost_ = np.asarray(objective, dtype=np.float64)
    model.col_lower_ = np.zeros(count)
    model.col_upper_ = np.concatenate([np.ones(choices), np.full(count - choices, highs.kHighsInf)])
    model.row_lower_ = np.maximum(limits[0], -highs.kHighsInf)
    model.row_upper_ = np.array(limits[1])
    model.a_matrix_.format_ = highs.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = np.array(matrix[0]), np.array(matrix[1])
    model.a_matrix_.value_ = np.array(matrix[2])
    kinds = highs.HighsVarType
    model.integrality_ = [kinds.kInteger] * choices + [kinds.kContinuous] * (count - choices)
    solver = highs.Highs()
    for option, value in (
        ("output_flag", False),
        ("time_limit", deadline_s),
        ("threads", 1),
        ("random_seed", 1),
    ):
        solver.setOptionValue(option, value)
    solver.passModel(model)
    solver.run()
    status = solver.getModelStatus()
    if status == highs.HighsModelStatus.kInfeasible:
        return Bound(0, False, "counting")  # no plan keeps to eq. 7, so there is no cost to state
    exact = status == highs.HighsModelStatus.kOptimal
    proven = solver.getInfo().mip_dual_bound
    return Bound(max(math.ceil(proven - 1e-6), 0) if math.isfinite(proven) else 0, exact, "groups")


# ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────


def _cheapest(draft: Draft, side: Side, backup: int, most: int, brokers: int) -> npt.NDArray[np.float64]:
    """By size (0 to all brokers), what a group of this backup costs at least; infinite beyond its room."""
    lacking = _lacking(side, backup)
    candidates, lacks, weight = lacking
    count = len(candidates)
    least = np.zeros(brokers + 1)
    sizes = [g for g in range(1, min(most, SIZE_TRIED) + 1) if math.comb(count, g) <= TRIED_MAX]
    for size, (_, costs) in zip(
        sizes, _tried(draft, side, backup, range(1, len(sizes) + 1), lacking), strict=True
    ):
        least[size:] = costs.min() if len(costs) else NEVER
    holders = lacks.sum(axis=0)
    for size in range(1, min(most, count) + 1):
        least[size] = max(least[size], int(weight[holders > count - size].sum()))
    least[most + 1 :] = NEVER
    return np.maximum.accumulate(least)


def _counted_sum(tables: dict[int, npt.NDArray[np.float64]], brokers: int) -> int:
    """The cheapest sizes that add up to all brokers."""
    best = np.full(brokers + 1, NEVER)
    best[0] = 0
    for table in tables.values():
        after = best.copy()
        for size in range(1, brokers + 1):
            after[size:] = np.minimum(after[size:], best[:-size] + table[size])
        best = after
    return int(best[brokers]) if math.isfinite(best[brokers]) else 0


def _counted_largest(side: Side, brokers: Ints, tables: dict[int, npt.NDArray[np.float64]]) -> int:
    """The least cost below which all brokers find a place, each backup taking as many as it could for that."""
    levels = np.unique(np.concatenate([table[np.isfinite(table)] for table in tables.values()]))
    levels = np.union1d(levels, side.missing[brokers][:, list(tables)]).astype(np.int64)
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        if _all_placed(side, brokers, tables, int(levels[middle])):
            high = middle
        else:
            low = middle + 1
    return int(levels[low]) if len(levels) and _all_placed(side, brokers, tables, int(levels[low])) else 0


def _all_placed(side: Side, brokers: Ints, tables: dict[int, npt.NDArray[np.float64]], level: int) -> bool:
    """Whether each broker finds a backup with a place that lacks no more than ``level`` of it: by augmenting paths."""
    places = {j: int(np.sum(table[1:] <= level)) for j, table in tables.items()}
    backed: dict[int, list[int]] = {j: [] for j in places}
    options = {
        int(i): [j for j in places if side.allowed[i, j] and side.missing[i, j] <= level] for i in brokers
    }

    def place(broker: int, seen: set[int]) -> bool:
        for backup in options[broker]:
            if backup in seen:
                continue
            seen.add(backup)
            if len(backed[backup]) < places[backup]:
                backed[backup].append(broker)
                return True
            for at, other in enumerate(backed[backup]):
                if place(other, seen):
                    backed[backup][at] = broker
                    return True
        return False

    return all(place(int(each), set()) for each in brokers)
