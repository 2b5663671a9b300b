"""Who stands in for whom, and what is said twice, against plain counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from labs.tests.reaps.small import SMALL, quiet
from tocsin.core.assignment.planning import plan
from tocsin.core.coordination.state.backups import Backups
from tocsin_labs.reaps import failures, rates
from tocsin_labs.reaps.failures import ONE_BY_ONE, ONE_EACH, one_each, stand_ins
from tocsin_labs.reaps.workload import Workload

WORKLOAD = Workload(SMALL)
PLAN = {
    name: Backups(each.local, each.remote) for name, each in plan(WORKLOAD.demand(room=4.0)).backups.items()
}
RATES = rates.read().rates


@given(st.lists(st.sampled_from(WORKLOAD.brokers), unique=True, min_size=1))
def test_the_local_backup_stands_in_and_the_remote_one_only_without_it(lost: list[str]) -> None:
    for broker, stand_in in stand_ins(WORKLOAD, PLAN, lost).items():
        backups = PLAN[broker]
        left = [each for each in (backups.local, backups.remote) if each not in lost]
        assert stand_in == (left[0] if left else None)


def test_a_whole_cluster_is_taken_over_remotely_and_by_somebody() -> None:
    rows = failures.run(WORKLOAD, SMALL, quiet, RATES)
    assert [each.failed for each in rows[:3]] == [1, 2, 3]
    assert {(each.room, each.scheme) for each in rows} == {
        *((room, scheme) for room in (None, 4.0) for scheme in ("RND", "LCS/MMCS", ONE_BY_ONE, "ours")),
        (None, ONE_EACH),
    }
    subscribers = sum(
        len(WORKLOAD.subscribers_of(name)) for name, cluster in WORKLOAD.cluster_of.items() if cluster == "c0"
    )
    for each in rows:
        assert each.nobody == 0
        if each.failed == 1:
            assert each.remote_brokers == each.created == 0  # what the local backup prepared was there
        if each.failed == 3:
            assert (each.remote_brokers, each.remote_subscribers) == (3, subscribers)
        assert 0 < each.served_s <= each.longest_s and 0 < each.mean_s <= each.longest_s


def test_in_the_plan_apart_nobody_backs_two_of_a_cluster() -> None:
    backups = one_each(WORKLOAD)
    cluster_of = WORKLOAD.cluster_of
    pairs = [
        (cluster_of[name], backup)
        for name, each in backups.items()
        for backup in (each.local, each.remote)
        if backup is not None
    ]
    assert len(pairs) == len(set(pairs)) == 2 * len(backups)
    for name, each in backups.items():
        assert each.local is not None and cluster_of[each.local] == cluster_of[name] and each.local != name
        assert each.remote is not None and cluster_of[each.remote] != cluster_of[name]


def test_whoever_chose_the_backups_subscribers_hear_the_same_twice() -> None:
    rows = failures.run(WORKLOAD, SMALL, quiet, RATES)
    for failed in (1, 2, 3):
        volumes = {each.delivered_mb for each in rows if each.failed == failed}
        assert len(volumes) == 1
        assert all(0 <= each.retrieved_mb <= each.delivered_mb for each in rows)
    one, two, three = (
        next(each.delivered_mb for each in rows if each.failed == count) for count in (1, 2, 3)
    )
    assert one <= two <= three
    assert three > 0
