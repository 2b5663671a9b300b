"""Control messages survive the wire, and nothing else is taken for one."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Malformed
from tocsin.model.message import Message
from tocsin.model.network import BrokerInfo, Role, Route, RoutesVersion, Scope
from tocsin.wire.control import (
    Heartbeat,
    Interests,
    Leave,
    Resync,
    Routes,
    decode_envelope,
    encode_envelope,
)

INFO = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", 1883)
MESSAGES = [
    Heartbeat("north-1", 7, 3, RoutesVersion(9, 2)),
    Interests(INFO, 7, 0, 1, ("a/#", "b/+"), ("c",), part=1, parts=2),
    Leave("north-1", 7),
    Resync(9),
    Routes(1, RoutesVersion(9, 2), (INFO,), (Route(Scope.TRANSIT, "north-1", "a/#"),)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was_sent(message: Message) -> None:
    envelope = decode_envelope(encode_envelope("broker/north-1", "cause-1", message))
    assert (envelope.sender, envelope.cause, envelope.message) == ("broker/north-1", "cause-1", message)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_decoded_but_never_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode_envelope(data)


@pytest.mark.parametrize(
    "value",
    [None, [], ["a"], ["a", "b", {"type": "Unknown"}], ["a", "b", {"type": "Resync"}], [1, 2, 3], "x" * 10],
)
def test_other_values_are_refused_in_words(value: object) -> None:
    with pytest.raises(Malformed, match="not a control message"):
        decode_envelope(msgspec.msgpack.encode(value))


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(Malformed):
        decode_envelope(b"\xdc\x00\x03\xa1\x80")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(Malformed):
        decode_envelope(b"\x91" * 100_000)


def test_a_heartbeat_is_a_few_dozen_bytes() -> None:
    beat = Heartbeat("north-1", (1 << 48) - 1, 1_000, RoutesVersion((1 << 48) - 1, 1_000))
    assert len(encode_envelope("broker/north-1", "broker/north-1:start", beat)) < 150
