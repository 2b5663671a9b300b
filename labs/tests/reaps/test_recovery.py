"""The model of one broker that stands in, by hand."""

from __future__ import annotations

import pytest

from tocsin_labs.reaps.recovery import Rates, Taken, recover

RATES = Rates(
    near_s=1.0,
    far_s=4.0,
    created_s=0.5,
    bulk_s=100.0,
    admitted_s=10.0,
    fetched_bytes_s=100.0,
    delivered_bytes_s=50.0,
)
SIZES = (100, 200)


def test_a_subscriber_with_no_missed_messages_has_recovered_at_its_connack() -> None:
    found = recover([Taken(False, [0], {})], frozenset(), SIZES, RATES, bulk=False)
    assert found.longest_s == pytest.approx(1 + 2 * 1 + 0.1)  # the word, there and back, the door


def test_results_are_fetched_once_and_delivered_to_each() -> None:
    found = recover([Taken(False, [0, 0, 0], {0: 5})], frozenset(), SIZES, RATES, bulk=False)
    # 500 bytes are there after 1 + 5 s, when all are in; 3 × 500 at 50 a second.
    assert found.longest_s == pytest.approx(6 + 30)
    assert found.sum_s == pytest.approx((6 + 10) + (6 + 20) + (6 + 30))
    assert found.subscribers == 3


def test_a_subscriber_without_results_waits_for_nobody_who_has_some() -> None:
    found = recover([Taken(False, [0, 1], {0: 5})], frozenset(), SIZES, RATES, bulk=False)
    assert found.sum_s == pytest.approx((6 + 10) + (1 + 2 + 0.2))


def test_what_is_lacking_is_created_first_and_sooner_in_bulk() -> None:
    taken = [Taken(True, [0, 1], {0: 1, 1: 1})]
    one_by_one = recover(taken, frozenset({0, 1}), SIZES, RATES, bulk=False)
    # The word 4; created 6 and 8; fetched 7 and 10, but nobody is in before 4 + 8 + 0.1; delivered 2 and 4 s.
    assert one_by_one.longest_s == pytest.approx(12.1 + 2 + 4)
    slower = Rates(**{**_fields(RATES), "created_s": 0.05})
    late = recover(taken, frozenset({0, 1}), SIZES, slower, bulk=False)
    assert late.longest_s == pytest.approx(4 + 40 + 2 + 4)  # the second one is created at 44
    in_bulk = recover(taken, frozenset({0, 1}), SIZES, slower, bulk=True)
    assert in_bulk.longest_s == pytest.approx(12.1 + 2 + 4)


def test_subscribers_of_several_brokers_are_let_in_by_turns() -> None:
    taken = [Taken(False, [0] * 4, {}), Taken(False, [1] * 2, {})]
    found = recover(taken, frozenset(), SIZES, RATES, bulk=False)
    assert found.subscribers == 6
    assert found.sum_s == pytest.approx(sum(3 + number / 10 for number in range(1, 7)))


def _fields(rates: Rates) -> dict[str, float]:
    return {name: getattr(rates, name) for name in rates.__struct_fields__}
