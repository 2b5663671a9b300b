"""What recovery costs, over what flows anyway."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tocsin_labs.landmark.objects import _recovered, slope, subscribers_of
from tocsin_labs.meter import OTHERS, Amount, Carried

numbers = st.floats(-100, 100).map(lambda each: round(each, 2))


def test_what_flows_anyway_is_taken_off_in_proportion_to_time() -> None:
    carried: Carried = {
        ("coordinator-1", "store-1"): Amount(10_000, 0),
        ("store-1", "broker/local"): Amount(5_000, 10),
        ("broker/local", OTHERS): Amount(3_000, 0),
        ("store-1", OTHERS): Amount(9_000, 0),
    }
    idle: Carried = {
        ("coordinator-1", "store-1"): Amount(1_000, 0),
        ("broker/local", OTHERS): Amount(500, 0),
    }
    found = _recovered("queues", 3, 1, carried, idle, 2.0)
    assert math.isclose(found.total, 13.0 + 0.66)
    assert found.payload == 13.0
    assert found.coordinator == 8.0
    assert found.clients == 2.0, "the experiment's own connection to the store is no client"


def test_queues_are_sessions_alike_and_routes_are_subscriptions_of_one_session() -> None:
    home = ("127.0.0.1", 1)
    assert [each.filters for each in subscribers_of("queues", 2, home)] == [("queue",), ("queue",)]
    assert [each.filters for each in subscribers_of("routes", 2, home)] == [("route/0", "route/1")]
    assert subscribers_of("queues", 0, home) == []


@given(numbers, numbers, st.sets(st.integers(0, 40), min_size=2, max_size=6))
def test_points_of_a_line_have_that_line(base: float, each: float, counts: set[int]) -> None:
    found = slope([(count, base + each * count) for count in counts])
    assert found is not None
    assert math.isclose(found[0], base, abs_tol=1e-6)
    assert math.isclose(found[1], each, abs_tol=1e-6)


def test_one_count_has_no_line() -> None:
    assert slope([]) is None
    assert slope([(5, 1.0), (5, 2.0)]) is None
