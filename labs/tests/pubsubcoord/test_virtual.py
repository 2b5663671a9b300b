"""The cost model, and the paper's network in virtual time."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin_labs.pubsubcoord.costs import Costs, Line
from tocsin_labs.pubsubcoord.crowd import Window
from tocsin_labs.pubsubcoord.hubs import helped
from tocsin_labs.pubsubcoord.quota import LEAST_US, slice_of
from tocsin_labs.pubsubcoord.virtual import Layout, Queue, Size, run

COSTS = Costs(
    source_line=Line(20e-6, 0.0, 1.0), hub_line=Line(10e-6, 0.0, 1.0), target_line=Line(15e-6, 0.0, 1.0),
    source_s=20e-6, hub_s=10e-6, target_s=15e-6, out_s=5e-6, reader_s=4e-6,
)  # fmt: skip
SMALL = Size(
    sources=2,
    targets=6,
    hubs=3,
    topics=60,
    networks=2,
    period_s=0.05,
    lan_lag_s=0.010,
    wan_lag_s=0.040,
    lasts_s=0.5,
)


def test_a_line_through_points_on_it_is_that_line() -> None:
    line = Line.of([(x, 2.0 * x + 1.0) for x in (1.0, 2.0, 5.0)])
    assert (line.slope, line.start, line.r2) == pytest.approx((2.0, 1.0, 1.0))
    assert Line.of([(1.0, 0.0), (2.0, 5.0), (3.0, 0.0)]).r2 == pytest.approx(0.0)
    assert Line.of([]) == Line(0.0, 0.0, 0.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), max_size=40))
def test_a_queue_is_that_of_one_clerk(messages: list[tuple[float, float]]) -> None:
    queue, free = Queue(), 0.0
    for comes_s, work_s in sorted(messages):
        begins = comes_s if comes_s > free else free
        free = begins + work_s
        assert queue.done_s(comes_s, work_s) == free
    assert queue.busy_s == pytest.approx(sum(work for _, work in messages))


def test_every_topic_goes_over_one_hub_to_all_who_want_it() -> None:
    layout = Layout(SMALL)
    for topic in layout.topics:
        (hub,) = layout.over(topic)
        assert len(set(layout.onward(hub, topic))) == SMALL.networks
    wanted = [each for topic in layout.topics for each in layout.onward(layout.over(topic)[0], topic)]
    assert len({each for each in wanted}) == SMALL.targets


def test_a_network_with_little_to_do_has_the_delays_and_the_work() -> None:
    found = run(SMALL, COSTS, seed=1)
    work_ms = 1e3 * (COSTS.source_s + COSTS.hub_work_s(2) + COSTS.target_work_s(1))
    assert found.all_ms.p50 == pytest.approx(found.floor_ms + work_ms, abs=0.1)
    assert found.in_s == pytest.approx(1_200) and found.out_s == pytest.approx(2_400)
    assert found.hub_share * SMALL.hubs == pytest.approx(1_200 * COSTS.hub_work_s(2), rel=0.01)
    assert 1.0 <= found.uneven < 1.3 and not found.is_saturated


def test_a_hub_with_too_much_to_do_is_saturated() -> None:
    slow = msgspec.structs.replace(COSTS, hub_s=2e-3, out_s=1e-3)
    found = run(SMALL, slow, seed=1)
    assert found.is_saturated and found.all_ms.longest > 2 * found.floor_ms


def test_the_same_seed_has_the_same_course() -> None:
    assert run(SMALL, COSTS, seed=3) == run(SMALL, COSTS, seed=3)


def test_hubs_have_helped_when_latency_stays_near_what_it_was() -> None:
    p99s = (900, 500, 300, 110, 110, 400, 110, 110, 110, 110)
    windows = [Window(at / 2, 10, 100.0, p99) for at, p99 in enumerate(p99s)]
    assert helped(windows, 120.0) == 1.0
    assert helped(windows[:5], 120.0) is None
    assert helped([], 120.0) is None


@pytest.mark.parametrize("share", [0.001, 0.01, 0.025, 0.1, 0.5, 1.0])
def test_a_quota_is_that_share_of_its_period(share: float) -> None:
    quota_us, period_us = slice_of(share)
    assert quota_us >= LEAST_US and period_us <= 1_000_000
    assert quota_us / period_us == pytest.approx(share, rel=0.01)
