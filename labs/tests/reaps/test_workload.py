"""What is drawn for the simulation."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
import pytest

from labs.tests.reaps.small import SMALL
from tocsin.errors import OperatorError
from tocsin_labs.reaps.parameters import QUICK, SEED_MAX, Parameters, parameters
from tocsin_labs.reaps.workload import SECOND_US, Workload


def test_the_parameters_are_those_of_the_paper() -> None:
    given = parameters(quick=False, seed=9)
    assert (given.brokers, given.clusters, given.subscribers) == (100, 3, 100_000)
    assert (given.channels, given.subscriptions_each) == (100, 10)
    assert (given.period_s, given.result_bytes, given.seed) == ((10, 600), (10_000, 10_000_000), 9)
    assert parameters(quick=True, seed=1).brokers == QUICK.brokers


@pytest.mark.parametrize("seed", [-1, SEED_MAX])
def test_a_seed_that_is_none_is_refused_in_words(seed: int) -> None:
    with pytest.raises(OperatorError, match="--seed"):
        parameters(quick=True, seed=seed)


def test_everything_drawn_is_within_what_was_asked() -> None:
    workload = Workload(SMALL)
    assert len(workload.homes) == SMALL.subscribers
    assert all(10 * SECOND_US <= period <= 40 * SECOND_US for period in workload.periods_us)
    assert all(
        0 < phase <= period for phase, period in zip(workload.phases_us, workload.periods_us, strict=True)
    )
    assert all(10_000 <= size <= 10_000_000 for size in workload.sizes)
    assert set(Counter(workload.cluster_of.values()).values()) == {3}


def test_more_subscribers_leave_the_first_ones_as_they_were() -> None:
    more = msgspec.structs.replace(SMALL, subscribers=2 * SMALL.subscribers)
    assert Workload(more).homes[: SMALL.subscribers] == Workload(SMALL).homes


def test_another_seed_is_another_network() -> None:
    other = Workload(msgspec.structs.replace(SMALL, seed=4))
    assert other.homes != Workload(SMALL).homes
    assert other.periods_us != Workload(SMALL).periods_us


def test_regional_subscribers_ask_for_what_is_their_regions() -> None:
    for broker, k in Workload(SMALL, regional=100).homes:
        assert k % SMALL.clusters == broker % SMALL.clusters


def test_demand_counts_each_subscriber_once_and_capacity_scales_with_mean_load() -> None:
    workload = Workload(SMALL)
    demand = workload.demand(100, room=4.0)
    assert sum(sum(held.values()) for held in demand.holdings.values()) == 100
    loads = [
        math.fsum(demand.rates[k] * count for k, count in held.items()) for held in demand.holdings.values()
    ]
    assert demand.members[0].capacity == pytest.approx(4 * sum(loads) / len(loads))
    assert all(math.isinf(member.capacity) for member in workload.demand().members)


def test_a_rate_is_a_result_every_period() -> None:
    workload = Workload(Parameters(channels=1, subscriptions_each=2, brokers=1, subscribers=1))
    for k, size in enumerate(workload.sizes):
        assert workload.rates()[k] == pytest.approx(size / (workload.periods_us[0] / SECOND_US))
