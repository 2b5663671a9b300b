"""Both ways to know who covers what, against sets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.demands import demands, network
from tests.unit.core.assignment.representations import BOTH, dense, sparse
from tocsin.core.assignment.cover import Cover, cover_of
from tocsin.core.assignment.demand import Demand
from tocsin.core.assignment.table import Table


def weight(table: Table, columns: set[int], broker: int) -> int:
    held = set(table.row(broker).tolist())
    return sum(int(table.weight[k]) for k in columns & held)


class Model:
    """A cover as sets of columns."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.held = [set(table.row(i).tolist()) for i in range(table.count)]
        self.base = [set(each) for each in self.held]
        self.groups: list[list[int]] = [[] for _ in self.held]

    def covered(self, j: int) -> set[int]:
        return self.base[j].union(*(self.held[each] for each in self.groups[j]))

    def spread(self, columns: set[int]) -> list[int]:
        return [weight(self.table, columns, i) for i in range(self.table.count)]

    def alone(self, j: int, member: int) -> set[int]:
        others = [self.held[each] for each in self.groups[j] if each != member]
        return self.held[member] - self.base[j].union(*others)


def joined(demand: Demand, way: str, joins: list[tuple[int, int]]) -> tuple[Model, Cover]:
    """Some brokers join some backups; whoever is there already leaves. The numbers are checked on the way."""
    table = BOTH[way](demand)
    model, cover = Model(table), cover_of(table)
    for one, other in joins:
        broker, backup = one % table.count, other % table.count
        if broker == backup:
            continue
        if broker in model.groups[backup]:
            model.groups[backup].remove(broker)
            left = cover.remove(broker, backup, model.groups[backup])
            assert left.tolist() == model.spread(model.held[broker] - model.covered(backup))
        else:
            fresh = model.held[broker] - model.covered(backup)
            assert cover.fresh(broker, backup).tolist() == sorted(fresh)
            assert cover.add(broker, backup).tolist() == model.spread(fresh)
            model.groups[backup] = sorted([*model.groups[backup], broker])
    return model, cover


joins = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30)
ways = st.sampled_from(sorted(BOTH))


@settings(max_examples=80)
@given(demands(least=1, most=9), ways, joins, st.data())
def test_groups_are_settled_as_if_they_had_come_one_by_one(
    demand: Demand, way: str, moves: list[tuple[int, int]], data: st.DataObject
) -> None:
    model, kept_up = joined(demand, way, moves)
    count = model.table.count
    backups = data.draw(st.lists(st.sampled_from(range(count)), unique=True))
    for cover in (kept_up, cover_of(model.table)):
        spreads, weights, alone = cover.settle(backups, model.groups)
        for row, j in enumerate(backups):
            new = model.covered(j) - model.base[j]
            assert spreads[row].tolist() == model.spread(new)
            assert weights[row] == sum(int(model.table.weight[k]) for k in new)
            for i in range(count):
                assert set(cover.fresh(i, j).tolist()) == model.held[i] - model.covered(j)
        expected = [model.spread(model.alone(j, each)) for j in backups for each in model.groups[j]]
        assert alone.tolist() == expected
        unpriced = cover.settle(backups, model.groups, priced=False)
        assert unpriced.spreads.tolist() == spreads.tolist()
        assert unpriced.weights.tolist() == weights.tolist()
        assert len(unpriced.alone) == 0


@settings(max_examples=50)
@given(demands(least=2, most=9), ways, joins, joins)
def test_a_cover_builds_on_its_base_and_a_copy_changes_alone(
    demand: Demand, way: str, first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    model, below = joined(demand, way, first)
    count = model.table.count
    groups = [list(each) for each in model.groups]
    cover, twin = below.based(model.groups), below.copy()
    model.base, model.groups = [model.covered(j) for j in range(count)], [[] for _ in range(count)]
    before = [model.covered(j) for j in range(count)]
    for one, other in second:
        broker, backup = one % count, other % count
        if broker not in model.groups[backup] and broker != backup and broker not in groups[backup]:
            cover.add(broker, backup)
            model.groups[backup].append(broker)
    backups = [j for j, group in enumerate(model.groups) if group]
    expected = [model.spread(model.alone(j, each)) for j in backups for each in model.groups[j]]
    assert cover.settle(backups, model.groups).alone.tolist() == expected
    for i in range(count):
        for j in range(count):
            assert set(cover.fresh(i, j).tolist()) == model.held[i] - model.covered(j)
            assert set(below.fresh(i, j).tolist()) == model.held[i] - before[j]
            assert set(twin.fresh(i, j).tolist()) == model.held[i] - before[j]


@pytest.mark.parametrize("way", sorted(BOTH))
def test_groups_of_hundreds_are_counted_without_overflow(way: str) -> None:
    demand = network(300, 1, 40, 30)
    table = BOTH[way](demand)
    model, cover = Model(table), cover_of(table)
    model.groups[0] = list(range(1, 300))
    found = cover.settle([0], model.groups).alone
    assert found.tolist() == [model.spread(model.alone(0, each)) for each in model.groups[0]]


def test_large_and_small_tables_are_kept_in_the_way_that_suits_them() -> None:
    assert cover_of(dense(network(5, 2, 20, 10))).many
    assert not cover_of(sparse(network(5, 2, 20, 10))).many
