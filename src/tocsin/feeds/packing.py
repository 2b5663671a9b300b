"""Many records in few entries of the log of feeds.

An entry is one record, or a JSON array of several. Only JSON objects go together; whatever else a source gave goes by
itself, as it is, so that the pipeline judges it alone and keeps it in quarantine. So the records that the pipeline
finds in the entries are those that were packed, in their order, but for one thing: a record that is itself an array of
JSON is what the pipeline takes for several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.model.feeding import RECORD_MAX_BYTES

ENTRY_MAX_BYTES: Final = 256 << 10  # of an array: a slice of the pipeline is bounded in entries, not in bytes
ENTRY_MAX_RECORDS: Final = 500

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Pack(msgspec.Struct, frozen=True):
    """One entry's payload, and how many of the records it has."""

    payload: bytes
    records: int


def pack(records: Sequence[bytes]) -> list[Pack]:
    """The entries for some records, always the same for the same records."""
    packs: list[Pack] = []
    held: list[bytes] = []
    size = 0

    def close() -> None:
        nonlocal size
        if held:
            payload = held[0] if len(held) == 1 else b"[" + b",".join(held) + b"]"
            packs.append(Pack(payload, len(held)))
            held.clear()
            size = 0

    for record in records:
        if not is_object(record):
            close()
            packs.append(Pack(cut(record), 1))
            continue
        if held and (size + len(record) > ENTRY_MAX_BYTES or len(held) == ENTRY_MAX_RECORDS):
            close()
        if len(record) > RECORD_MAX_BYTES:
            packs.append(Pack(cut(record), 1))
            continue
        held.append(record)
        size += len(record) + 1
    close()
    return packs


def is_object(record: bytes) -> bool:
    """Whether a record is a JSON object."""
    try:
        _object.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def cut(record: bytes) -> bytes:
    """The part of a record that the log takes: an oversized record loses its end, so that it fits no dataset but is
    seen.
    """
    return record[:RECORD_MAX_BYTES]
