"""AMQP 1.0 frames: a header of eight bytes, a performative, and for a transfer a part of a message behind it.

A connection begins with eight bytes that name the protocol (``PLAIN_HEADER``, ``SASL_HEADER``); ``Reader`` takes them
where one is expected, and frames afterwards.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.errors import Malformed, PacketTooLarge
from tocsin.wire.amqp.performatives import Composite, decode, encode

PLAIN_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_BYTES: Final = 8
FRAME_MIN_MAX_BYTES: Final = 512  # a peer has to take frames of this size, whatever it says
AMQP, SASL = 0, 1  # types of frames


class Frame(msgspec.Struct, frozen=True):
    """A frame; one without a performative only says that its sender is alive."""

    kind: int
    channel: int
    performative: Composite | None
    payload: bytes = b""


def frame(
    performative: Composite | None, payload: bytes = b"", *, channel: int = 0, kind: int = AMQP
) -> bytes:
    body = (b"" if performative is None else encode(performative)) + payload
    return (HEADER_BYTES + len(body)).to_bytes(4) + bytes((2, kind)) + channel.to_bytes(2) + body


class Reader:
    """Cuts what arrives into protocol headers and frames; holds at most one frame that is not complete."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def header(self) -> bytes | None:
        """The protocol header that is expected next, once it is complete. ``Malformed`` if it is none."""
        begun = bytes(self._buffer[:4])
        if not b"AMQP".startswith(begun):
            raise Malformed(f"the peer does not speak AMQP: it begins with {bytes(self._buffer[:16])!r}")
        return self._take(HEADER_BYTES) if len(self._buffer) >= HEADER_BYTES else None

    def frame(self) -> Frame | None:
        """The next frame, once it is complete. Raises ``Malformed``, ``PacketTooLarge``."""
        if len(self._buffer) < HEADER_BYTES:
            return None
        size = int.from_bytes(self._buffer[:4])
        if size > self._max_bytes:
            raise PacketTooLarge(size, self._max_bytes)
        offset = 4 * self._buffer[4]
        if offset < HEADER_BYTES or size < offset:
            raise Malformed(f"a frame of {size} bytes whose body begins at byte {offset}")
        if len(self._buffer) < size:
            return None
        raw = self._take(size)
        kind, channel, body = raw[5], int.from_bytes(raw[6:8]), raw[offset:]
        if kind not in (AMQP, SASL):
            raise Malformed(f"a frame of type {kind}; there are {AMQP} and {SASL}")
        if not body:
            return Frame(kind, channel, None)
        performative, end = decode(body)
        return Frame(kind, channel, performative, body[end:])

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken
