"""What a destination has of a flow that comes over several ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality.arrival_window import BYTES, WAIT_US, WINDOW, ArrivalWindow

BUDGET_US = 100_000
Window = ArrivalWindow[int]


def come(
    window: Window, number: int, now_us: int, *, sent_us: int | None = None, budget_us: int = BUDGET_US
) -> list[int]:
    sent = number * 10_000 if sent_us is None else sent_us
    return window.take(number, number, sent_us=sent, budget_us=budget_us, now_us=now_us)[1]


def test_of_two_copies_the_first_goes_on() -> None:
    window = Window(1)
    assert come(window, 1, 11_000) == [1]
    assert come(window, 1, 12_000) == []
    assert (window.repeated, window.late, window.next) == (1, 0, 2)


def test_a_gap_waits_for_the_other_way() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    assert come(window, 3, 31_000) == []
    assert come(window, 2, 35_000) == [2, 3]


def test_a_gap_waits_no_longer_than_the_budget() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    come(window, 3, 31_000)
    assert window.next_us is not None
    assert window.next_us < 30_000 + BUDGET_US
    assert window.due(window.next_us - 1) == []
    assert window.due(window.next_us) == [3]
    assert window.passed_over == 1


def test_what_comes_after_it_was_passed_over_is_dropped() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    come(window, 3, 31_000)
    window.due(1_000_000)
    assert come(window, 2, 1_000_000) == []
    assert (window.late, window.repeated) == (1, 0)
    assert come(window, 2, 1_000_001) == []
    assert (window.late, window.repeated) == (1, 1)


def test_a_late_message_is_fresh_for_those_without_an_order() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    come(window, 3, 31_000)
    window.due(1_000_000)
    fresh, _ = window.take(2, 2, sent_us=20_000, budget_us=BUDGET_US, now_us=1_000_000)
    assert fresh


def test_nothing_waits_for_long_however_large_the_budget_is() -> None:
    window = Window(1)
    come(window, 1, 11_000, budget_us=60_000_000)
    come(window, 3, 31_000, budget_us=60_000_000)
    assert window.due(31_000 + WAIT_US - 1) == []
    assert window.due(31_000 + WAIT_US) == [3]


def test_all_that_waits_may_go_on_at_once() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    come(window, 3, 31_000)
    come(window, 5, 31_000)
    assert window.rest() == [3, 5]
    assert window.missed == 2


def test_a_flow_begins_with_what_comes_first() -> None:
    window = Window(3)
    assert come(window, 3, 31_000) == [3]
    assert come(window, 1, 32_000) == []
    assert (window.before, window.missed) == (1, 1)
    assert come(window, 4, 33_000) == [4]


def test_a_clock_that_runs_behind_does_not_make_everything_late() -> None:
    window = Window(1)
    skewed_us = 5_000_000  # our clock is ahead by so much
    come(window, 1, 11_000 + skewed_us)
    assert come(window, 3, 31_000 + skewed_us) == []
    assert window.due(40_000 + skewed_us) == []
    assert come(window, 2, 45_000 + skewed_us) == [2, 3]


def test_what_waits_is_bounded_in_numbers() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    assert come(window, 2 + WINDOW, 0, sent_us=0) == [2 + WINDOW]
    assert window.passed_over == WINDOW


def test_what_waits_is_bounded_in_bytes() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    ready: list[int] = []
    for number in (3, 5):
        ready += window.take(number, number, sent_us=0, budget_us=BUDGET_US, now_us=0, size=BYTES // 2 + 1)[1]
    assert ready == [3]


ARRIVALS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60_000)), min_size=1, max_size=120)


@given(ARRIVALS)
def test_each_number_goes_on_once_in_order_and_in_time(arrivals: list[tuple[int, int]]) -> None:
    """Copies come in any order, at any time; the window is asked whenever something is due."""
    window, now_us = Window(1), 0
    waiting: dict[int, int] = {}  # number → when it came
    passed: list[int] = []
    came: set[int] = set()
    fresh_ones: list[int] = []

    def note(ready: list[int]) -> None:
        passed.extend(ready)
        for each in ready:
            waiting.pop(each, None)

    for number, pause_us in arrivals:
        end_us = now_us + pause_us
        while window.next_us is not None and window.next_us <= end_us:
            now_us = max(now_us, window.next_us)
            note(window.due(now_us))
        now_us = end_us
        waiting.setdefault(number, now_us)
        fresh, ready = window.take(number, number, sent_us=now_us, budget_us=BUDGET_US, now_us=now_us)
        assert fresh == (number not in came)
        came.add(number)
        fresh_ones += [number] * fresh
        if number < window.next and number not in ready:
            waiting.pop(number, None)
        note(ready)
        for each, since_us in waiting.items():
            assert now_us - since_us <= BUDGET_US, f"{each} waits too long"
    assert passed == sorted(set(passed))
    assert len(fresh_ones) == len(set(fresh_ones))
    if window.next_us is not None:
        note(window.due(window.next_us + BUDGET_US))
    assert not len(window)
    assert set(passed) <= came
    assert len(passed) + window.late == len(came)


@given(st.permutations(range(1, 25)))
def test_nothing_is_lost_that_came_in_time(order: list[int]) -> None:
    window = Window(1)
    passed: list[int] = []
    for number in order:
        passed += come(window, number, 1_000, sent_us=0)
        passed += come(window, number, 1_000, sent_us=0)
    assert passed == list(range(1, 25))
    assert window.repeated == 24
