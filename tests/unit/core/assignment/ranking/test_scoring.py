"""Scores of resources: the paper's formulas, and everything that can be wrong with a figure."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.assignment.ranking.scoring import (
    NO_ANSWER,
    PAPER_WEIGHTS,
    Criterion,
    Resource,
    normalised,
    score,
    utility,
)
from tocsin.errors import WeightInvalid

ENOUGH = {
    "processor": Resource(4, 1, 0.5),
    "memory": Resource(8, 2, 0.25),
    "battery": Resource(math.inf, 3),
    "bandwidth": Resource(15, 15),
}


def test_a_sufficient_resource_scores_one_and_a_shortage_lowers_it() -> None:
    assert utility(Resource(4, 2, 0.5)) == (1.0, None)
    assert utility(Resource(4, 3, 0.5)) == (math.exp(-1), None)
    assert utility(Resource(2, 5)) == (math.exp(-3), None)


def test_the_score_is_the_papers_sum() -> None:
    found = score(
        {
            "processor": Resource(2, 3, 0.5),
            "memory": Resource(1, 1),
            "battery": Resource(1, 3),
            "bandwidth": Resource(2, 2.5),
        }
    )
    expected = (math.exp(-2) + 1 + 60 * math.exp(-0.5) + 50 * math.exp(-2)) / 112
    assert found.total == pytest.approx(expected)
    assert found.terms["processor"].weight == pytest.approx(1 / (1 + 1 + 50 + 60))
    assert score(ENOUGH).total == 1


def test_a_missing_figure_counts_nothing_and_is_named() -> None:
    figures = {**ENOUGH, "battery": Resource(None, 1)}
    del figures["memory"]
    found = score(figures)
    assert found.total == pytest.approx(61 / 112)
    assert found.unanswered == {"memory": NO_ANSWER, "battery": NO_ANSWER}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Resource(math.nan, 1), "has nan"),
        (Resource(-1, 1), "has -1"),
        (Resource(1, math.nan), "needs nan"),
        (Resource(1, 1, math.nan), "is in use to nan"),
        (Resource(1, 1, 1.5), "is in use to 1.5"),
        (Resource(1, 1, None), NO_ANSWER),
        (Resource(math.inf, math.inf), "needs inf"),
    ],
)
def test_a_figure_that_is_no_figure_counts_nothing_and_says_why(wrong: Resource, words: str) -> None:
    value, problem = utility(wrong)
    assert value == 0
    assert problem is not None
    assert words in problem


def test_an_infinite_resource_that_is_all_in_use_is_nothing() -> None:
    assert utility(Resource(math.inf, 1, 1.0)) == (math.exp(-1), None)


def test_the_operators_criteria_count_by_their_weights() -> None:
    found = score(ENOUGH, {"rack": Criterion(0.5, 112)})
    assert found.total == pytest.approx(0.75)
    assert found.terms["rack"].weight == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("given_by", "words"),
    [
        (Criterion(None, 112, "no answer within 2 s"), "no answer within 2 s"),
        (Criterion(None, 112), NO_ANSWER),
        (Criterion(math.nan, 112), "says nan, not between 0 and 1"),
        (Criterion(73, 112), "says 73, not between 0 and 1"),
        (Criterion(-0.1, 112), "says -0.1, not between 0 and 1"),
    ],
)
def test_a_criterion_without_a_good_answer_counts_nothing_and_is_named(
    given_by: Criterion, words: str
) -> None:
    found = score(ENOUGH, {"rack": given_by})
    assert found.total == pytest.approx(0.5)
    assert found.unanswered == {"rack": words}


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e308), min_size=1))
def test_weights_sum_to_one_whatever_they_were(weights: dict[str, float]) -> None:
    if max(weights.values()) == 0:
        with pytest.raises(WeightInvalid):
            normalised(weights)
        return
    shares = normalised(weights)
    assert math.fsum(shares.values()) == pytest.approx(1)
    largest = max(weights, key=lambda name: weights[name])
    assert all(0 <= share <= shares[largest] for share in shares.values())


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_no_weight_is_refused_in_words(wrong: float) -> None:
    with pytest.raises(
        WeightInvalid, match=f"the weight of 'rack' is {wrong}. Give each weight a number from 0 up"
    ):
        score(ENOUGH, {"rack": Criterion(1, wrong)})


def test_a_criterion_cannot_have_the_name_of_a_resource() -> None:
    with pytest.raises(WeightInvalid, match="'memory' is both a resource and a criterion"):
        score(ENOUGH, {"memory": Criterion(1, 1)})


@given(
    st.dictionaries(
        st.sampled_from(sorted(PAPER_WEIGHTS)),
        st.builds(
            Resource,
            st.none() | st.floats(),
            st.floats(),
            st.none() | st.floats(-0.5, 1.5) | st.just(math.nan),
        ),
    ),
    st.dictionaries(st.sampled_from("xyz"), st.builds(Criterion, st.none() | st.floats(), st.floats(0, 10))),
)
def test_a_score_is_between_nothing_and_one_whatever_machines_say(
    resources: dict[str, Resource], criteria: dict[str, Criterion]
) -> None:
    found = score(resources, criteria)
    assert 0 <= found.total <= 1
    assert set(found.terms) == set(PAPER_WEIGHTS) | set(criteria)
