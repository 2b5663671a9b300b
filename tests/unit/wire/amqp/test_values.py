"""AMQP values: what is written is read again, and nothing that arrives does harm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Malformed
from tocsin.wire.amqp.values import (
    DEPTH_MAX,
    Decimal,
    Described,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    Uuid,
    read,
    write,
)

NAMES = st.text(st.characters(max_codepoint=127))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 255).map(Ubyte),
    st.integers(0, 65_535).map(Ushort),
    st.integers(0, (1 << 32) - 1).map(Uint),
    st.integers(0, (1 << 64) - 1).map(Ulong),
    st.integers(-(1 << 63), (1 << 63) - 1).map(Timestamp),
    st.floats(allow_nan=False),
    st.binary(max_size=400),
    TEXTS,
    NAMES.map(Symbol),
    st.binary(min_size=16, max_size=16).map(Uuid),
    st.binary(min_size=8, max_size=8).map(Decimal),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | KEYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=40),
        st.dictionaries(KEYS, inner, max_size=20),
        st.builds(Described, st.integers(0, 300).map(Ulong) | NAMES.map(Symbol), inner),
    ),
    max_leaves=30,
)


def typed(value: Any) -> Any:
    """With the types of everything inside, which equality overlooks."""
    if isinstance(value, list):
        return [typed(each) for each in value]
    if isinstance(value, dict):
        return [(typed(key), typed(each)) for key, each in value.items()]
    if isinstance(value, Described):
        return (typed(value.descriptor), typed(value.value))
    return (type(value), value)


@given(VALUES)
def test_a_value_that_is_written_is_read_again(value: Any) -> None:
    data = write(value)
    found, end = read(data)
    assert end == len(data)
    assert typed(found) == typed(value)


@given(VALUES, st.data())
def test_a_value_that_is_cut_off_is_malformed(value: Any, data: st.DataObject) -> None:
    whole = write(value)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(Malformed):
        read(part)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    try:
        _, end = read(data)
    except Malformed:
        return
    assert 0 < end <= len(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("40", None),
        ("41", True),
        ("5601", True),
        ("43", Uint(0)),
        ("52ff", Uint(255)),
        ("5380", Ulong(128)),
        ("54ff", -1),
        ("71fffffffe", -2),
        ("72c1480000", -12.5),
        ("7300000041", "A"),
        ("45", []),
        ("a103616263", "abc"),
        ("a303616263", Symbol("abc")),
    ],
)
def test_examples_of_the_standard_are_read(data: str, value: Any) -> None:
    assert typed(read(bytes.fromhex(data))[0]) == typed(value)


def test_the_elements_of_an_array_share_a_constructor() -> None:
    names = bytes.fromhex("e00602a301610162")
    assert read(names)[0] == [Symbol("a"), Symbol("b")]
    described = bytes.fromhex("e00602005301500708")
    with pytest.raises(Malformed):  # it says six bytes, and has seven
        read(described)
    described = bytes.fromhex("e00702005301500708")
    assert read(described)[0] == [Described(1, 7), Described(1, 8)]


def test_values_that_nest_too_deep_are_refused() -> None:
    nested: list[Any] = []
    for _ in range(DEPTH_MAX + 1):
        nested = [nested]
    with pytest.raises(Malformed, match="nested"):
        read(write(nested))
    with pytest.raises(Malformed, match="nested"):
        read(b"\x00" * 5_000)


def test_a_small_message_cannot_ask_for_a_large_list() -> None:
    # An array of 4 294 967 295 nulls, which take no bytes.
    with pytest.raises(Malformed, match="at most"):
        read(bytes.fromhex("f000000005ffffffff40"))


@pytest.mark.parametrize("data", ["c103014040", "5602", "a102ffff", "a302ffff", "3f", ""])
def test_what_is_no_value_is_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        read(bytes.fromhex(data))


def test_a_map_with_a_list_as_a_key_is_malformed() -> None:
    with pytest.raises(Malformed, match="key"):
        read(bytes.fromhex("c103024540"))


def test_numbers_that_do_not_fit_and_unknown_types_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        write(Ubyte(256))
    with pytest.raises(ValueError, match="does not fit"):
        write(1 << 63)
    with pytest.raises(TypeError, match="no type"):
        write(object())
