"""A stream's metadata by reference: the metadata as bytes, and the hash that stands for them.

A message above QoS 0 needs the metadata that its stream had when it was published. They are the same for many messages,
and may be larger than the message. So they are a record of their own in the message log, and messages name its hash.
A hash means the same metadata for ever: a reader that has resolved it once need not ask again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from tocsin.model.stream import Value
from tocsin.model.versions import Packed

REFERENCE_BYTES: Final = 16  # nobody finds two metadata with one hash
INLINE_MAX_BYTES: Final = 64  # what is shorter is in the message itself: a reference would save nothing

# The same metadata are the same bytes, from any publisher.
SAID: Final = Packed("metadata of a stream", msgspec.msgpack.Decoder(dict[str, Value]), ordered=True)


def encode_said(keys: dict[str, Value]) -> bytes:
    return SAID.write(keys)


def decode_said(data: bytes) -> dict[str, Value]:
    """Decode metadata; anything else raises ``Malformed``."""
    return SAID.read(data)


def reference_of(encoded: bytes) -> bytes:
    return blake2b(encoded, digest_size=REFERENCE_BYTES).digest()
