"""Reads a request to the HTTP endpoint as records and their ids; pure.

A body is a JSON object, a JSON array of objects, or JSON lines (an object a line); which, is seen by looking. A body
with anything else in it is refused as a whole, so that its sender learns at once.

The ids of records follow from the sender, the idempotency key and the body: a repeat of the same request is the same
records, which the log takes once. Without a key each request is new.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from tocsin.errors import TocsinError
from tocsin.feeds.packing import Pack, is_object, pack
from tocsin.model.feeding import RECORD_MAX_BYTES
from tocsin.ports import BATCH_MAX

KEY_MAX_BYTES: Final = 255
ID_BYTES: Final = 16
SENDER_BYTES: Final = 8  # ``feeds.http.keys`` tells them apart in requests' names
_SHOWN: Final = 60

_array = msgspec.json.Decoder(list[msgspec.Raw])


class BodyInvalid(TocsinError):
    """A body that is not records."""

    fault = "peer"


def read_records(body: bytes) -> list[bytes]:
    """The records of a body; ``BodyInvalid`` says which of them is none."""
    text = body.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        raise BodyInvalid(
            "the body is empty; send a JSON object, an array of objects, or JSON lines, an object a line"
        )
    if text[:1] == b"[":
        try:
            found = [bytes(each) for each in _array.decode(text)]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BodyInvalid(f"the body begins like a JSON array, but is not valid JSON: {error}") from None
        what = "element"
    elif is_object(text):
        found, what = [text], "element"
    else:
        found, what = [each.strip() for each in text.split(b"\n") if each.strip()], "line"
    for number, record in enumerate(found, 1):
        if len(record) > RECORD_MAX_BYTES:
            raise BodyInvalid(f"{what} {number} has {len(record)} bytes; at most {RECORD_MAX_BYTES}")
        if not is_object(record):
            shown = record[:_SHOWN].decode(errors="backslashreplace")
            raise BodyInvalid(f"{what} {number} is no JSON object: {shown}")
    if not found:
        raise BodyInvalid("the array is empty; send at least one record")
    return found


def packed(records: list[bytes]) -> list[Pack]:
    """The entries of a request; ``BodyInvalid`` if one append cannot have them all."""
    packs = pack(records)
    if len(packs) > BATCH_MAX:
        raise BodyInvalid(f"the body has {len(records)} records, which is too many at once; send it in parts")
    return packs


def sender_id(user: str) -> str:
    """A sender, as ``request_id`` begins with it: its proven name, or empty for all without one."""
    return blake2b(user.encode(), digest_size=SENDER_BYTES).hexdigest()


def request_id(user: str, key: bytes, body: bytes) -> str:
    """The prefix of the ids of a request's records, but for the sender's id."""
    found = blake2b(digest_size=ID_BYTES)
    for part in (user.encode(), key, body):
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()
