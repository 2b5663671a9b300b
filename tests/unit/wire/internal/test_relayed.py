"""Frames that are carried come out as they went in."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket

from tocsin.errors import Malformed
from tocsin.model.versions import UNREADABLE
from tocsin.wire.internal.relayed import NAME_MAX, PATH_MAX, TOPIC, RelayHeader, header_of, pieces, wrap
from tocsin.wire.mqtt.codec import Decoder
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.frames import publish_frame


def read(frame: bytes) -> PublishPacket:
    (packet,) = Decoder(1 << 24, version=V5).feed(frame)
    assert isinstance(packet, PublishPacket)
    return packet


def test_a_ticket_and_its_frames_come_back_as_they_were() -> None:
    header = RelayHeader("north", ("b", "c"), 3)
    packet = read(wrap(header, b"frames"))
    assert (packet.topic, packet.payload, header_of(packet)) == (TOPIC, b"frames", header)


@pytest.mark.parametrize(
    "header",
    [
        RelayHeader("n" * (NAME_MAX + 1), (), 0),
        RelayHeader("n", ("b",) * (PATH_MAX + 1), 0),
        RelayHeader("n", (), -1),
    ],
)
def test_a_ticket_beyond_the_bounds_is_refused(header: RelayHeader) -> None:
    with pytest.raises(Malformed):
        header_of(read(wrap(header, b"")))


@given(st.none() | st.binary(max_size=60))
def test_arbitrary_bytes_are_no_ticket_or_one_but_never_raise_anything_else(data: bytes | None) -> None:
    with contextlib.suppress(*UNREADABLE):
        header_of(PublishPacket(TOPIC, b"", correlation_data=data))


@given(st.lists(st.binary(max_size=400), max_size=30), st.integers(1, 1_000))
def test_pieces_are_whole_frames_in_order_and_of_minimal_length(payloads: list[bytes], most: int) -> None:
    frames = [publish_frame("a/b", payload, V5) for payload in payloads]
    found = list(pieces(b"".join(frames), most))
    assert b"".join(piece for piece, _ in found) == b"".join(frames)
    rest = list(frames)
    for piece, count in found:
        run = [rest.pop(0) for _ in range(count)]
        assert count >= 1 and piece == b"".join(run)
        assert len(piece) <= most or count == 1
        assert not rest or len(piece) + len(rest[0]) > most
    assert rest == []
