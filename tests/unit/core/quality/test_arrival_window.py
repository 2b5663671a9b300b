"""What a destination has of a flow that comes over several ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality.arrival_window import BEGINNING, BYTES, WINDOW, ArrivalWindow

BUDGET_US = 100_000
Window = ArrivalWindow[int]


def come(
    window: Window, number: int, now_us: int, *, sent_us: int | None = None, copied: bool = True
) -> list[int]:
    sent = number * 10_000 if sent_us is None else sent_us
    return window.take(number, number, sent_us=sent, budget_us=BUDGET_US, now_us=now_us, copied=copied)[1]


def test_of_two_copies_the_first_goes_on() -> None:
    window = Window(1)
    assert come(window, 1, 11_000) == [1]
    assert come(window, 1, 12_000, copied=False) == []
    assert (window.repeated, window.late, window.next) == (1, 0, 2)


def test_a_gap_waits_for_the_other_way() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    assert come(window, 3, 31_000) == []
    assert come(window, 2, 35_000, copied=False) == [2, 3]


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
    assert come(window, 2, 1_000_001, copied=False) == []
    assert (window.late, window.repeated) == (1, 1)


def test_a_late_message_is_fresh_for_those_without_an_order() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    come(window, 3, 31_000)
    window.due(1_000_000)
    fresh, _ = window.take(2, 2, sent_us=20_000, budget_us=BUDGET_US, now_us=1_000_000)
    assert fresh


def test_without_copies_nothing_waits() -> None:
    window = Window(1)
    assert come(window, 1, 11_000, copied=False) == [1]
    assert come(window, 5, 51_000, copied=False) == [5]
    assert come(window, 3, 52_000, copied=False) == [3]
    assert window.next_us is None


def test_when_copies_end_what_waits_goes_on() -> None:
    window = Window(1)
    come(window, 1, 11_000)
    come(window, 3, 31_000)
    assert window.rest() == [3]
    assert come(window, 2, 32_000, copied=False) == []
    assert come(window, 6, 61_000, copied=False) == [6]


def test_a_flow_begins_with_its_first_numbers() -> None:
    window = Window(3)
    assert come(window, 3, 31_000) == []
    assert come(window, 1, 32_000) == [1]
    assert come(window, 2, 33_000) == [2, 3]


def test_a_flow_that_was_going_on_begins_where_it_is() -> None:
    window = Window(BEGINNING + 1)
    assert come(window, BEGINNING + 1, 0, sent_us=0) == [BEGINNING + 1]


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
        ready += window.take(
            number, number, sent_us=0, budget_us=BUDGET_US, now_us=0, size=BYTES // 2 + 1, copied=True
        )[1]
    assert ready == [3]


ARRIVALS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 60_000), st.booleans()), min_size=1, max_size=120
)


@given(ARRIVALS)
def test_each_number_goes_on_once_in_order_and_in_time(arrivals: list[tuple[int, int, bool]]) -> None:
    """Copies come in any order, at any time; the window is asked whenever something is due."""
    window, now_us = Window(1), 0
    waiting: dict[int, int] = {}  # number → when it came
    passed: list[int] = []
    came: set[int] = set()
    fresh_ones: list[int] = []
    window.guarded = True

    def note(ready: list[int]) -> None:
        passed.extend(ready)
        for each in ready:
            waiting.pop(each, None)

    for number, pause_us, copied in arrivals:
        end_us = now_us + pause_us
        while window.next_us is not None and window.next_us <= end_us:
            now_us = max(now_us, window.next_us)
            note(window.due(now_us))
        now_us = end_us
        waiting.setdefault(number, now_us)
        fresh, ready = window.take(
            number, number, sent_us=now_us, budget_us=BUDGET_US, now_us=now_us, copied=copied
        )
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


@given(st.permutations(range(1, 25)), st.randoms(use_true_random=False))
def test_nothing_is_lost_that_came_in_time(order: list[int], chance: object) -> None:
    window = Window(1)
    passed: list[int] = []
    for number in order:
        passed += come(window, number, 1_000, sent_us=0)
        passed += come(window, number, 1_000, sent_us=0, copied=False)
    assert passed == list(range(1, 25)) or 1 not in order[:1]
    assert window.repeated == 24
