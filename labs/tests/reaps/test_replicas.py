"""The replication machines in virtual time, and the model beside them."""

from __future__ import annotations

import msgspec
import pytest

from labs.tests.reaps.small import SMALL, quiet
from tocsin.core.assignment.planning import plan
from tocsin.sim.schedule import Schedule
from tocsin.wire.internal.replication import LOCAL, REMOTE
from tocsin_labs.reaps import failures, replication
from tocsin_labs.reaps.backend import Backend
from tocsin_labs.reaps.replication import Ledger, Volumes, moments_us, replicas_of_one
from tocsin_labs.reaps.workload import SECOND_US, Workload

WORKLOAD = Workload(SMALL)


@pytest.mark.parametrize("period_s", [1, 7])
def test_the_model_of_periodic_replication_is_what_the_machines_do(period_s: int) -> None:
    schedule = Schedule()
    backend = Backend(WORKLOAD, schedule)
    replicas = replicas_of_one(WORKLOAD, backend, schedule, "periodic", period_s)
    (broker,) = replicas.homes
    ledger = Ledger(replicas.homes[broker], WORKLOAD, "periodic", period_s)
    backend.listeners.append(ledger.hear)
    schedule.run_until(
        period_s * SECOND_US + SECOND_US // 10
    )  # the first look sends all positions, moved or not
    ledger.sync()
    begun, ledger.messages = replicas.messages, 0
    for second in range(2 * period_s, 100, period_s):
        schedule.run_until(second * SECOND_US)
        ledger.sync()
        schedule.run_until(second * SECOND_US + SECOND_US // 10)  # the update is there
        assert (
            dict(ledger.repeated()) == replicas.repeated(broker, LOCAL) == replicas.repeated(broker, REMOTE)
        )
        schedule.run_until((second + period_s) * SECOND_US - 1)
        assert dict(ledger.repeated()) == replicas.repeated(broker, LOCAL)
    assert ledger.messages == replicas.messages - begun > 0
    assert replicas.troubles() == 0


def test_a_backup_prepares_what_the_plan_says_that_it_lacks() -> None:
    schedule = Schedule()
    backend = Backend(WORKLOAD, schedule)
    replicas = failures.all_replicas(WORKLOAD, SMALL, backend, schedule)
    schedule.run_until(20 * SECOND_US)
    chosen = plan(WORKLOAD.demand())
    for name in WORKLOAD.brokers:
        own = {WORKLOAD.topic(k) for k in WORKLOAD.subscribers_of(name)}
        prepared = {topic for _, topic in replicas.prepared.get(name, ())}
        assert len(prepared - own) == chosen.overhead[name]
    assert all(
        len(replicas.copy(name).clients) == len(WORKLOAD.subscribers_of(name)) for name in WORKLOAD.brokers
    )


def test_a_threshold_of_volume_bounds_what_is_fetched_twice() -> None:
    schedule = Schedule()
    backend = Backend(WORKLOAD, schedule)
    (home,) = replicas_of_one(WORKLOAD, backend, schedule, "periodic", 1).homes.values()
    ledger = Ledger(home, WORKLOAD, "ideal", 30)
    backend.listeners.append(ledger.hear)
    largest = 0.0
    for moment_us in moments_us(SMALL):
        schedule.run_until(moment_us)
        volumes = Volumes(WORKLOAD)
        volumes.add(ledger.repeated())
        largest = max(largest, volumes.means_mb()[0])
    assert 0 < largest <= 30
    assert ledger.messages > 0


def test_the_products_threshold_of_volume_stays_below_itself_and_a_look() -> None:
    """What is delivered between two looks comes on top."""
    threshold_mb = 60
    schedule = Schedule()
    backend = Backend(WORKLOAD, schedule)
    replicas = replicas_of_one(WORKLOAD, backend, schedule, "volume", threshold_mb)
    (broker,) = replicas.homes
    largest = 0.0
    for moment_us in moments_us(SMALL):
        schedule.run_until(moment_us)
        volumes = Volumes(WORKLOAD)
        volumes.add(replicas.repeated(broker).items())
        largest = max(largest, volumes.means_mb()[1])
    at_once = max(
        sum(
            WORKLOAD.sizes[k] * len(replicas.homes[broker].by_k.get(k, ()))
            for k in WORKLOAD.of_channel(channel)
        )
        for channel in range(len(WORKLOAD.periods_us))
    )
    assert 0 < largest <= threshold_mb + 2 * at_once / 1e6
    assert replicas.messages > 0


def test_seldom_replication_costs_less_and_repeats_more() -> None:
    rows = replication.run(WORKLOAD, SMALL, quiet)
    periodic = [each for each in rows if each.mode == "periodic"]
    assert [each.setting for each in periodic] == [1, 5, 20]
    assert periodic[0].messages_min > periodic[1].messages_min > periodic[2].messages_min
    assert periodic[0].retrieved_mb < periodic[1].retrieved_mb < periodic[2].retrieved_mb
    for each in rows:
        assert each.delivered_mb >= each.retrieved_mb
        assert (each.bytes_s is None) == (each.mode == "ideal")


def test_the_moments_of_failure_follow_from_the_seed() -> None:
    assert moments_us(SMALL) == moments_us(SMALL)
    assert moments_us(SMALL) != moments_us(msgspec.structs.replace(SMALL, seed=8))
