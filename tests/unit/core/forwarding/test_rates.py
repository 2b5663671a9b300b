"""Rates of subscriptions: what is recent counts, the largest have names, and nothing is lost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.forwarding.rates import AGE_LEAST_US, OVER_US, DeliveryRates
from tocsin.core.forwarding.tallies import Count

S = 1_000_000


def steady(rates: DeliveryRates, begin_s: int, end_s: int, name: str = "k", each_bytes: int = 5_000) -> None:
    """So many bytes every ten seconds."""
    for at_s in range(begin_s + 10, end_s + 1, 10):
        rates.count([Count(name, each_bytes, 1)], at_s * S)
        rates.counted(at_s * S)


@pytest.mark.parametrize("minutes", [1, 5, 60, 600])
def test_a_steady_stream_has_its_rate_young_and_old(minutes: int) -> None:
    rates = DeliveryRates(0)
    steady(rates, 0, minutes * 60)
    assert rates.look(minutes * 60 * S).named["k"] == pytest.approx(500, rel=0.05)


def test_one_that_begins_late_has_its_rate_soon() -> None:
    rates = DeliveryRates(0)
    rates.counted(3_600 * S)
    steady(rates, 3_600, 3_660)
    assert rates.look(3_660 * S).named["k"] == pytest.approx(500, rel=0.1)


def test_a_stream_that_ends_is_forgotten_in_the_end() -> None:
    rates = DeliveryRates(0)
    steady(rates, 0, 600)
    before = rates.look(600 * S).named["k"]
    then = rates.look(600 * S + OVER_US).named["k"]
    assert then == pytest.approx(before / math.e, rel=0.15)
    assert rates.look(600 * S + 40 * OVER_US).named == {} and len(rates) == 0


def test_a_single_message_is_not_taken_for_a_stream() -> None:
    rates = DeliveryRates(0)
    rates.count([Count("k", 30_000, 1)], 1 * S)
    rates.counted(1 * S)
    assert rates.look(1 * S).named["k"] <= 555, "as if a minute had seen it"


def test_a_broker_runs_for_a_year() -> None:
    rates = DeliveryRates(0, over_us=S)
    for day in range(366):
        at_us = day * 86_400 * S
        rates.count([Count("k", 100, 1)], at_us)
        rates.counted(at_us)
        assert math.isfinite(rates.look(at_us).named["k"])


def test_the_busiest_have_names_and_the_others_are_one_figure() -> None:
    rates = DeliveryRates(0, most=2)
    crowd = Count("crowd", 10, 1_000)  # little for each client, and much for all
    rates.count([Count("a", 5_000, 1), crowd, *(Count(f"s{n}", 30, 2) for n in range(10))], 60 * S)
    rates.counted(60 * S)
    found = rates.look(60 * S)
    assert set(found.named) == {"a", "crowd"}
    assert found.rest == pytest.approx(found.named["a"] * 600 / 5_000)


NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])
CLIENTS = {"a": 1, "b": 3, "c": 10, "d": 1, "e": 2, "f": 7}
counted = st.lists(
    st.tuples(st.integers(0, 1_000), NAMES, st.integers(10_000, 1_000_000)), min_size=1, max_size=30
)


@given(counted, st.integers(1, 6))
def test_named_and_rest_are_what_a_simple_model_has(steps: list[tuple[int, str, int]], most: int) -> None:
    rates = DeliveryRates(0, most=most)
    model: dict[str, float] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    quiet: set[str] = set()  # for so long that they may have been forgotten, and begun anew
    now_s = previous_s = 0
    for gap_s, name, size in steps:
        now_s += gap_s
        model = {each: value * math.exp(-gap_s * S / OVER_US) for each, value in model.items()}
        model[name] = model.get(name, 0.0) + size
        first.setdefault(name, previous_s)
        if now_s - last.setdefault(name, now_s) > 2_000:
            quiet.add(name)
        last[name] = now_s
        rates.count([Count(name, size, CLIENTS[name])], now_s * S)
        rates.counted(now_s * S)
        previous_s = now_s
        assert len(rates) <= most
    found = rates.look(now_s * S)
    total = sum(value * CLIENTS[name] for name, value in model.items())
    kept = {name: flow.bytes / rates._factor(now_s * S) for name, flow in rates._flows.items()}
    rest = rates._rest / rates._factor(now_s * S)
    whole = sum(value * CLIENTS[name] for name, value in kept.items()) + rest
    assert whole == pytest.approx(total, rel=1e-6, abs=50.0), "but for what has become nothing"
    for name, value in kept.items():
        assert value <= model[name] * (1 + 1e-9)
        if len(model) <= most and name not in quiet:
            age_us = max((now_s - first[name]) * S, AGE_LEAST_US)
            rate = model[name] * S / OVER_US / -math.expm1(-age_us / OVER_US)
            assert value == pytest.approx(model[name], rel=1e-6)
            assert found.named[name] == pytest.approx(rate, rel=1e-6)
