"""Reliable flows: nothing is lost or passed on twice, whatever is lost, repeated or overtakes on the way."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.quality.resending import AGAIN_US, BACKOFF_MOST, WINDOW, Origin, Window

MOST = 1_000


def again(origin: Origin[str], now_us: int, most: int = 100) -> dict[str, list[int]]:
    return {broker: [number for number, _ in late] for broker, late in origin.due(now_us, most)}


def test_without_a_destination_nothing_is_kept() -> None:
    origin: Origin[str] = Origin()
    origin.publish(1, "a", 10, 0, MOST)
    assert len(origin) == 0 and origin.next_us() is None
    assert origin.enrol("x", 0) and not origin.enrol("x", 0)
    origin.publish(2, "b", 10, 0, MOST)
    assert len(origin) == 1 and origin.first == 2, "from the enrolment on"


def test_what_nobody_acknowledges_is_sent_again_ever_more_rarely() -> None:
    origin: Origin[str] = Origin()
    origin.enrol("x", 0)
    for number in (1, 2, 3):
        origin.publish(number, "a", 10, 0, MOST)
    assert again(origin, AGAIN_US - 1) == {}
    assert again(origin, AGAIN_US) == {"x": [1, 2, 3]} and again(origin, AGAIN_US) == {}
    origin.acknowledge("x", 2, AGAIN_US)
    assert again(origin, 2 * AGAIN_US) == {"x": [3]} and origin.first == 3
    times, now = 0, 2 * AGAIN_US
    while now < 2 * AGAIN_US + 100 * BACKOFF_MOST * AGAIN_US:
        now += AGAIN_US
        times += len(again(origin, now))
    assert 100 <= times <= 110
    origin.acknowledge("x", 3, now)
    assert len(origin) == 0 == origin.bytes


def test_all_destinations_have_to_have_it() -> None:
    origin: Origin[str] = Origin()
    origin.enrol("x", 0)
    origin.enrol("y", 0)
    origin.publish(1, "a", 10, 0, MOST)
    origin.acknowledge("x", 1, 0)
    assert len(origin) == 1 and again(origin, AGAIN_US) == {"y": [1]}
    origin.leave("y")
    assert len(origin) == 0


def test_beyond_its_bound_the_oldest_is_given_up_and_passed_over() -> None:
    origin: Origin[str] = Origin()
    origin.enrol("x", 0)
    for number in range(1, 6):
        origin.publish(number, "a", 400, 0, MOST)
    assert origin.given_up == 3 and origin.first == 4 and origin.bytes == 800
    window: Window[str] = Window(1)
    assert window.take(5, "five") == []
    assert window.pass_over(origin.first) == [] and window.take(4, "four") == ["four", "five"]
    assert window.passed_over == 3 and window.next == 6


def test_a_window_drops_what_it_has_and_what_is_far_ahead() -> None:
    window: Window[int] = Window(10)
    assert window.take(9, 9) == [] and window.take(10 + WINDOW, 0) == [] and window.dropped == 2
    assert window.take(12, 12) == [] and window.take(12, 12) == [] and window.first_waiting == 12
    assert window.take(10, 10) == [10] and window.take(11, 11) == [11, 12] and len(window) == 0
    assert window.take(11, 11) == [] and window.dropped == 4


def test_what_waits_behind_a_gap_goes_on_when_that_is_passed_over() -> None:
    window: Window[int] = Window(1)
    window.take(3, 3)
    window.take(5, 5)
    assert window.pass_over(window.first_waiting) == [3] and window.pass_over(5) == [5]
    assert window.passed_over == 3 and window.pass_over(2) == []


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 90), st.integers(1, 3))
def test_over_any_way_everything_arrives_once_and_in_order(seed: int, loss: int, count: int) -> None:
    chance, origin = random.Random(seed), Origin[int]()
    names = [f"d{number}" for number in range(count)]
    windows = {name: Window[int](1) for name in names}
    got: dict[str, list[int]] = {name: [] for name in names}
    for name in names:
        origin.enrol(name, 0)
    now, published, total = 0, 0, 60
    while any(len(each) < total for each in got.values()) and now < 10_000 * AGAIN_US:
        now += AGAIN_US // 4
        coming: list[tuple[str, int, int]] = []
        if published < total:
            published += 1
            origin.publish(published, published, 1, now, 1 << 20)
            coming += [(name, published, published) for name in names]
        coming += [(name, *each) for name, late in origin.due(now, 20) for each in late]
        chance.shuffle(coming)
        for name, number, item in coming:
            for _ in range(chance.choice((1, 1, 2))):
                if chance.randrange(100) >= loss:
                    got[name] += windows[name].take(number, item)
        for name in names:
            if chance.randrange(100) >= loss:
                origin.acknowledge(name, windows[name].next - 1, now)
    assert all(each == list(range(1, total + 1)) for each in got.values())
