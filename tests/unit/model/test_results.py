"""Backend subscriptions, notices and places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Malformed
from tocsin.model.results import (
    ORDINALS,
    BackendSubscription,
    Execution,
    Notice,
    ResultFile,
    decode_notice,
    decode_subscription,
    encode_notice,
    encode_subscription,
    k_of,
    notice_position,
    result_position,
)

values = st.lists(
    st.text(max_size=8) | st.integers(-(1 << 63), (1 << 63) - 1) | st.booleans() | st.floats(allow_nan=False),
    max_size=4,
).map(tuple)


@given(values, values)
def test_two_subscriptions_are_one_exactly_if_channel_and_values_are_the_same(
    one: tuple[str | int | float | bool, ...], other: tuple[str | int | float | bool, ...]
) -> None:
    same = [(type(each), each) for each in one] == [(type(each), each) for each in other]
    if same:
        assert k_of("Quakes", one) == k_of("quakes", other)
    elif [repr(each) for each in one] != [repr(each) for each in other]:
        assert k_of("Quakes", one) != k_of("Quakes", other)


def test_a_value_is_not_mistaken_for_two() -> None:
    assert k_of("near", ("a", "b")) != k_of("near", ('a","b',))
    assert k_of("near", ("1",)) != k_of("near", (1,))


@given(values)
def test_a_subscription_is_what_was_written(given_values: tuple[str | int | float | bool, ...]) -> None:
    subscription = BackendSubscription("Near", given_values, "edge-1")
    assert decode_subscription(encode_subscription(subscription)) == subscription


def test_a_notice_round_trips_and_its_id_follows_from_its_tick() -> None:
    notice = Notice(
        7, 123, (Execution("Near", 3, 2),), (ResultFile("edge-1", "broker=edge-1/7.parquet", 2),), 5, 2
    )
    assert decode_notice(encode_notice(notice)) == notice
    assert notice.id == "tick-7-5"


@pytest.mark.parametrize("garbage", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa1x\xc0"])
def test_garbage_is_malformed(garbage: bytes) -> None:
    with pytest.raises(Malformed):
        decode_notice(garbage)
    with pytest.raises(Malformed):
        decode_subscription(garbage)


@given(
    st.integers(1, 1 << 40),
    st.integers(0, ORDINALS - 1),
    st.integers(1, 1 << 40),
    st.integers(0, ORDINALS - 1),
)
def test_places_are_in_the_order_of_notices_and_then_of_ordinals(a: int, i: int, b: int, j: int) -> None:
    assert (result_position(a, i) < result_position(b, j)) == ((a, i) < (b, j))
    assert notice_position(result_position(a, i)) == a
