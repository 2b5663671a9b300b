"""AMQP messages, section by section."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Malformed
from tocsin.wire.amqp import values
from tocsin.wire.amqp.message import AmqpMessage, Body, read_message, write_message
from tocsin.wire.amqp.values import Described, Symbol, Ulong, Uuid

TEXTS = st.text("abcä€", max_size=10)
IDS = st.none() | TEXTS | st.binary(max_size=9) | st.integers(0, 99).map(Ulong) | st.just(Uuid(b"u" * 16))
MESSAGES = st.builds(
    AmqpMessage,
    body=st.binary(max_size=400),
    durable=st.booleans(),
    priority=st.none() | st.integers(0, 255),
    ttl_ms=st.none() | st.integers(0, (1 << 32) - 1),
    delivery_count=st.integers(0, 9),
    message_id=IDS,
    subject=st.none() | TEXTS,
    reply_to=st.none() | TEXTS,
    correlation_id=IDS,
    content_type=st.none() | st.text("abc/"),
    group_id=st.none() | TEXTS,
    application=st.dictionaries(TEXTS, TEXTS | st.integers(-9, 999) | st.booleans(), max_size=5),
)


@given(MESSAGES)
def test_a_message_that_is_written_is_read_again(message: AmqpMessage) -> None:
    assert read_message(write_message(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        read_message(data)


def section(code: int, value: Any) -> bytes:
    return values.write(Described(Ulong(code), value))


def test_parts_of_data_are_one_body() -> None:
    message = read_message(section(0x75, b"one ") + section(0x75, b"two"))
    assert (message.kind, message.body) == (Body.DATA, b"one two")


def test_values_and_sequences_are_told_apart() -> None:
    assert read_message(section(0x77, "text")) == AmqpMessage(kind=Body.VALUE, body="text")
    assert read_message(section(0x76, [1, 2])) == AmqpMessage(kind=Body.SEQUENCE, body=[[1, 2]])


def test_annotations_and_footers_are_left_out() -> None:
    noise = section(0x71, {Symbol("x-a"): 1}), section(0x72, {Symbol("x-b"): 2}), section(0x78, {})
    assert read_message(noise[0] + noise[1] + section(0x75, b"x") + noise[2]) == AmqpMessage(body=b"x")


def test_sections_may_be_named_in_words() -> None:
    assert read_message(values.write(Described(Symbol("amqp:data:binary"), b"x"))) == AmqpMessage(body=b"x")


@pytest.mark.parametrize(
    "data",
    [
        values.write("no section"),
        section(0x79, []),
        section(0x70, "text"),
        section(0x70, ["not a boolean"]),
        section(0x73, [1.5]),
        section(0x74, {1: "x"}),
        section(0x75, "text"),
        section(0x75, b"x") + section(0x77, "y"),
        section(0x77, "x") + section(0x77, "y"),
    ],
)
def test_what_is_no_message_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_message(data)
