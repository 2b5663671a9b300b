"""Control messages survive the wire, and nothing else is taken for one."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Malformed
from tocsin.model.message import Message
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.commands import ClientGone, Interests, Joined, Queries, Streams
from tocsin.wire.control import (
    Beat,
    Clear,
    Expected,
    Pulse,
    Refresh,
    Seen,
    Submit,
    Unknown,
    decode_envelope,
    encode_envelope,
)

INFO = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", 1883)
SAID = (
    Joined(INFO),
    Interests(("a/#", "b/+"), ("c",)),
    Queries((("id", "temp > 20"),), ("other",)),
    Streams(
        "anna", 60, (("a", {"temp": 1.5, "on": True, "room": 4, "kind": "x", "old": None}), ("b", None)), 7, 9
    ),
    ClientGone("anna", 8, 9),
)
MESSAGES = [
    Beat("north-1", 7, 3, 500),
    Submit("north-1", 7, 1, SAID),
    Seen("north-1", 7, 3),
    Refresh("north-1", 7),
    Pulse(2, 7, 3, (INFO,)),
    Unknown(2, 7),
    Expected(2, 7, 4),
    Clear(2, 7, 4),
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
    [None, [], ["a"], ["a", "b", {"type": "Nothing"}], ["a", "b", {"type": "Beat"}], [1, 2, 3], "x" * 10],
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


def test_a_beat_is_a_few_dozen_bytes() -> None:
    beat = Beat("north-1", (1 << 62) - 1, 1_000_000, 1_000)
    assert len(encode_envelope("broker/north-1", "broker/north-1:start", beat)) < 120
