"""When bytes arrive on a connection that is slow, lossy or narrow."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.runtime.faults.weather import (
    CALM,
    FLIGHT_MAX_BYTES,
    HELD_HIGH_BYTES,
    RESEND_LEAST_S,
    SEGMENT_BYTES,
    Lane,
    Weather,
    together,
)


def lane(weather: Weather, *chances: float) -> Lane:
    drawn = iter(chances)
    made = Lane(lambda: next(drawn, 1.0))
    made.weather = weather
    return made


def test_in_fine_weather_bytes_arrive_at_once() -> None:
    assert lane(CALM).due_s(1_000_000, 5.0) == 5.0


def test_a_lag_delays_everything_by_as_much() -> None:
    slow = lane(Weather(lag_s=0.25))
    assert [slow.due_s(100, now_s) for now_s in (1.0, 1.0, 2.0)] == [1.25, 1.25, 2.25]


def test_a_rate_lets_bytes_leave_one_after_the_other() -> None:
    narrow = lane(Weather(rate=1_000))
    assert [narrow.due_s(500, 1.0), narrow.due_s(500, 1.0), narrow.due_s(500, 9.0)] == [1.5, 2.0, 9.5]
    assert narrow.waiting_bytes(9.25) == 250 and narrow.waiting_bytes(20.0) == 0


def test_a_lost_segment_holds_up_what_comes_behind_it() -> None:
    lossy = lane(Weather(lag_s=0.01, loss=0.1), 0.05, 0.5, 0.9)
    assert lossy.due_s(100, 1.0) == pytest.approx(1.01 + RESEND_LEAST_S)
    assert lossy.due_s(100, 1.1) == pytest.approx(1.01 + RESEND_LEAST_S)
    assert lossy.due_s(100, 2.0) == pytest.approx(2.01)


def test_a_segment_lost_twice_takes_three_times_as_long() -> None:
    lossy = lane(Weather(loss=0.1), 0.05, 0.05, 0.5)
    assert lossy.due_s(100, 1.0) == pytest.approx(1.0 + 3 * RESEND_LEAST_S)


def test_many_bytes_are_many_segments_that_may_be_lost() -> None:
    counted = []

    def chance() -> float:
        counted.append(1)
        return 1.0

    made = Lane(chance)
    made.weather = Weather(loss=0.1)
    made.due_s(10 * SEGMENT_BYTES, 0.0)
    assert len(counted) == 10


def test_several_weathers_at_once_add_up() -> None:
    both = together([Weather(lag_s=0.1, loss=0.5), Weather(lag_s=0.2, loss=0.5, rate=500), Weather(rate=200)])
    assert both.lag_s == pytest.approx(0.3) and both.loss == pytest.approx(0.75) and both.rate == 200
    assert together([]) == CALM


def test_the_room_grows_with_what_is_under_way_and_is_bounded() -> None:
    assert lane(Weather(rate=100_000, lag_s=1.0)).room_bytes == HELD_HIGH_BYTES + 100_000
    assert lane(Weather(lag_s=10.0)).room_bytes == FLIGHT_MAX_BYTES
    assert lane(Weather(rate=10**9, lag_s=10.0)).room_bytes == FLIGHT_MAX_BYTES


weathers = st.builds(
    Weather,
    lag_s=st.floats(0, 1),
    loss=st.floats(0, 0.5),
    rate=st.integers(0, 10**6).map(lambda rate: rate + 100 if rate else 0),
)


@given(st.lists(st.tuples(weathers, st.integers(0, 5_000), st.floats(0, 1)), max_size=40), st.integers())
def test_nothing_arrives_before_what_was_written_before(
    writes: list[tuple[Weather, int, float]], seed: int
) -> None:
    made, now_s, last_s = Lane(random.Random(seed).random), 0.0, 0.0
    for weather, size, later_s in writes:
        now_s += later_s
        made.weather = weather
        due_s = made.due_s(size, now_s)
        assert due_s >= last_s and due_s >= now_s + weather.lag_s
        last_s = due_s
