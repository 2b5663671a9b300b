"""Small networks of every kind, for Hypothesis, and a few larger ones from a seed."""

from __future__ import annotations

import math
import random

from hypothesis import strategies as st

from tocsin.core.assignment.demand import Demand, Member
from tocsin.sim.chance import Chance


def chance(seed: int = 1) -> Chance:
    return Chance(seed, "assignment")


@st.composite
def demands(draw: st.DrawFn, *, least: int = 0, most: int = 8, handicaps: bool = False) -> Demand:
    """Up to ``most`` brokers in up to three clusters. Rates are quarters, so that sums are exact."""
    names = draw(
        st.lists(st.sampled_from("abcdefghijkl"), unique=True, min_size=least, max_size=most), label="names"
    )
    capacities = st.one_of(st.just(math.inf), st.integers(0, 40).map(float))
    members = tuple(
        Member(
            name,
            draw(st.sampled_from(["north", "south", "west"])),
            draw(capacities),
            draw(st.integers(0, 5)) if handicaps else 0,
        )
        for name in names
    )
    holdings = {
        name: draw(st.dictionaries(st.integers(0, 9), st.integers(0, 3), max_size=8))
        for name in names
        if draw(st.integers(0, 9))
    }
    rates = draw(st.dictionaries(st.integers(0, 9), st.integers(0, 12).map(lambda n: n / 4), max_size=4))
    return Demand(members, holdings, rates)


def network(
    brokers: int, clusters: int, subscriptions: int, held: int, *, room: float = math.inf, seed: int = 1
) -> Demand:
    """Every broker holds about ``held`` of the subscriptions; capacity for ``room`` times its own load."""
    draws = random.Random(seed)
    holdings: dict[str, dict[object, int]] = {}
    for number in range(brokers):
        chosen = draws.choices(range(subscriptions), k=held)
        holdings[f"b{number:03}"] = {k: chosen.count(k) for k in set(chosen)}
    members = tuple(
        Member(name, f"c{number % clusters}", room * held) for number, name in enumerate(holdings)
    )
    return Demand(members, holdings)
