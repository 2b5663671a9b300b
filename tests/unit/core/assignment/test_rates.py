"""lam[k] from what brokers have measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.rates import Measured, mean_rate, rates


def test_a_rate_is_the_mean_of_those_who_measured_it_by_clients() -> None:
    holdings = {"a": {"k": 3}, "b": {"k": 1}}
    assert rates(holdings, {"a": Measured({"k": 10.0}), "b": Measured({"k": 50.0})}) == {"k": 20.0}


def test_a_name_counts_more_than_a_rest() -> None:
    holdings = {"a": {"k": 1, "l": 1}, "b": {"k": 99, "l": 1}}
    found = rates(holdings, {"a": Measured({"k": 10.0}, 2.0), "b": Measured({}, 4.0)})
    assert found == {"k": 10.0, "l": 3.0}


def test_a_broker_that_does_not_measure_has_the_rates_of_others() -> None:
    holdings = {"a": {"k": 1, "l": 3}, "old": {"k": 5, "own": 1}}
    measured = {"a": Measured({"k": 10.0, "l": 2.0})}
    found = rates(holdings, measured)
    assert found == {"k": 10.0, "l": 2.0, "own": 4.0}
    assert mean_rate(holdings, found, measured) == 4.0


def test_where_nobody_measures_there_are_no_rates() -> None:
    assert rates({"a": {"k": 1}}, {}) == {}
    assert mean_rate({"a": {"k": 1}}, {}, {}) == 0.0


@pytest.mark.parametrize("figure", [math.nan, math.inf, -1.0, 1e300])
def test_figures_of_others_never_spoil_a_demand(figure: float) -> None:
    holdings = {"a": {"k": 1, "l": 1}}
    Demand((Member("a", "n"),), holdings, rates(holdings, {"a": Measured({"k": figure}, figure)})).check()


names = st.sampled_from("abcd")
held = st.dictionaries(names, st.integers(1, 5), max_size=4)


@given(st.dictionaries(st.sampled_from("xyz"), held, max_size=3), st.dictionaries(names, st.integers(0, 100)))
def test_a_network_that_measures_right_has_the_true_loads(
    holdings: dict[str, dict[str, int]], true: dict[str, int]
) -> None:
    measured = {
        broker: Measured({k: float(true.get(k, 0)) for k in held}) for broker, held in holdings.items()
    }
    found = rates(holdings, measured)
    for held in holdings.values():
        for k in held:
            assert found[k] == pytest.approx(true.get(k, 0))
