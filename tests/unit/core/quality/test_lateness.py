"""What comes late is counted and told, at most once a second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality.lateness import TELL_US, Late, Lateness


def test_the_first_late_message_is_told_and_then_once_a_second() -> None:
    lateness = Lateness()
    assert lateness.came("a", 5, 10, 0) is None and lateness.came("a", 10, 10, 0) is None
    assert lateness.came("a", 11, 10, 1) == Late(1, 1, 11)
    assert lateness.came("a", 90, 10, 2) is None and lateness.came("a", 20, 10, TELL_US) is None
    assert lateness.came("a", 30, 10, TELL_US + 1) == Late(4, 3, 90)
    assert lateness.came("b", 12, 10, TELL_US + 1) == Late(1, 1, 12), "each key for itself"


def test_what_nobody_asks_about_is_forgotten() -> None:
    lateness = Lateness()
    lateness.came("a x", 2, 1, 0)
    lateness.came("b x", 2, 1, 0)
    lateness.forget("a ")
    assert len(lateness) == 1 and lateness.total == 2


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, TELL_US))))
def test_changes_add_up_to_the_total(came: list[tuple[int, int]]) -> None:
    lateness, now, told, late = Lateness(), 0, 0, 0
    for delay_us, after_us in came:
        now += after_us
        late += delay_us > 10
        found = lateness.came("a", delay_us, 10, now)
        if found is not None:
            told += found.change
            assert told == found.total == late


def test_what_was_held_back_is_told_when_it_is_due() -> None:
    lateness = Lateness()
    lateness.came("a", 11, 10, 0)
    lateness.came("a", 90, 10, 1)
    assert lateness.due(TELL_US - 1) == []
    assert lateness.due(TELL_US) == [("a", Late(2, 1, 90))]
    assert lateness.due(2 * TELL_US) == []
    assert lateness.is_told


def test_messages_that_were_given_up_count_together() -> None:
    lateness = Lateness()
    assert lateness.came("a", 11, 10, 0, 5) == Late(5, 5, 11)
    assert lateness.total == 5


def test_what_is_forgotten_is_not_due() -> None:
    lateness = Lateness()
    lateness.came("a x", 2, 1, 0)
    lateness.came("a x", 2, 1, 1)
    lateness.forget("a ")
    assert lateness.due(10 * TELL_US) == []
