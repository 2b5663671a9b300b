"""Streams: the metadata of a topic, in keys and values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

Value = str | int | float | bool
Metadata = Mapping[str, Value]
Diff = Mapping[str, Value | None]  # what changes; None takes a key away

SYSTEM_KEYS: Final = ("topic", "client", "broker", "cluster")  # ours to set, of the latest publisher
PERMANENT: Final = "$permanent"  # true: the stream stays when nobody publishes on it
# Before a query's id: only the set of its streams is asked for, and none of their messages.
LISTING: Final = "~"
# Before a topic filter: the question whether anybody wants its topics, which is asked as queries are.
DEMAND: Final = "?"
KEYS_MAX: Final = 64  # in one change
KEY_MAX_BYTES: Final = 256
TEXT_MAX_BYTES: Final = 1_024
WHOLE_MAX: Final = 1 << 53  # beyond, a double and an integer are no longer the same number
_KEY_OVERHEAD_BYTES: Final = 4  # the lengths of a key and its value where they are stored
_NUMBER_BYTES: Final = 8


def size_of(said: Diff) -> int:
    """The size of metadata, or of a change of them: keys and texts in bytes of UTF-8, eight for any other value, and
    four for each key. All replicas of the coordinator judge by it, so that it may never count otherwise.
    """
    size = _KEY_OVERHEAD_BYTES * len(said)
    for key, value in said.items():
        size += len(key) if key.isascii() else len(key.encode())
        if type(value) is not str:
            size += _NUMBER_BYTES
        else:
            size += len(value) if value.isascii() else len(value.encode())
    return size


def size_problem(size: int, most: int) -> str:
    """Why metadata are too large, as text for their sender."""
    return f"the metadata of one stream would be {size} bytes; at most {most} are kept"


def diff_problem(diff: Diff) -> str | None:
    """The problem of a change of metadata, as text for its sender; None if there is none."""
    if len(diff) > KEYS_MAX:
        return f"{len(diff)} keys in one change are over {KEYS_MAX}"
    for key, value in diff.items():
        if not key or len(key.encode()) > KEY_MAX_BYTES:
            return f"a key has 1 to {KEY_MAX_BYTES} bytes, not {len(key.encode())}"
        if key in SYSTEM_KEYS:
            return f"the key {key!r} is set by the system"
        if key == PERMANENT and not (value is None or isinstance(value, bool)):
            return f"{PERMANENT} is true or false"
        if isinstance(value, str) and len(value.encode()) > TEXT_MAX_BYTES:
            return f"the value of {key!r} is longer than {TEXT_MAX_BYTES} bytes"
        if isinstance(value, float) and not math.isfinite(value):
            return f"the value of {key!r} is not a finite number"
        if isinstance(value, int) and abs(value) > WHOLE_MAX:
            return f"the value of {key!r} is beyond 2^53"
    return None
