"""The sparse table against plain sets, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.assignment.demands import demands, network
from tests.unit.core.assignment.representations import BOTH, sparse
from tocsin.core.assignment import bits
from tocsin.core.assignment import demand as bounds
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.table import Table
from tocsin.errors import DemandInvalid


def held(demand: Demand, name: str) -> set[object]:
    return {k for k, count in demand.holdings.get(name, {}).items() if count}


@given(demands(most=12), st.sampled_from(sorted(BOTH)))
def test_what_two_brokers_share_is_what_their_sets_share(demand: Demand, way: str) -> None:
    table = BOTH[way](demand)
    assert list(table.names) == sorted(each.name for each in demand.members)
    for i, one in enumerate(table.names):
        assert table.size[i] == len(held(demand, one))
        for j, other in enumerate(table.names):
            assert table.shared[i, j] == len(held(demand, one) & held(demand, other))


@given(demands(least=1, most=12), st.data(), st.sampled_from(sorted(BOTH)))
def test_a_spread_counts_what_each_broker_holds_of_some_columns(
    demand: Demand, data: st.DataObject, way: str
) -> None:
    table = BOTH[way](demand)
    columns = sorted(data.draw(st.sets(st.sampled_from(range(table.columns)))) if table.columns else ())
    counted = table.spread(np.array(columns, dtype=np.int64))
    for i in range(table.count):
        own = set(table.row(i).tolist())
        assert counted[i] == sum(int(table.weight[k]) for k in columns if k in own)


@given(demands(most=12))
def test_subscriptions_with_the_same_holders_are_one_column(demand: Demand) -> None:
    table = Table.of(demand)
    holders: dict[object, frozenset[str]] = {}
    for name in table.names:
        for k in held(demand, name):
            holders[k] = holders.get(k, frozenset()) | {name}
    weights = sorted(list(holders.values()).count(each) for each in set(holders.values()))
    assert sorted(table.weight.tolist()) == weights


def test_both_ways_to_count_are_used() -> None:
    few = sparse(network(40, 2, 4_000, 60))
    many = sparse(network(40, 2, 60, 60))
    assert few.heavy_count < few.columns
    assert many.heavy_count == many.columns
    for table in (few, many):
        rows = [set(table.row(i).tolist()) for i in range(table.count)]
        for i, j in ((0, 1), (3, 30), (7, 7)):
            assert table.shared[i, j] == sum(int(table.weight[k]) for k in rows[i] & rows[j])


@given(demands(least=1, most=12), st.data())
def test_a_part_is_the_table_of_some_brokers_alone(demand: Demand, data: st.DataObject) -> None:
    table = Table.of(demand)
    chosen = sorted(data.draw(st.sets(st.sampled_from(range(table.count)), min_size=1)))
    part = table.part(np.array(chosen))
    assert part is not None
    kept = tuple(each for each in demand.members if each.name in {table.names[i] for i in chosen})
    alone = Table.of(
        Demand(kept, {each.name: demand.holdings.get(each.name, {}) for each in kept}, demand.rates)
    )
    assert part.names == alone.names
    for what in ("size", "load", "capacity", "handicap", "shared"):
        assert (getattr(part, what) == getattr(alone, what)).all()
    for i in range(part.count):
        assert part.weight[part.row(i)].sum() == part.size[i]


def test_large_tables_have_a_matrix_only_if_they_are_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "WORDS_SMALL", 10)
    few, many = network(40, 2, 4_000, 60), network(40, 2, 60, 60)
    assert Table.of(few).matrix is None
    assert Table.of(few).part(np.arange(30)) is None
    assert Table.of(few).part(np.arange(2)) is not None
    assert Table.of(many).matrix is not None
    monkeypatch.setattr(bits, "WORDS_MAX", 10)
    assert Table.of(many).matrix is None


def test_columns_are_kept_apart_when_their_sums_are_equal_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    demand = network(10, 2, 50, 20)
    expected = Table.of(demand).shared
    monkeypatch.setattr(
        "tocsin.core.assignment.table._mixed", lambda numbers, salt: np.zeros(len(numbers), dtype=np.uint64)
    )
    assert (Table.of(demand).shared == expected).all()


def test_a_load_is_the_same_in_whatever_order_it_is_summed() -> None:
    rates = {k: 0.1 * k for k in range(50)}
    members = (Member("a", "n"), Member("b", "n"))
    holdings = {"a": {k: 1 for k in range(50)}, "b": {k: 1 for k in reversed(range(50))}}
    table = Table.of(Demand(members, holdings, rates))
    assert table.load[0] == table.load[1] == pytest.approx(122.5)


A = Member("a", "n")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Demand((A, A), {}), "broker 'a' is there twice"),
        (lambda: Demand((Member("a", "n", math.nan),), {}), "'a' has capacity nan"),
        (lambda: Demand((Member("a", "n", -1),), {}), "'a' has capacity -1"),
        (lambda: Demand((Member("a", "n", handicap=-1),), {}), "'a' has handicap -1"),
        (lambda: Demand((Member("a", "n", handicap=1 << 40),), {}), "'a' has handicap 1099511627776"),
        (lambda: Demand((A,), {"a": {"k": 10**400}}), "subscribers of 'k'"),
        (lambda: Demand((A,), {}, {"k": 1e300}), "'k' has rate 1e\\+300"),
        (lambda: Demand((A,), {"b": {}}), "'b' holds subscriptions and is no broker"),
        (lambda: Demand((A,), {"a": {"k": -2}}), "'a' has -2 subscribers of 'k'"),
        (lambda: Demand((A,), {}, {"k": math.nan}), "'k' has rate nan"),
        (lambda: Demand((A,), {}, {"k": math.inf}), "'k' has rate inf"),
        (lambda: Demand((A,), {}, {"k": -1.0}), "'k' has rate -1.0"),
    ],
)
def test_a_demand_that_makes_no_sense_is_refused_in_words(wrong: Callable[[], Demand], words: str) -> None:
    with pytest.raises(DemandInvalid, match=words):
        Table.of(wrong())


def test_a_demand_beyond_the_bounds_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    demand = network(5, 2, 50, 20)
    monkeypatch.setattr(bounds, "BROKERS_MAX", 4)
    with pytest.raises(DemandInvalid, match="5 brokers; plan for at most 4"):
        Table.of(demand)
    monkeypatch.setattr(bounds, "BROKERS_MAX", 5)
    monkeypatch.setattr(bounds, "PAIRS_MAX", 10)
    with pytest.raises(DemandInvalid, match="pairs; plan for at most 10"):
        Table.of(demand)
