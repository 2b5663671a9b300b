"""The fields that packets are made of: written and read back, and never read past their end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.errors import Malformed
from tocsin.wire.mqtt import fields

READERS: list[Callable[[bytes, int, int, str], tuple[Any, int]]] = [
    fields.read_u8,
    fields.read_u16,
    fields.read_varint,
    fields.read_binary,
    fields.read_string,
]


@settings(deadline=None)
@given(st.integers(0, fields.VARINT_MAX), st.binary(max_size=4), st.binary(max_size=4))
def test_a_variable_byte_integer_comes_back(value: int, before: bytes, after: bytes) -> None:
    written = fields.write_varint(value)
    frame = before + written + after
    assert fields.read_varint(frame, len(before), len(frame), "x") == (value, len(before) + len(written))
    assert len(written) == (1 if value < 128 else 2 if value < 16_384 else 3 if value < 2_097_152 else 4)


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=4))
def test_binary_data_comes_back(value: bytes, after: bytes) -> None:
    frame = fields.write_binary(value, "x") + after
    assert fields.read_binary(frame, 0, len(frame), "x") == (value, len(value) + 2)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_string_comes_back(value: str) -> None:
    frame = fields.write_string(value, "x")
    assert fields.read_string(frame, 0, len(frame), "x") == (value, len(frame))


@pytest.mark.parametrize("reader", READERS)
@settings(deadline=None)
@given(data=st.data())
def test_no_reader_looks_past_the_end(
    reader: Callable[[bytes, int, int, str], tuple[Any, int]], data: st.DataObject
) -> None:
    frame = data.draw(st.binary(max_size=8))
    end = data.draw(st.integers(0, len(frame)))
    at = data.draw(st.integers(0, end))
    try:
        value, following = reader(frame, at, end, "the field")
    except Malformed as error:
        assert "the field" in str(error)
    else:
        assert at < following <= end
        assert reader(frame[:end], at, end, "the field") == (value, following)


@pytest.mark.parametrize("raw", [b"\x80\x00", b"\xff\x80\x00", b"\x80\x80\x80\x80\x01", b"\x80", b""])
def test_a_bad_variable_byte_integer_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        fields.read_varint(raw, 0, len(raw), "x")


@pytest.mark.parametrize("raw", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\0b"])
def test_text_is_utf_8_without_surrogates_and_zeros(raw: bytes) -> None:
    with pytest.raises(Malformed):
        fields.text_of(raw, "x")


@pytest.mark.parametrize(
    "call",
    [
        partial(fields.write_varint, fields.VARINT_MAX + 1),
        partial(fields.write_binary, bytes(65_536), "x"),
        partial(fields.write_string, "\0", "x"),
        partial(fields.write_string, "\ud800", "x"),
        partial(fields.write_packet_id, 0),
        partial(fields.write_packet_id, None),
    ],
)
def test_what_has_no_encoding_is_a_value_error(call: Callable[[], bytes]) -> None:
    with pytest.raises(ValueError):
        call()
