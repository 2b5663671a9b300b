"""Watchers: who is told of which loss, by the leader's word or by that of a cluster that is cut off."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.survival.watchers import BACK_TOPIC, LOST, LOST_TOPIC, THERE, Watchers


def test_only_the_watchers_of_a_broker_are_told_of_its_loss() -> None:
    watchers: Watchers[str] = Watchers()
    assert watchers.came("anna", "north-1") == THERE and watchers.came("ben", "north-2") == THERE
    assert watchers.told(["north-1"]) == [("north-1", LOST_TOPIC, ("anna",))]
    assert watchers.came("cleo", "north-1") == LOST
    assert watchers.told(["north-1"]) == []
    assert watchers.told([]) == [("north-1", BACK_TOPIC, ("anna", "cleo"))]


def test_a_watcher_that_went_is_told_nothing() -> None:
    watchers: Watchers[str] = Watchers()
    watchers.came("anna", "north-1")
    watchers.went("anna")
    watchers.went("anna")
    assert watchers.told(["north-1"]) == [("north-1", LOST_TOPIC, ())] and len(watchers) == 0


def test_a_broker_is_back_when_neither_leader_nor_cluster_miss_it() -> None:
    watchers: Watchers[str] = Watchers()
    watchers.came("anna", "north-1")
    assert watchers.meanwhile("north-1", lost=True) == [("north-1", LOST_TOPIC, ("anna",))]
    assert watchers.told(["north-1"]) == []
    assert watchers.meanwhile("north-1", lost=False) == []
    assert watchers.told([]) == [("north-1", BACK_TOPIC, ("anna",))]


NAMES = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("came"), st.integers(0, 4), NAMES),
    st.tuples(st.just("went"), st.integers(0, 4), NAMES),
    st.tuples(st.just("told"), st.frozensets(NAMES), NAMES),
    st.tuples(st.just("meanwhile"), st.booleans(), NAMES),
)


@given(st.lists(STEPS, max_size=40))
def test_every_watcher_knows_how_it_is_with_its_broker(steps: list[tuple[str, object, str]]) -> None:
    watchers: Watchers[int] = Watchers()
    known: dict[int, tuple[str, str]] = {}  # watcher → its broker, and what it was told last
    leader: frozenset[str] = frozenset()
    cluster: set[str] = set()
    for kind, value, name in steps:
        news: list[tuple[str, str, tuple[int, ...]]] = []
        if kind == "came" and isinstance(value, int):
            known[value] = name, watchers.came(value, name)
        elif kind == "went" and isinstance(value, int):
            known.pop(value, None)
            watchers.went(value)
        elif kind == "told" and isinstance(value, frozenset):
            leader, news = value, watchers.told(value)
        else:
            (cluster.add if value else cluster.discard)(name)
            news = watchers.meanwhile(name, lost=bool(value))
        for broker, topic, concerned in news:
            for each in concerned:
                assert known[each][0] == broker
                known[each] = broker, LOST if topic == LOST_TOPIC else THERE
        lost = leader | cluster
        assert known == {each: (at, LOST if at in lost else THERE) for each, (at, _) in known.items()}
        assert len(watchers) == len(known)
