"""The way around a link that is cut is the best there is."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.links.detour import DOUBT_US, RELAY_US, cost_us, detour
from tocsin.core.links.distances import Distances

NAMES = ("a", "b", "c", "d", "e", "f")
CLUSTERS = {"a": "north", "b": "south", "c": "north", "d": "south", "e": "west", "f": "north"}


def table(**told: dict[str, int]) -> Distances:
    distances = Distances(CLUSTERS)
    for broker, delays in told.items():
        distances.tell(broker, delays)
    return distances


def test_the_relay_with_the_least_sum_of_delays_is_taken() -> None:
    distances = table(a={"c": 5_000, "d": 90_000}, c={"b": 80_000}, d={"b": 1_000})
    assert detour("a", "b", ("c", "d"), distances, {("a", "b")}) == ("c",)
    distances = table(a={"c": 5_000, "d": 20_000}, c={"b": 80_000}, d={"b": 1_000})
    assert detour("a", "b", ("c", "d"), distances, {("a", "b")}) == ("d",)


def test_two_relays_are_taken_where_one_does_not_do() -> None:
    distances = table(a={"c": 1_000}, c={"d": 1_000}, d={"b": 1_000})
    cut = {("a", "b"), ("a", "d"), ("c", "b")}
    assert detour("a", "b", ("c", "d"), distances, cut) == ("c", "d")


def test_a_second_relay_has_to_be_worth_it() -> None:
    near = table(a={"c": 1_000}, c={"d": 1_000, "b": 3_000}, d={"b": 1_500})
    assert detour("a", "b", ("c", "d"), near, {("a", "b"), ("a", "d")}) == ("c",)


def test_there_is_no_way_if_everything_is_cut() -> None:
    assert detour("a", "b", ("c",), table(), {("a", "b"), ("a", "c")}) is None
    assert detour("a", "b", ("a", "b"), table(), {("a", "b")}) is None


def test_a_link_whose_opposite_is_cut_is_doubtful_unless_measured() -> None:
    cut = {("a", "b"), ("b", "c")}
    guessed = table(a={"c": 1_000, "d": 500_000}, d={"b": 1_000})
    assert detour("a", "b", ("c", "d"), guessed, cut) == ("d",)
    seen = table(a={"c": 1_000, "d": 500_000}, d={"b": 1_000}, c={"b": 1_000})
    assert detour("a", "b", ("c", "d"), seen, cut) == ("c",)
    assert cost_us(("a", "c", "b"), seen, cut) == 2_000 + RELAY_US
    assert cost_us(("c", "b"), guessed, cut) == guessed.between("c", "b").us + DOUBT_US


def test_another_link_into_the_same_cluster_is_doubtful_unless_measured() -> None:
    cut = {("a", "b")}  # into the south
    guessed = table(a={"c": 1_000}, c={"b": 50_000}, d={"b": 500})
    assert detour("a", "b", ("c", "d"), guessed, cut) == ("c",)  # d is in the south too
    seen = table(a={"c": 1_000, "d": 40_000}, c={"b": 50_000}, d={"b": 500})
    assert detour("a", "b", ("c", "d"), seen, cut) == ("d",)
    assert detour("a", "b", ("d",), guessed, cut) == ("d",)  # better than nothing


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(NAMES), st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3_000)), max_size=6
    ),
    st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20),
    st.integers(2, 6),
)
def test_no_way_over_one_or_two_relays_is_better(
    told: dict[str, dict[str, int]], cut: set[tuple[str, str]], count: int
) -> None:
    distances = table(**told)
    relays = NAMES[2:count]
    found = detour("a", "b", NAMES[:count], distances, cut)
    ways = [way for size in (1, 2) for way in permutations(relays, size)]
    costs = {way: cost_us(("a", *way, "b"), distances, cut) for way in ways}
    best = min(((us, len(way), way) for way, us in costs.items() if us is not None), default=None)
    assert found == (None if best is None else best[2])
