"""Which standby is the best for a lost broker's place, and what that is made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.assignment.ranking.standbys import (
    PEERS_MAX,
    TARGETS_MAX,
    Neighbourhood,
    Targets,
    judge,
    rank,
    score_of,
)
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.summaries import UNMEASURED, Summary

EVEN = {"processor": 1.0, "bandwidth": 1.0, "delay": 1.0}


def broker(name: str, cluster: str = "north", role: Role = Role.EDGE) -> BrokerInfo:
    return BrokerInfo(name, cluster, role, "127.0.0.1", 1)


def told(processor: float = 1.0, **fields: object) -> Summary:
    given = {"terms": {"processor": (processor, 0.5), "bandwidth": (1.0, 0.5)}, "weights": EVEN}
    return Summary(1, 1, {}, resources=processor, need_mbit=10.0, **{**given, **fields})  # type: ignore[arg-type]


def test_bandwidth_is_the_measured_mean_to_the_peers() -> None:
    answer = told(probes={"a": (50_000, 8_000), "b": (150_000, 11_000), "c": (1, 1)})
    made = score_of(answer, ("a", "b"))
    assert made is not None
    assert made.terms["bandwidth"].value == pytest.approx(math.exp(9.5 - 10))
    assert made.terms["delay"].value == pytest.approx(1 / (1 + 100 / 50))
    assert made.total == pytest.approx((1 + math.exp(-0.5) + 1 / 3) / 3)


def test_what_was_not_measured_counts_nothing_and_is_named() -> None:
    answer = told(probes={"a": (1_000, 0)}, unprobed={"a": "old", "b": "no route to it"})
    made = judge("spare", True, answer, ("a", "b", "c"), None)
    assert made.score is not None and made.score.terms["bandwidth"].value == 0
    assert set(made.score.unanswered) == {"bandwidth"}
    assert (made.delay_us, made.kbit_s) == (1_000, None)
    assert made.problems == ("a: old", "b: no route to it", f"c: {UNMEASURED}")


def test_a_lost_broker_without_peers_lowers_no_score() -> None:
    made = score_of(told(0.5), ())
    assert made is not None and (set(made.terms), made.total) == ({"processor"}, 0.5)


def test_a_standby_of_an_earlier_release_scores_itself() -> None:
    old = Summary(1, 1, {}, resources=0.7, terms={"processor": (0.7, 1.0)})
    made = score_of(old, ("a",))
    assert made is not None and made.total == 0.7


@pytest.mark.parametrize("answer", [Summary(1, 1, {}), told(terms={}), told(weights={"memory": 1.0})])
def test_a_standby_that_knows_nothing_has_no_score(answer: Summary) -> None:
    assert score_of(answer, ("a",)) is None


def test_standbys_rank_by_answer_cluster_score_and_name() -> None:
    standbys = [broker(name, "south" if name == "s" else "north", Role.STANDBY) for name in "abcdesx"]
    answers = {"a": told(0.2), "b": told(0.9), "c": told(0.2), "e": Summary(1, 1, {}), "s": told(1.0)}
    answers["x"] = told(1.0)
    ranking = rank(broker("lost"), (), standbys, answers, {"x": "does not answer"})
    assert [each.name for each in ranking] == ["b", "a", "c", "e", "s", "x", "d"]
    assert ranking[3].score is None, "unknown is the worst of those that answer"
    assert [each.answered for each in ranking] == [True] * 5 + [False] * 2


def test_peers_are_who_has_links_then_backups_then_the_cluster() -> None:
    brokers = [broker(name) for name in ("me", "n1", "n2", "n3")] + [
        broker("s1", "south"),
        broker("s2", "south"),
    ]
    found = Neighbourhood(brokers).peers_of(brokers[0], {"s2", "gone", "me"}, ("n3", None))
    assert found == ("s2", "n3", "n1", "n2")
    many = [broker(f"n{number:02}") for number in range(30)]
    assert len(Neighbourhood(many).peers_of(many[0], (), ())) == PEERS_MAX


def test_a_standby_measures_the_peers_of_its_own_cluster_first() -> None:
    spare = broker("spare", "north", Role.STANDBY)
    places = [
        (broker("n1"), ("n2", "s1")),
        (broker("n2"), ("n1", "s1")),
        *((broker(f"s{number}", "south"), ("s9",)) for number in range(5)),
    ]
    assert Targets(places).of(spare) == ("s1", "n1", "n2", "s9")
    assert len(Targets([(broker("n"), [f"x{number}" for number in range(99)])]).of(spare)) == TARGETS_MAX


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("north", "south", "east")), st.lists(st.sampled_from("abcdefg"), unique=True)
        ),
        max_size=8,
    )
)
def test_targets_are_those_that_counting_for_one_standby_finds(made: list[tuple[str, list[str]]]) -> None:
    places = [(broker(f"b{number}", cluster), peers) for number, (cluster, peers) in enumerate(made)]
    for cluster in ("north", "west"):
        counted: dict[str, list[int]] = {}
        for each, peers in places:
            for peer in peers:
                counted.setdefault(peer, [0, 0])[each.cluster != cluster] += 1
        wanted = sorted(counted, key=lambda name: (-counted[name][0], -counted[name][1], name))
        assert Targets(places).of(broker("spare", cluster)) == tuple(wanted)[:TARGETS_MAX]
