"""Equations 1 to 7 of the paper and its two algorithms, word for word: dense, slow, and meant to be read beside it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.outcome import Plan


class Matrices(NamedTuple):
    """z, e, the load Σ lam·c of each broker, and D, over brokers in the order of their names."""

    names: list[str]
    z: list[list[int]]
    e: list[list[int]]
    load: list[float]
    capacity: list[float]


Assignment = list[list[int]]  # x or y


def matrices(demand: Demand) -> Matrices:
    members = sorted(demand.members, key=lambda each: each.name)
    columns: list[Hashable] = sorted({k for held in demand.holdings.values() for k in held}, key=repr)
    counts = [[demand.holdings.get(each.name, {}).get(k, 0) for k in columns] for each in members]
    return Matrices(
        names=[each.name for each in members],
        z=[[int(count > 0) for count in row] for row in counts],
        e=[[int(a.cluster == b.cluster) for b in members] for a in members],
        load=[
            math.fsum(demand.rates.get(k, 1.0) * count for k, count in zip(columns, row, strict=True))
            for row in counts
        ],
        capacity=[each.capacity for each in members],
    )


def nobody(m: Matrices) -> Assignment:
    return [[0] * len(m.names) for _ in m.names]


def assignments(m: Matrices, plan: Plan) -> tuple[Assignment, Assignment]:
    """The x and y of a plan."""
    x, y = nobody(m), nobody(m)
    for i, name in enumerate(m.names):
        for kind, backup in ((x, plan.backups[name].local), (y, plan.backups[name].remote)):
            if backup is not None:
                kind[i][m.names.index(backup)] = 1
    return x, y


def none_has(m: Matrices, given: Assignment, j: int, k: int) -> int:
    """Π_i (1 − given[i,j]·z[i,k])."""
    product = 1
    for i in range(len(m.names)):
        product *= 1 - given[i][j] * m.z[i][k]
    return product


def overhead(m: Matrices, x: Assignment, j: int) -> int:
    """O[j], eq. 1."""
    return sum((1 - m.z[j][k]) * (1 - none_has(m, x, j, k)) for k in range(len(m.z[0])))


def remote_overhead(m: Matrices, x: Assignment, y: Assignment, j: int) -> int:
    """R[j], eq. 2."""
    return sum(
        (1 - m.z[j][k]) * (1 - none_has(m, y, j, k)) * none_has(m, x, j, k) for k in range(len(m.z[0]))
    )


def workload(m: Matrices, x: Assignment, y: Assignment, j: int) -> float:
    """P[j], eq. 7."""
    others = (m.load[i] * (x[i][j] + y[i][j]) for i in range(len(m.names)))
    return math.fsum([m.load[j], *others])


def objectives(m: Matrices, x: Assignment, y: Assignment) -> tuple[int, int]:
    """Σ O and max R, eq. 3."""
    brokers = range(len(m.names))
    return (
        sum(overhead(m, x, j) for j in brokers),
        max((remote_overhead(m, x, y, j) for j in brokers), default=0),
    )


def feasible(m: Matrices, x: Assignment, y: Assignment) -> bool:
    """Eqs. 4 to 7, where 7 binds those who back somebody."""
    brokers = range(len(m.names))
    return all(
        sum(x[i]) == 1
        and sum(y[i]) == 1
        and x[i][i] == y[i][i] == 0
        and all(x[i][j] <= m.e[i][j] and y[i][j] <= 1 - m.e[i][j] for j in brokers)
        for i in brokers
    ) and all(
        workload(m, x, y, j) < m.capacity[j] for j in brokers if any(x[i][j] or y[i][j] for i in brokers)
    )


def lcs(m: Matrices) -> Assignment:
    """Algorithm 1, and the least bad where it has no answer."""
    x, brokers = nobody(m), range(len(m.names))
    y = nobody(m)
    for i in brokers:
        least, b = math.inf, None
        for j in brokers:
            if j == i or not m.e[i][j]:
                continue
            x[i][j] = 1
            fits = workload(m, x, y, j) < m.capacity[j]
            x[i][j] = 0
            if fits:
                delta = added(m, x, i, j)
                if delta < least:
                    least, b = delta, j
        if b is None:
            candidates = [j for j in brokers if j != i and m.e[i][j]]
            b = least_bad(m, x, y, i, candidates, [added(m, x, i, j) for j in candidates])
        if b is not None:
            x[i][b] = 1
    return x


def added(m: Matrices, x: Assignment, i: int, j: int) -> int:
    """delta[j], eq. 9."""
    return sum(m.z[i][k] * (1 - m.z[j][k]) * none_has(m, x, j, k) for k in range(len(m.z[0])))


def mmcs(m: Matrices, x: Assignment) -> Assignment:
    """Algorithm 2, and the least bad where it has no answer."""
    y, brokers = nobody(m), range(len(m.names))
    for i in brokers:
        least, b = math.inf, None
        for j in brokers:
            if j == i or m.e[i][j]:
                continue
            y[i][j] = 1
            if workload(m, x, y, j) < m.capacity[j]:
                worst = max(remote_overhead(m, x, y, other) for other in brokers)
                if worst < least:
                    least, b = worst, j
            y[i][j] = 0
        if b is None:
            candidates = [j for j in brokers if not m.e[i][j]]
            adds = []
            for j in candidates:
                before = remote_overhead(m, x, y, j)
                y[i][j] = 1
                adds.append(remote_overhead(m, x, y, j) - before)
                y[i][j] = 0
            b = least_bad(m, x, y, i, candidates, adds)
        if b is not None:
            y[i][b] = 1
    return y


def least_bad(
    m: Matrices, x: Assignment, y: Assignment, i: int, candidates: Sequence[int], adds: Sequence[int]
) -> int | None:
    ranked = [
        (workload(m, x, y, j) + m.load[i] - m.capacity[j], add, j)
        for j, add in zip(candidates, adds, strict=True)
    ]
    return min(ranked)[2] if ranked else None
