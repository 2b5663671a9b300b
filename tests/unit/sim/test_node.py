"""Local clocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.sim.node import DRIFT_MAX_PPM, LocalClock

drifts = st.integers(-DRIFT_MAX_PPM, DRIFT_MAX_PPM)
spans = st.integers(0, 10**9)


@given(st.lists(st.tuples(spans, spans, drifts), max_size=8))
def test_a_clock_never_goes_back(changes: list[tuple[int, int, int]]) -> None:
    now_us, last_us = 0, 0
    clock = LocalClock(0)
    for passed_us, ahead_us, drift_ppm in changes:
        now_us += passed_us
        clock.change(now_us, ahead_us, drift_ppm)
        assert clock.read(now_us) >= last_us
        last_us = clock.read(now_us)
        assert last_us == clock.read(now_us)


@given(spans, drifts)
def test_after_the_real_span_the_clock_has_moved_by_the_local_one(local_us: int, drift_ppm: int) -> None:
    clock = LocalClock(0, 0, drift_ppm)
    span_us = clock.real_span(local_us)
    assert clock.read(span_us) >= local_us
    assert span_us == 0 or clock.read(span_us - 1) <= local_us


def test_a_clock_that_is_ahead_stays_so() -> None:
    clock = LocalClock(100, ahead_us=50)
    assert (clock.read(100), clock.read(200)) == (150, 250)


@pytest.mark.parametrize(("ahead_us", "drift_ppm"), [(-1, 0), (0, DRIFT_MAX_PPM + 1)])
def test_a_clock_that_could_go_back_is_refused(ahead_us: int, drift_ppm: int) -> None:
    with pytest.raises(ValueError, match=r"clock|drift"):
        LocalClock(0, ahead_us, drift_ppm)
