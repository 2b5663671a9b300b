"""A cluster that is cut off has one landmark, recovers inside, and forgets all of it when a leader is heard."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.survival.cluster import SECOND, Cluster, info
from tocsin.core.machine import IllegalEvent, Received, Started
from tocsin.core.survival.landmark import LINGER_US, Landmark
from tocsin.core.survival.landmark_signals import RosterKnown
from tocsin.wire.internal.cluster_messages import ClusterMessage, encode_cluster_message

SETTLED_US = 8 * SECOND  # longer than the longest silence that is borne
BACKS = {"b": ("a",), "c": ("b",), "a": ("c",)}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster("abc", BACKS)


def test_nothing_is_said_while_a_leader_is_heard(cluster: Cluster) -> None:
    cluster.want("a", "x")
    cluster.run(60 * SECOND)
    assert not any(node.words or node.linked for node in cluster.nodes.values())


def test_those_who_are_cut_off_together_agree_on_the_first(cluster: Cluster) -> None:
    cluster.sever()
    cluster.run(SETTLED_US)
    assert cluster.landmarks() == dict.fromkeys("abc", "a")
    assert cluster.standing_in() == {}


def test_the_backup_of_one_that_dies_stands_in_and_all_know(cluster: Cluster) -> None:
    cluster.sever()
    cluster.run(SETTLED_US)
    cluster.kill("a")
    cluster.run(SETTLED_US)
    assert cluster.landmarks() == {"b": "b", "c": "b"}
    assert cluster.standing_in() == {"a": {"b"}}
    assert cluster.nodes["c"].machine.stands_in_for("a") == info("b")
    assert cluster.nodes["c"].machine.stands_in_for("b") is None


def test_one_that_died_together_with_the_cut_is_missed_as_well(cluster: Cluster) -> None:
    cluster.kill("b")
    cluster.sever()
    cluster.run(SETTLED_US)
    assert cluster.standing_in() == {"b": {"c"}}


def test_nobody_stands_in_without_a_copy() -> None:
    cluster = Cluster("abc")
    cluster.sever()
    cluster.kill("c")
    cluster.run(SETTLED_US)
    assert cluster.standing_in() == {} and cluster.nodes["b"].machine.gone == {"c": ""}


def test_one_that_speaks_again_is_no_longer_stood_in_for(cluster: Cluster) -> None:
    cluster.sever()
    for other in "bc":
        cluster.part("a", other)
    cluster.run(SETTLED_US)
    assert cluster.standing_in()["a"] == {"b"}
    for other in "bc":
        cluster.join("a", other)
    cluster.run(SETTLED_US)
    assert cluster.standing_in() == {}


def test_one_that_somebody_still_hears_is_not_gone(cluster: Cluster) -> None:
    cluster.sever()
    cluster.part("a", "b")
    cluster.run(SETTLED_US)
    assert cluster.standing_in() == {}


def test_where_somebody_hears_a_leader_nobody_is_gone(cluster: Cluster) -> None:
    cluster.sever("b", "c")
    cluster.run(SETTLED_US)
    cluster.kill("b")
    cluster.run(SETTLED_US)
    assert cluster.standing_in() == {}
    assert cluster.nodes["a"].landmark == ""


def test_a_cut_off_broker_and_its_connected_peers_reach_each_other(cluster: Cluster) -> None:
    cluster.want("a", "for/a")
    cluster.want("c", "for/c")
    cluster.sever("c")
    cluster.run(SECOND)
    assert cluster.reached("c") == {"a": {"for/a"}}
    assert cluster.reached("a") == {"c": {"for/c"}}
    cluster.want("a", "new")
    cluster.run(SECOND)
    assert cluster.reached("c") == {"a": {"for/a", "new"}}


def test_new_wants_are_known_at_once_and_withdrawn_ones_forgotten(cluster: Cluster) -> None:
    cluster.sever()
    cluster.run(SECOND)
    cluster.want("a", "x")
    cluster.run(SECOND // 10)
    assert cluster.reached("b") == cluster.reached("c") == {"a": {"x"}}
    cluster.want_not("a", "x")
    cluster.run(SECOND // 10)
    assert cluster.reached("b") == {}


def test_a_leader_that_is_heard_ends_isolation_and_routes_follow(cluster: Cluster) -> None:
    cluster.want("a", "x")
    cluster.sever()
    cluster.kill("c")
    cluster.run(SETTLED_US)
    assert cluster.standing_in() == {"c": {"a"}}
    cluster.restore()
    assert cluster.standing_in() == {} and cluster.landmarks() == {"a": "", "b": ""}
    assert cluster.reached("b") == {"a": {"x"}}
    cluster.run(2 * LINGER_US)
    assert cluster.reached("b") == {} and not cluster.nodes["b"].linked
    said = [len(node.words) for node in cluster.nodes.values()]
    cluster.run(60 * SECOND)
    assert said == [len(node.words) for node in cluster.nodes.values()]


def test_a_restarted_broker_forgets_peers_that_take_it_for_cut_off(cluster: Cluster) -> None:
    cluster.sever("a")
    cluster.run(SECOND)
    cluster.restore("a")
    cluster.restart("a")
    cluster.want("b", "x")
    cluster.run(SECOND)
    assert cluster.reached("a") == {"b": {"x"}}, "b does not know that a hears a leader"
    cluster.run(2 * LINGER_US)
    assert cluster.reached("a") == {}


def test_late_gossip_to_a_broker_with_a_leader_is_forgotten(cluster: Cluster) -> None:
    word = ClusterMessage(sender="b", series=1, number=1, severed=False, version=1, wants=((1, "x", True),))
    cluster.post("a", Received(sender="broker/b", message=word))
    cluster.run(2 * LINGER_US)
    assert cluster.reached("a") == {} and not cluster.nodes["a"].linked


def test_a_new_processs_wants_are_not_mistaken_for_the_old_ones(cluster: Cluster) -> None:
    cluster.want("b", "old")
    cluster.sever("a")
    cluster.run(SECOND)
    assert cluster.reached("a") == {"b": {"old"}}
    cluster.restart("b")
    cluster.want("b", "new")
    cluster.run(SECOND)
    assert cluster.reached("a") == {"b": {"new"}}


def test_a_new_process_with_an_earlier_clock_is_told_from_the_old(cluster: Cluster) -> None:
    cluster.run(SECOND)
    cluster.want("b", "old")
    cluster.sever("a")
    cluster.run(SECOND)
    cluster.restart("b", clock_us=0)
    cluster.want("b", "new")
    cluster.run(SECOND)
    assert cluster.reached("a") == {"b": {"new"}}


def test_late_listeners_also_tell_a_new_process_from_the_old_one(cluster: Cluster) -> None:
    cluster.want("b", "old")
    cluster.part("a", "b")
    cluster.sever("a", "c")
    cluster.run(SECOND)
    assert cluster.reached("c") == {"b": {"old"}} and cluster.reached("a") == {}
    cluster.join("a", "b")
    cluster.part("b", "c")
    cluster.restart("b")
    cluster.want("b", "new")
    cluster.run(SECOND)
    cluster.join("b", "c")
    cluster.run(SECOND)
    assert cluster.reached("c") == cluster.reached("a") == {"b": {"new"}}


def test_one_that_is_restarted_and_hears_a_leader_is_not_gone(cluster: Cluster) -> None:
    cluster.kill("c")
    cluster.sever("b")
    cluster.run(60 * SECOND)
    cluster.restart("a")
    cluster.run(SETTLED_US)
    assert "a" in cluster.nodes["b"].machine.hears() and cluster.standing_in() == {}


def test_links_to_brokers_that_came_after_the_leaders_return_are_closed() -> None:
    cluster = Cluster("ab")
    cluster.post("a", RosterKnown(brokers=()))
    cluster.sever("a")
    cluster.restore("a")
    cluster.run(LINGER_US - SECOND)
    cluster.sever("a")
    cluster.restore("a")
    cluster.run(2 * SECOND)
    cluster.post("a", RosterKnown(brokers=(info("b"),)))
    assert cluster.nodes["a"].linked == {"b"}
    cluster.run(2 * LINGER_US)
    assert not cluster.nodes["a"].linked


def test_a_broker_that_leaves_the_roster_is_forgotten(cluster: Cluster) -> None:
    cluster.want("a", "x")
    cluster.sever()
    cluster.run(SECOND)
    cluster.post("b", RosterKnown(brokers=(info("b"), info("c"))))
    assert cluster.reached("b") == {}


def test_a_word_is_a_few_dozen_bytes(cluster: Cluster) -> None:
    cluster.sever()
    cluster.run(SETTLED_US)
    assert max(len(encode_cluster_message(node.words[-1])) for node in cluster.nodes.values()) < 60


def test_an_event_that_it_does_not_know_is_a_bug() -> None:
    with pytest.raises(IllegalEvent):
        Landmark("a", tuple).handle(Started(incarnation=1), 0)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_in_any_partition_peers_in_touch_never_both_lead_and_all_heals(data: st.DataObject) -> None:
    """The model: who is alive and severed, and which pairs hear each other."""
    brokers = "abcde"[: data.draw(st.integers(2, 5))]
    backs = {one: (brokers[index - 1],) for index, one in enumerate(brokers)}
    cluster = Cluster(brokers, backs)
    pairs = list(combinations(brokers, 2))
    for broker in brokers:
        for name in data.draw(st.sets(st.sampled_from("xyz"))):
            cluster.want(broker, name)
    severed: set[str] = set()
    for _ in range(data.draw(st.integers(1, 5))):
        now_severed = set(data.draw(st.sets(st.sampled_from(brokers))))
        cluster.sever(*sorted(now_severed - severed)) if now_severed - severed else None
        cluster.restore(*sorted(severed - now_severed)) if severed - now_severed else None
        severed = now_severed
        for pair in pairs:
            cluster.apart.discard(frozenset(pair))
        for pair in data.draw(st.sets(st.sampled_from(pairs))):
            cluster.part(*pair)
        if data.draw(st.booleans()):
            cluster.kill(data.draw(st.sampled_from(brokers)))
        if data.draw(st.booleans()):
            restarted = data.draw(st.sampled_from(brokers))
            cluster.restart(restarted)
            severed -= {restarted}
        for broker in data.draw(st.sets(st.sampled_from(brokers))):
            change = data.draw(st.sampled_from([cluster.want, cluster.want_not]))
            change(broker, data.draw(st.sampled_from("xyz")))
        cluster.run(data.draw(st.sampled_from([SECOND // 3, SETTLED_US])))
    cluster.run(2 * SETTLED_US)
    _check(cluster, severed)
    cluster.apart.clear()
    cluster.restore()
    cluster.run(3 * LINGER_US)
    assert cluster.standing_in() == {}
    for node in cluster.nodes.values():
        if node.alive:
            assert node.landmark == "" and not node.routes and not node.linked


def _check(cluster: Cluster, severed: set[str]) -> None:
    alive = {broker for broker, node in cluster.nodes.items() if node.alive}
    alone = severed & alive

    def hear(one: str, other: str) -> bool:
        return frozenset((one, other)) not in cluster.apart

    for broker, landmark in cluster.landmarks().items():
        heard = [each for each in alone if each == broker or hear(broker, each)]
        assert landmark == (min(heard) if broker in alone else "")
    leading = [broker for broker, landmark in cluster.landmarks().items() if landmark == broker]
    assert all(not hear(*pair) for pair in combinations(leading, 2))
    for broker, standing_in in cluster.standing_in().items():
        for each in standing_in:
            assert each in alone and not (broker in alive and broker in alone and hear(broker, each))
    for one in alone:
        for other in alive - {one}:
            if hear(one, other):
                wanted = cluster.nodes[other].wanted
                assert cluster.reached(one).get(other, set()) == wanted
