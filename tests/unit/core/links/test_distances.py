"""How far brokers are: measured where that was told, and estimated by pairs of the same kind."""

from __future__ import annotations

from statistics import median_low

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.links.distances import (
    BETWEEN_US,
    LONGEST_US,
    PEERS_MAX,
    WITHIN_US,
    Delays,
    Distance,
    Distances,
    differ_much,
)

CLUSTERS = {"n1": "north", "n2": "north", "n3": "north", "s1": "south", "s2": "south", "w1": "west"}


def test_the_first_sample_is_believed_and_later_ones_by_an_eighth() -> None:
    delays = Delays()
    delays.measured("peer", 8_000)
    delays.measured("peer", 16_000)
    assert delays.all() == {"peer": 9_000}


def test_what_was_measured_over_a_link_that_is_gone_is_forgotten() -> None:
    delays = Delays()
    delays.measured("peer", 8_000)
    delays.lost("peer")
    delays.lost("nobody")
    assert delays.all() == {}


def test_delays_are_bounded_in_number_and_length() -> None:
    delays = Delays()
    for number in range(PEERS_MAX + 10):
        delays.measured(f"peer-{number}", 1 << 60)
    assert len(delays.all()) == PEERS_MAX
    assert set(delays.all().values()) == {LONGEST_US}


def test_a_change_is_told_if_it_is_large_in_both_ways() -> None:
    assert not differ_much({"a": 100}, {"a": 1_000})
    assert not differ_much({"a": 100_000}, {"a": 110_000})
    assert differ_much({"a": 10_000}, {"a": 20_000})
    assert differ_much({"a": 1}, {"a": 1, "b": 1})
    assert differ_much({"a": 1}, {})


def test_what_either_side_has_measured_counts_and_of_two_the_shorter() -> None:
    distances = Distances(CLUSTERS)
    distances.tell("n1", {"s1": 70_000})
    assert distances.between("n1", "s1") == distances.between("s1", "n1") == Distance(70_000, True)
    distances.tell("s1", {"n1": 60_000})
    assert distances.between("n1", "s1").us == 60_000
    assert distances.between("n1", "n1") == Distance(0, True)


def test_unmeasured_distances_are_estimated_by_kind_then_wider_kinds_then_constants() -> None:
    distances = Distances(CLUSTERS)
    assert distances.between("n1", "n2") == Distance(WITHIN_US, False)
    assert distances.between("n1", "s1") == Distance(BETWEEN_US, False)
    distances.tell("n1", {"s1": 70_000, "n2": 300})
    assert distances.between("n2", "s2") == Distance(70_000, False)  # the same two clusters
    assert distances.between("n2", "w1") == Distance(70_000, False)  # any two
    assert distances.between("n2", "n3") == Distance(300, False)
    assert distances.between("s1", "s2") == Distance(300, False)  # inside any


def test_brokers_that_are_gone_are_forgotten() -> None:
    distances = Distances(CLUSTERS)
    distances.tell("n1", {"s1": 70_000})
    assert distances.neighbours("s1") == {"n1"} and distances.reaches("n1", "s1")
    distances.set_brokers({"s1": "south", "s2": "south"})
    assert distances.neighbours("s1") == set() and not distances.rows()


def test_nonsense_is_not_believed() -> None:
    distances = Distances(CLUSTERS)
    distances.tell("n1", {"n1": 5, "s1": 0, "s2": LONGEST_US + 1, "n2": 7})
    assert distances.rows() == [("n1", "n2", 7)]


@given(
    st.dictionaries(
        st.sampled_from(sorted(CLUSTERS)),
        st.dictionaries(st.sampled_from(sorted(CLUSTERS)), st.integers(1, 100_000)),
    ),
    st.sampled_from(sorted(CLUSTERS)),
    st.sampled_from(sorted(CLUSTERS)),
)
def test_the_table_agrees_with_a_plain_scan_of_all_reports(
    told: dict[str, dict[str, int]], a: str, b: str
) -> None:
    distances = Distances(CLUSTERS)
    for broker, delays in told.items():
        distances.tell(broker, delays)
    rows = [(x, y, us) for x, delays in told.items() for y, us in delays.items() if x != y]

    def expected() -> Distance:
        if a == b:
            return Distance(0, True)
        own = [us for x, y, us in rows if {x, y} == {a, b}]
        if own:
            return Distance(min(own), True)
        kind = {CLUSTERS[a], CLUSTERS[b]}
        alike = [us for x, y, us in rows if {CLUSTERS[x], CLUSTERS[y]} == kind]
        wider = [us for x, y, us in rows if (CLUSTERS[x] == CLUSTERS[y]) == (len(kind) == 1)]
        constant = WITHIN_US if len(kind) == 1 else BETWEEN_US
        return Distance(median_low(alike or wider or [constant]), False)

    assert distances.between(a, b) == expected()
