"""Frames that a relay carries for another broker, because that broker's link to a third is cut.

They are the payload of a PUBLISH to ``TOPIC``, which no client may publish to; its correlation data is the **header**:
the brokers that are still to pass it on, in order, the last of them being its destination; and the cluster that the
frames come from, which decides where a routing broker does not send them. The path only grows shorter, and it is looked
into only where it ends: frames that are carried never go in circles, and never to two brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from mqtt5 import PublishPacket
from msgspec import Meta

from tocsin.model.versions import Packed
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.fields import read_varint
from tocsin.wire.mqtt.topics import CARRIED_TOPIC

TOPIC: Final = CARRIED_TOPIC
PATH_MAX: Final = 8  # brokers on a path; planners use three at most
NAME_MAX: Final = 300  # characters
PIECE_MAX_BYTES: Final = 64 << 10  # of frames in one packet, unless one frame alone is longer

Name = Annotated[str, Meta(max_length=NAME_MAX)]


class RelayHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The header of one packet."""

    cluster: Name  # of the broker at which the messages were published
    path: Annotated[tuple[Name, ...], Meta(max_length=PATH_MAX)]  # empty: the reader is the last
    messages: Annotated[int, Meta(ge=0, le=1 << 32)]


HEADER: Final = Packed("a header of carried frames", msgspec.msgpack.Decoder(RelayHeader), spoken=True)


def wrap(header: RelayHeader, frames: bytes) -> bytes:
    """The frame of a packet that carries these."""
    return encode(PublishPacket(TOPIC, frames, correlation_data=HEADER.write(header)), V5)


def header_of(packet: PublishPacket) -> RelayHeader:
    """The header of a packet on ``TOPIC``, or ``Malformed``."""
    return HEADER.read(packet.correlation_data or b"")


def pieces(frames: bytes, most_bytes: int = PIECE_MAX_BYTES) -> Iterator[tuple[bytes, int]]:
    """Whole frames, in order, in runs of at most so many bytes or of one frame; with how many each has."""
    start = at = count = 0
    while at < len(frames):
        length, body = read_varint(frames, at + 1, len(frames), "the remaining length")
        if count and body + length - start > most_bytes:
            yield frames[start:at], count
            start, count = at, 0
        at, count = body + length, count + 1
    if count:
        yield frames[start:at], count
