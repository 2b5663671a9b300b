"""What is made of a recovery, and the line through several."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.tests.reaps.prototype.made import FAILURES, failure
from tocsin_demo.scene import Course, Failure, Ledger, Result
from tocsin_labs.reaps.prototype.outcome import Line, Middle, by_size, line, outcome, typical

SERVERS = {"h:1": "south-1", "h:2": "south-2", "h:3": "north-1"}


def recovered() -> tuple[Course, Ledger]:
    """Subscribers 0 and 1 were at the broker that failed at 10, and 2 elsewhere; storm 5 was told."""
    ledger = Ledger(("south-1", "south-1", "north-1"), SERVERS)
    for subscriber, at_s, server in (
        (0, 1.0, "h:1"),
        (1, 1.0, "h:1"),
        (2, 1.0, "h:3"),
        (0, 10.1, None),
        (1, 10.2, None),
        (1, 10.4, "h:2"),
        (0, 10.75, "h:2"),
        (0, 16.0, None),
        (0, 16.5, "h:1"),
    ):
        ledger.moved(subscriber, at_s, server)
    for subscriber, at_s, number in (
        (0, 5.0, 4),
        (1, 5.0, 4),
        (2, 11.0, 5),
        (1, 11.25, 5),
        (0, 11.5, 5),
        (0, 12.0, 5),
    ):
        ledger.got(subscriber, at_s, Result(number, number, 3))
    found = Course(
        Failure(("south-1",), 10.0, (0, 1), {"south-1": 7}),
        lost_s={"south-1": 11.5},
        stands_in={"south-1": "south-2"},
        taken_s={"south-1": 11.6},
        passages=(ledger.passage(0, 10.0), ledger.passage(1, 10.0)),
    )
    return found, ledger


def test_all_times_are_after_the_failure_and_by_rising_time() -> None:
    course, ledger = recovered()
    found = outcome("local", 1, course, ledger, 5, {0, 1, 2})
    assert found.subscribers == 2 and found.at == {"south-2": 2} and found.stands_in == "south-2"
    assert found.broken_s == pytest.approx([0.1, 0.2])
    assert found.served_s == pytest.approx([0.4, 0.75])
    assert found.told_s == pytest.approx([1.25, 1.5])  # the first time counts, and no other storm
    assert found.others_told_s == pytest.approx([1.0])
    assert found.detected_s == pytest.approx(1.5) and found.taken_s == pytest.approx(1.6)


def test_a_client_served_before_detection_counts_with_a_negative_time() -> None:
    course, ledger = recovered()
    assert outcome("local", 1, course, ledger, 5, {0, 1, 2}).after_detection_s == pytest.approx(-0.75)
    assert failure("local", 10, 2.0, detected_s=1.5).after_detection_s == pytest.approx(0.5)
    assert failure("migration", 10, 2.0).after_detection_s is None


def test_a_return_is_the_first_connection_to_a_broker_behind_a_time() -> None:
    _, ledger = recovered()
    assert ledger.connected_s(0, "south-1", 10.0) == 16.5
    assert ledger.connected_s(0, "south-1", 0.0) == 1.0
    assert ledger.connected_s(1, "south-1", 10.0) is None


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(-1_000, 1_000)), min_size=2, max_size=12).filter(
        lambda points: len({x for x, _ in points}) > 1
    ),
    st.floats(-1, 1),
    st.floats(-1, 1),
)
def test_no_other_line_has_less_squares(points: list[tuple[int, int]], more: float, steeper: float) -> None:
    found = line(points)
    assert found is not None

    def squares(of: Line) -> float:
        return math.fsum((y - of.at(x)) ** 2 for x, y in points)

    other = Line(found.slope + steeper, found.intercept + more, 0.0)
    assert squares(found) <= squares(other) * (1 + 1e-9) + 1e-6
    assert -1e-9 <= found.explained <= 1 + 1e-9


def test_a_line_is_fitted_through_points_of_at_least_two_sizes() -> None:
    found = line([(23, 2.3), (50, 5.0), (97, 9.7)])
    assert found is not None
    assert found.slope == pytest.approx(0.1) and found.intercept == pytest.approx(0.0, abs=1e-9)
    assert found.explained == pytest.approx(1.0)
    assert line([(23, 1.0), (23, 2.0)]) is None and line([]) is None


def test_a_middle_is_of_what_is_known() -> None:
    assert Middle.of([3.0, None, 1.0, 2.0]) == Middle(2.0, 1.0, 3.0, 3)
    assert Middle.of([None]) is None


def test_the_typical_one_is_in_the_middle() -> None:
    sizes = by_size(FAILURES, "local")
    assert list(sizes) == [23, 97]
    assert typical(sizes[97]).all_served_s == pytest.approx(0.97)
    assert typical(sizes[97][:2]).all_served_s == pytest.approx(0.97)
