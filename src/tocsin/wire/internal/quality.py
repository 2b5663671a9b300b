"""What brokers tell each other of quality of service: that a stream and a subscription do not match."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.model.versions import Packed


class Unmatched(msgspec.Struct, frozen=True, array_like=True):
    """Broker → all: somebody here would have a stream's messages, if it offered as much as is requested."""

    topic: str
    policy: str
    offered: str
    requested: str
    peer: str  # the subscriber


UNMATCHED: Final = Packed("a word of what does not match", msgspec.msgpack.Decoder(Unmatched), spoken=True)


def unmatched_subject(network: str) -> str:
    """Where all brokers hear it."""
    return f"{network}.quality.unmatched"


def encode_unmatched(word: Unmatched) -> bytes:
    return UNMATCHED.write(word)


def decode_unmatched(data: bytes) -> Unmatched:
    """The word, or ``Malformed`` for whatever is none."""
    return UNMATCHED.read(data)
