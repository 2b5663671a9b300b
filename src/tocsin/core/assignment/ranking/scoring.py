"""How well a broker could take another's place, by its resources: the scoring of the Landmark paper (eqs. 1 to 5).

For each resource there is what the machine has (e), the share of it that is in use (u), and what is needed (n):

    U_C  = exp(min(C_e · (1 − C_u) − C_n, 0))      processor
    U_M  = exp(min(M_e · (1 − M_u) − M_n, 0))      memory
    U_BA = exp(min(BA_e − BA_n, 0))                battery
    U_BW = exp(min(BW_e − BW_n, 0))                bandwidth of its link; in the paper the mean of those to all peers
    U_T  = Σ W · U                                 weights that sum to 1

So a resource that suffices gives 1, and what is lacking lowers it by a factor e for each unit: units are to be
chosen such that one unit too little is bad (cores, GiB, hours, Mbit/s). To these come the operator's own criteria,
each with a value from 0 to 1.

A missing figure (a file that cannot be read, a command that did not answer in time, a value that is no number or beyond
its range) counts 0 with its full weight, and is named: a machine that does not answer is no better than a full one, and
its operator should see why. Weights need not sum to 1; they are divided by their sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from tocsin.errors import WeightInvalid

PAPER_WEIGHTS: Final = {"processor": 1.0, "memory": 1.0, "bandwidth": 60.0, "battery": 50.0}
NO_ANSWER: Final = "no answer"


class Resource(msgspec.Struct, frozen=True):
    """A resource of a machine: its amount, the share in use (0 to 1), and the need. None: not known."""

    have: float | None
    need: float
    used: float | None = 0.0


class Criterion(msgspec.Struct, frozen=True):
    """The value of an operator's criterion, from 0 to 1. None: it did not answer in time, or failed."""

    value: float | None
    weight: float
    problem: str = NO_ANSWER  # why there is no value


class Term(msgspec.Struct, frozen=True):
    """A part of a score: ``value`` from 0 to 1; the weights of all terms sum to 1."""

    value: float
    weight: float


class Score(msgspec.Struct, frozen=True):
    """A score from 0 to 1, what it is made of, and why some of that is 0."""

    total: float
    terms: dict[str, Term]
    unanswered: dict[str, str]


def utility(resource: Resource) -> tuple[float, str | None]:
    """U of one resource; 0 and the reason where it cannot be told. Infinitely much (mains for a battery) suffices."""
    have, used = resource.have, resource.used
    if have is None or used is None:
        return 0.0, NO_ANSWER
    if math.isnan(have) or have < 0:
        return 0.0, f"has {have}"
    if not 0 <= used <= 1:  # nan too
        return 0.0, f"is in use to {used}, not between 0 and 1"
    if not math.isfinite(resource.need):
        return 0.0, f"needs {resource.need}"
    left = have if used == 0 else 0.0 if used == 1 else have * (1 - used)
    return math.exp(min(left - resource.need, 0.0)), None


def score(
    resources: Mapping[str, Resource],
    criteria: Mapping[str, Criterion] | None = None,
    weights: Mapping[str, float] = PAPER_WEIGHTS,
) -> Score:
    """U_T over the resources that ``weights`` names, and the criteria. One that has a weight and no figure counts 0."""
    criteria = criteria or {}
    twice = sorted(set(weights) & set(criteria))
    if twice:
        raise WeightInvalid(f"{twice[0]!r} is both a resource and a criterion of the operator's")
    values: dict[str, tuple[float, str | None]] = {
        name: utility(resources[name]) if name in resources else (0.0, NO_ANSWER) for name in weights
    }
    values |= {name: _judged(each) for name, each in criteria.items()}
    return weighted(values, {**weights, **{name: each.weight for name, each in criteria.items()}})


def _judged(criterion: Criterion) -> tuple[float, str | None]:
    if criterion.value is None:
        return 0.0, criterion.problem
    if not 0 <= criterion.value <= 1:  # nan too
        return 0.0, f"says {criterion.value}, not between 0 and 1"
    return criterion.value, None


def weighted(values: Mapping[str, tuple[float, str | None]], weights: Mapping[str, float]) -> Score:
    """The mean of values by weights. ``values``: each with the reason, if it is 0 because it is not known."""
    shares = normalised(weights)
    terms = {name: Term(values[name][0], share) for name, share in shares.items()}
    return Score(
        total=min(math.fsum(term.value * term.weight for term in terms.values()), 1.0),
        terms=terms,
        unanswered={name: problem for name, (_, problem) in values.items() if problem is not None},
    )


def normalised(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights such that they sum to 1."""
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise WeightInvalid(f"the weight of {name!r} is {weight}")
    largest = max(weights.values(), default=0.0)
    if largest == 0:
        raise WeightInvalid("all weights are 0")
    scaled = {name: weight / largest for name, weight in weights.items()}  # so that no sum is infinite
    total = math.fsum(scaled.values())
    return {name: weight / total for name, weight in scaled.items()}
