"""A client stays where it came last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.survival.arrival_times import LATEST_US, STEP_US, ArrivalClock, ArrivalTimes


def test_a_word_from_before_the_client_came_is_too_late() -> None:
    presence = ArrivalTimes()
    presence.came("me", 100)
    assert presence.since("me", 99)
    assert not presence.since("me", 100), "of two that came at once nobody is the later one: the word counts"
    assert not presence.since("me", 101)


def test_of_a_client_that_is_not_here_every_word_counts() -> None:
    presence = ArrivalTimes()
    presence.came("me", 100)
    presence.went("me")
    presence.went("you")
    assert not presence.since("me", 1)
    assert not presence.since("you", 1)


def test_who_comes_again_has_come_later() -> None:
    presence = ArrivalTimes()
    presence.came("me", 100)
    presence.came("me", 200)
    assert presence.since("me", 150)


def test_two_arrivals_never_have_the_same_or_adjacent_times() -> None:
    clock = ArrivalClock()
    assert clock.next(100) == 100
    assert clock.next(100) == 100 + STEP_US
    assert clock.next(50) == 100 + 2 * STEP_US, "also if the clock on the wall goes back"
    assert clock.next(500) == 500


def test_an_arrival_after_an_announcement_is_later_despite_clock_skew() -> None:
    clock = ArrivalClock()
    clock.heard(900)
    assert clock.next(100) > 900
    clock.heard(200)
    assert clock.next(100) > 900 + STEP_US, "a word of an earlier time changes nothing"


def test_a_time_that_no_clock_can_have_is_not_believed() -> None:
    clock = ArrivalClock()
    clock.heard(LATEST_US + 1)
    assert clock.next(100) == 100


moves = st.lists(st.tuples(st.integers(0, 2), st.integers(-50, 50)), max_size=30)


@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=3), moves)
def test_a_client_that_moves_comes_later_each_time_whatever_the_clocks_say(
    walls: list[int], moves: list[tuple[int, int]]
) -> None:
    clocks, came_us = [ArrivalClock() for _ in walls], 0
    for broker, passed in moves:
        walls = [max(0, each + passed) for each in walls]
        before_us, came_us = came_us, clocks[broker].next(walls[broker])
        assert came_us > before_us
        for clock in clocks:
            clock.heard(came_us)
