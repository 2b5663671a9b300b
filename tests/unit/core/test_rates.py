"""Token buckets against their plain definition, in fractions."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.rates import Bucket, Buckets

STEPS = st.lists(st.tuples(st.integers(-1_000, 5_000_000), st.integers(1, 5)), max_size=40)


class Model:
    """Tokens as a fraction."""

    def __init__(self, rate: int, burst: int) -> None:
        self.rate, self.burst, self.tokens, self.seen_us = rate, burst, Fraction(burst), 0

    def refill(self, now_us: int) -> None:
        if now_us > self.seen_us:
            gained = Fraction((now_us - self.seen_us) * self.rate, 1_000_000)
            self.tokens = min(Fraction(self.burst), self.tokens + gained)
            self.seen_us = now_us


@given(rate=st.integers(1, 5_000), burst=st.integers(1, 50), steps=STEPS)
def test_what_is_granted_is_what_the_model_grants(
    rate: int, burst: int, steps: list[tuple[int, int]]
) -> None:
    bucket, model, now_us = Bucket(rate, burst, 0), Model(rate, burst), 0
    for passed_us, n in steps:
        now_us += passed_us
        model.refill(now_us)
        granted = model.tokens >= n
        assert bucket.try_take(now_us, n) == granted
        model.tokens -= n if granted else 0


@given(rate=st.integers(1, 5_000), burst=st.integers(1, 50), steps=STEPS)
def test_the_wait_is_the_shortest_after_which_the_debt_is_paid(
    rate: int, burst: int, steps: list[tuple[int, int]]
) -> None:
    bucket, model, now_us = Bucket(rate, burst, 0), Model(rate, burst), 0
    for passed_us, n in steps:
        now_us += passed_us
        model.refill(now_us)
        model.tokens -= n
        wait_us = bucket.take(now_us, n)
        gain = Fraction(model.rate, 1_000_000)
        assert wait_us >= 0 and model.tokens + wait_us * gain >= 0
        assert wait_us == 0 or model.tokens + (wait_us - 1) * gain < 0


@given(
    rate=st.integers(1, 1_000),
    burst=st.integers(1, 20),
    waits=st.lists(st.integers(0, 100_000), max_size=200),
)
def test_no_stretch_of_time_sees_more_than_the_burst_and_the_rate(
    rate: int, burst: int, waits: list[int]
) -> None:
    bucket, now_us, granted = Bucket(rate, burst, 0), 0, 0
    for wait_us in waits:
        now_us += wait_us
        granted += bucket.try_take(now_us)
        assert granted <= burst + Fraction(rate * now_us, 1_000_000)


def test_a_publisher_that_waits_as_told_keeps_exactly_its_rate() -> None:
    bucket, now_us = Bucket(10, 5, 0), 0
    for _ in range(105):
        now_us += bucket.take(now_us)
    assert now_us == 10_000_000  # 5 at once, then 100 at 10 a second


def test_keys_do_not_share_and_the_table_is_bounded() -> None:
    buckets: Buckets[str] = Buckets(rate=1, burst=1, keys_max=2)
    assert buckets.try_take("a", 0) and not buckets.try_take("a", 0)
    assert buckets.try_take("b", 0)
    assert not buckets.try_take("a", 0)  # seen later than b
    assert buckets.try_take("c", 0)  # b is forgotten
    assert len(buckets) == 2
    assert not buckets.try_take("a", 0)
    assert buckets.try_take("b", 0)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2_000_000)), max_size=60),
    st.integers(1, 10),
)
def test_a_table_with_room_for_all_is_a_bucket_each(events: list[tuple[int, int]], rate: int) -> None:
    buckets: Buckets[int] = Buckets(rate=rate, burst=3, keys_max=10)
    alone: dict[int, Bucket] = {}
    now_us = 0
    for key, passed_us in events:
        now_us += passed_us
        bucket = alone.setdefault(key, Bucket(rate, 3, now_us))
        assert buckets.try_take(key, now_us) == bucket.try_take(now_us)
