"""The storm that everybody is told of."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tocsin_demo.traces import Bounds
from tocsin_labs.reaps.prototype.failing import storm_over

SIDE = st.tuples(st.floats(-1e5, 1e5), st.floats(0, 1e5))


@given(SIDE, SIDE, st.floats(0, 1), st.floats(0, 1))
def test_a_storm_reaches_every_place_of_the_city(
    x: tuple[float, float], y: tuple[float, float], along: float, up: float
) -> None:
    bounds = Bounds(0, 10, x[0], x[0] + x[1], y[0], y[0] + y[1])
    storm = storm_over(bounds)
    place = x[0] + along * x[1], y[0] + up * y[1]
    assert math.dist(place, (storm.x_m, storm.y_m)) < storm.radius_m
    assert storm.kind == "storm"
