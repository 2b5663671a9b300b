"""The messages of replication, there and back, and whatever is none."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.network import Scheme
from tocsin.model.publication import Publication
from tocsin.model.versions import UNREADABLE
from tocsin.wire.internal.replication import (
    Applied,
    Behind,
    Bequest,
    Declined,
    Delta,
    Dismiss,
    Head,
    Option,
    Positions,
    Probe,
    Replication,
    Update,
    decode_replication,
    encode_replication,
)

STREAM = (1, 2, 3)
WILL = Bequest(Publication("t", b"\x00", 1, "c", user_properties=(("a", "b"),)), 30)
HEAD = Head(False, Scheme.WSS, 60, "uid", "user", WILL)
MESSAGES: tuple[Replication, ...] = (
    Update(
        "p",
        "remote",
        STREAM,
        7,
        (
            Delta(
                "c",
                True,
                False,
                HEAD,
                (("x", Option(True, 5, 2, True, 9)), ("y", None)),
                Positions(1, 2, 3, 4),
            ),
            Delta("d", gone=True),
        ),
        True,
    ),
    Probe("p", STREAM, 7),
    Dismiss("p", STREAM),
    Applied("n", STREAM, 7),
    Behind("n", STREAM),
    Declined("n", STREAM),
    Declined("n", STREAM, (2, 0, 0)),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_comes_out_as_it_went_in(message: Replication) -> None:
    envelope = decode_replication(encode_replication("broker/p", "why", message))
    assert (envelope.sender, envelope.cause, envelope.message) == ("broker/p", "why", message)


@given(st.binary(max_size=200))
def test_garbage_is_malformed_and_nothing_else(data: bytes) -> None:
    with pytest.raises(UNREADABLE, match="a message of replication"):
        decode_replication(data)


@given(st.data())
def test_a_damaged_message_is_malformed_or_another_one(data: st.DataObject) -> None:
    encoded = bytearray(encode_replication("broker/p", "why", data.draw(st.sampled_from(MESSAGES))))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(*UNREADABLE):
        decode_replication(bytes(encoded))
