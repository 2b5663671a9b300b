"""What is stored of a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.stored_session import FOREVER_S
from tocsin.core.shared.stored_group import (
    KEEP_US,
    LONG_S,
    Claim,
    Member,
    StoredGroup,
    decode_group,
    encode_group,
    group_key,
    incarnation_key,
    ttl_us,
)
from tocsin.model.versions import UNREADABLE
from tocsin.store.rules import check_key, ttl_seconds

numbers = st.integers(0, 1 << 62)
members = st.builds(Member, st.text(), numbers, st.text(), numbers, numbers, st.booleans())
claims = st.builds(Claim, numbers, st.integers(0, 65_535), st.integers(0, 2))
groups = st.builds(
    StoredGroup,
    st.text(),
    numbers,
    st.dictionaries(st.text(), members),
    st.dictionaries(st.text(), st.lists(claims).map(tuple)),
    st.dictionaries(numbers, st.lists(st.text()).map(tuple)),
    numbers,
)


@given(groups)
def test_what_is_stored_is_read_again(group: StoredGroup) -> None:
    assert decode_group(encode_group(group)) == group


@given(st.binary())
def test_whatever_is_no_group_is_malformed(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        decode_group(data)


@given(st.text(min_size=1))
def test_every_name_has_a_key_that_the_store_takes(name: str) -> None:
    check_key("test", group_key(f"$share/{name}/a"))


def test_a_brokers_next_life_is_in_the_place_of_its_last() -> None:
    assert incarnation_key("north-1.a") == incarnation_key("north-1.b") != incarnation_key("north-2.a")
    check_key("test", incarnation_key("north-1.a"))


def test_lives_are_those_of_members_that_take_messages_in_one_order() -> None:
    there = {
        "c": Member("s", 1, "z.1", 0),
        "d": Member("s", 1, "a.1", 0),
        "away": Member("s", 1, "", 10, 99),
        "leaves": Member("s", 1, "b.1", 0, leaving=True),
    }
    assert StoredGroup("n", 1, there).incarnations() == ["a.1", "z.1"]


def test_two_thirds_of_a_cells_ttl_outlast_every_members_session() -> None:
    for expiry_s in (0, 1, 59, 86_400, LONG_S):
        kept_us = ttl_us(
            StoredGroup("n", 1, {"c": Member("s", 1, "a.1", expiry_s), "d": Member("t", 1, "a.1", 0)})
        )
        assert kept_us is not None
        assert ttl_seconds("test", kept_us / 1e6) == kept_us // 1_000_000, "as the store takes it"
        assert kept_us - kept_us // 3 >= expiry_s * 1_000_000 + KEEP_US // 2
    for expiry_s in (LONG_S + 1, FOREVER_S):
        assert ttl_us(StoredGroup("n", 1, {"c": Member("s", 1, "a.1", expiry_s)})) is None


def test_a_group_that_is_made_has_not_begun() -> None:
    assert not StoredGroup("n", 0).begun
    assert StoredGroup("n", 1, first=1).begun
