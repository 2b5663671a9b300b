"""Takeovers in virtual time, with costs that can be added up by hand."""

from __future__ import annotations

import msgspec
import pytest

from labs.tests.reaps.small import SMALL
from tocsin_labs.reaps.rates import Rates
from tocsin_labs.reaps.takeover import Recovered, Standing, Taken, recover
from tocsin_labs.reaps.workload import Workload

WORKLOAD = Workload(SMALL)
SIZE = WORKLOAD.sizes[0]
# A client costs its broker 0.1 s and the store 0.3 s; nothing else costs anything.
RATES = Rates(
    client_s=0.1,
    client_store_s=0.3,
    prepared_s=0.0,
    prepared_store_s=0.0,
    created_s=0.0,
    created_store_s=0.0,
    single_s=0.0,
    byte_s=0.0,
    near_s=1.0,
    far_s=10.0,
    fetched_bytes_s=1e18,
    delivered_bytes_s=1e18,
)
ALONE_S = 4 * 1.0 + 0.1 + (2 + 2 + 2 + 2) * 1.0 + 0.3  # the way here; read, hand-over, read again, written
NOTHING: frozenset[int] = frozenset()


def stand_in(
    subscribers: list[int],
    due: dict[int, int] | None = None,
    *,
    remote: bool = False,
    own: frozenset[int] = NOTHING,
    backs: frozenset[int] = NOTHING,
) -> Standing:
    taken = Taken("lost", remote, subscribers, due or {})
    return Standing("stand-in", own, {"lost": backs}, [taken])


def one(standing: Standing, rates: Rates = RATES, *, one_by_one: bool = False) -> Recovered:
    (found,) = recover(WORKLOAD, [standing], rates, one_by_one=one_by_one)
    return found


def with_(**changed: float) -> Rates:
    return msgspec.structs.replace(RATES, **changed)


def test_a_prepared_client_waits_for_its_session_alone() -> None:
    found = one(stand_in([0], backs=frozenset({0})))
    assert found.created == 0
    assert found.served_s == found.longest_s == pytest.approx(ALONE_S)


def test_what_nobody_prepared_is_created_before_the_session_is_written() -> None:
    rates = with_(created_s=0.5, created_store_s=0.25)
    found = one(stand_in([0]), rates)
    assert found.created == 1
    assert found.served_s == pytest.approx(ALONE_S + 0.5 + 0.25 + 2 * 1.0)
    assert one(stand_in([0], backs=frozenset({0})), rates).served_s == pytest.approx(ALONE_S)
    assert one(stand_in([0], own=frozenset({0})), rates).created == 0


def test_a_subscription_of_several_clients_is_created_once() -> None:
    assert one(stand_in([0, 0, 0, 1])).created == 2


def test_subscriptions_created_one_by_one_wait_for_each_other() -> None:
    rates = with_(single_s=100.0)
    bulk = one(stand_in([0, 1, 2]), rates)
    alone = one(stand_in([0, 1, 2]), rates, one_by_one=True)
    assert bulk.created == alone.created == 3
    assert bulk.served_s < 100 and 300 < alone.served_s < 320


def test_prepared_subscriptions_cost_the_brokers_processor() -> None:
    found = one(stand_in([0], backs=frozenset({0})), with_(prepared_s=7.0))
    assert found.served_s == pytest.approx(ALONE_S + 7.0)


def test_the_store_is_one_for_all_stand_ins() -> None:
    rates = with_(client_store_s=30.0)
    both = recover(WORKLOAD, [stand_in([0]), msgspec.structs.replace(stand_in([0]), name="other")], rates)
    assert max(each.served_s for each in both) > one(stand_in([0]), rates).served_s + 20


def test_a_remote_stand_in_is_further_away() -> None:
    near, far = one(stand_in([0])), one(stand_in([0], remote=True))
    assert far.served_s == pytest.approx(near.served_s + 4 * (10.0 - 1.0))


def test_results_are_fetched_once_and_delivered_to_each() -> None:
    rates = with_(fetched_bytes_s=SIZE / 3.0, delivered_bytes_s=SIZE / 50.0, client_s=0.0, client_store_s=0.0)
    served_s = ALONE_S - 0.1 - 0.3
    found = one(stand_in([0, 0], {0: 2}, backs=frozenset({0})), rates)
    assert found.served_s == pytest.approx(served_s)
    # Two results: 6 s to fetch them, and 100 s to deliver them to each.
    assert found.longest_s == pytest.approx(served_s + 6 + 200, abs=0.01)
    assert found.sum_s == pytest.approx(2 * served_s + 12 + 100 + 200, abs=0.01)


def test_a_client_with_no_missed_results_waits_for_nobody_who_has_some() -> None:
    rates = with_(fetched_bytes_s=SIZE / 1_000.0)
    found = one(stand_in([0, 1], {0: 1}), rates)
    assert found.longest_s > 1_000
    assert found.sum_s - found.longest_s < 20
