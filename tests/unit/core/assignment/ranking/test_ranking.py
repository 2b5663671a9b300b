"""One score for a candidate: its terms, what is not known, and how it enters a plan."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.assignment.definitions import assignments, matrices, overhead, remote_overhead, workload
from tests.unit.core.assignment.demands import demands
from tocsin.core.assignment.demand import Demand, Member
from tocsin.core.assignment.outcome import Role
from tocsin.core.assignment.planning import plan
from tocsin.core.assignment.ranking.ranking import (
    Candidate,
    Facts,
    Weights,
    explain,
    handicaps,
    ranked,
    rate,
    without_room,
)
from tocsin.errors import WeightInvalid


def test_a_score_is_the_mean_of_its_terms_by_weight() -> None:
    found = rate(
        similarity=0.5, room=0.25, facts=Facts(distance=3, resources=1.0), weights=Weights(3, 1, 4, 2)
    )
    assert {name: (term.value, term.weight) for name, term in found.terms.items()} == {
        "similarity": (0.5, 0.3),
        "nearness": (0.25, 0.1),
        "room": (0.25, 0.4),
        "resources": (1.0, 0.2),
    }
    assert found.total == pytest.approx(0.475)
    assert found.unanswered == {}


@pytest.mark.parametrize("unknown", [None, math.nan, -0.5, 1.5])
def test_a_term_that_is_not_known_counts_nothing_and_is_named(unknown: float | None) -> None:
    found = rate(similarity=1.0, room=1.0, facts=Facts(distance=0, resources=unknown))
    assert found.total == pytest.approx(0.8)
    assert list(found.unanswered) == ["resources"]


@pytest.mark.parametrize("unknown", [None, math.nan, -1.0])
def test_a_distance_that_is_not_known_counts_as_far_away(unknown: float | None) -> None:
    found = rate(similarity=1.0, room=1.0, facts=Facts(distance=unknown, resources=1.0))
    assert found.terms["nearness"].value == 0
    assert list(found.unanswered) == ["nearness"]
    assert rate(similarity=1.0, room=1.0, facts=Facts(math.inf, 1.0)).terms["nearness"].value == 0


def test_weights_that_make_no_sense_are_refused_in_words() -> None:
    with pytest.raises(WeightInvalid, match="the weight of 'room' is nan"):
        rate(similarity=1.0, room=1.0, facts=Facts(), weights=Weights(room=math.nan))
    with pytest.raises(WeightInvalid, match="all weights are 0"):
        rate(similarity=1.0, room=1.0, facts=Facts(), weights=Weights(0, 0, 0, 0))


def test_the_best_come_first_and_those_with_an_obstacle_last() -> None:
    def candidate(name: str, similarity: float, obstacle: str | None = None) -> Candidate:
        return Candidate(name, rate(similarity=similarity, room=1.0, facts=Facts()), 0, obstacle)

    order = ranked(
        [candidate("d", 1.0, "full"), candidate("c", 0.5), candidate("b", 0.5), candidate("a", 0.1)]
    )
    assert [each.name for each in order] == ["b", "c", "a", "d"]


@settings(max_examples=100)
@given(demands(least=1), st.sampled_from(["local", "remote"]), st.data())
def test_an_explanation_says_what_each_candidate_would_cost(
    demand: Demand, role: Role, data: st.DataObject
) -> None:
    made = plan(demand, "lcs_mmcs")
    m = matrices(demand)
    i = data.draw(st.sampled_from(range(len(m.names))))
    x, y = assignments(m, made)
    given_to = x if role == "local" else y
    found = {each.name: each for each in explain(demand, made, m.names[i], role)}
    able = {name for j, name in enumerate(m.names) if j != i and m.e[i][j] == (1 if role == "local" else 0)}
    assert set(found) == able
    assert {name for name, each in found.items() if each.chosen} == {
        name for j, name in enumerate(m.names) if given_to[i][j]
    }
    given_to[i] = [0] * len(m.names)
    for name, each in found.items():
        j = m.names.index(name)
        before = overhead(m, x, j) if role == "local" else remote_overhead(m, x, y, j)
        given_to[i][j] = 1
        after = overhead(m, x, j) if role == "local" else remote_overhead(m, x, y, j)
        assert each.added == after - before
        assert (each.obstacle is None) == (workload(m, x, y, j) < m.capacity[j])
        given_to[i][j] = 0


def test_an_explanation_shows_why_the_choice_was_made() -> None:
    members = (Member("a", "n"), Member("b", "n", 100), Member("c", "n", 100), Member("d", "n", 9))
    holdings = {"a": {1: 1, 2: 1, 3: 8}, "b": {1: 1, 2: 1}, "c": {1: 1}, "d": {1: 1, 2: 1, 3: 1}}
    demand = Demand(members, holdings)
    made = plan(demand, "lcs_mmcs")
    first, second, third = explain(demand, made, "a", "local", {"b": Facts(resources=0.5)})
    assert (first.name, first.chosen, first.added) == ("b", True, 1)
    assert (second.name, second.chosen) == ("c", False)
    assert second.score.unanswered == {"resources": "no answer"}
    assert (third.name, third.obstacle) == ("d", "would have to carry 13, can carry less than 9")


def test_handicaps_are_what_weights_make_of_resources_in_subscriptions() -> None:
    facts = {"good": Facts(resources=1.0), "half": Facts(resources=0.5), "silent": Facts(resources=None)}
    assert handicaps(facts, 300.0) == {"good": 0, "half": 50, "silent": 100}
    assert handicaps(facts, 300.0, Weights(similarity=0)) == {"good": 0, "half": 0, "silent": 0}


def test_a_plan_with_handicaps_prefers_what_scores_more() -> None:
    holdings = {
        "a": {n: 1 for n in range(100)},
        "b": {n: 1 for n in range(90)},
        "c": {n: 1 for n in range(80)},
    }
    facts = {"a": Facts(resources=1.0), "b": Facts(resources=0.1), "c": Facts(resources=1.0)}
    bare = Demand(tuple(Member(name, "n") for name in "abc"), dict(holdings))
    assert plan(bare).backups["a"].local == "b"
    costs = handicaps(facts, 90.0)
    aware = Demand(tuple(Member(name, "n", handicap=costs[name]) for name in "abc"), dict(holdings))
    made = plan(aware)
    assert made.backups["a"].local == "c"
    first, second = explain(aware, made, "a", "local", facts)
    assert (first.name, second.name) == ("c", "b")


def test_capacity_decided_if_one_without_room_would_add_less() -> None:
    members = tuple(Member(name, "n", 100.0) for name in "abc")
    holdings = {"a": {"k": 1, "l": 1}, "b": {"k": 1, "l": 1, "hot": 1}, "c": {"k": 1}}
    blind, seen = Demand(members, holdings), Demand(members, holdings, {"hot": 98.0})
    found = explain(blind, plan(blind), "a", "local")
    assert without_room(found) is None and found[0].name == "b" and found[0].carried < 100
    found = explain(seen, plan(seen), "a", "local", unit="B/s")
    assert without_room(found) == "b"
    (barred,) = [each for each in found if each.obstacle is not None and each.name == "b"]
    assert barred.carried >= 100 and str(barred.obstacle).endswith("can carry less than 100 B/s")
    assert without_room(each for each in found if not each.chosen) is None, "nobody was chosen"
