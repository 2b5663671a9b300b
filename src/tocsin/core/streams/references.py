"""References to metadata in a log: what to write before a message may refer to it, and what is known.

``Writing`` is for who appends messages. Metadata that a message refers to have to be in the log for as long as the
message is. The log forgets its oldest entries, by age and by size; so metadata are written again when they are older
than a part of what the log keeps (KEPT_PART, SIZE_PART). A message's metadata are then there for all of its time but,
at most, that part: and longer, if a later message refers to the same.

``Known`` is for readers: the metadata of references, as many as fit into a bound.

Invariants: neither holds more than its bounds; what ``Writing`` calls written was appended, or seen in the log, within
those parts.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tocsin.model.said import INLINE_MAX_BYTES, encode_said, reference_of
from tocsin.model.stream import Value

KEPT_PART: Final = 64  # of the time for which messages are kept …
AGAIN_MAX_US: Final = 3_600_000_000  # … and an hour at most
SIZE_PART: Final = 64  # of the bytes that are kept
WRITTEN_MAX: Final = 20_000  # references that are remembered as written, some 200 bytes each
TOPICS_MAX: Final = 4_096  # whose references are remembered
KNOWN_MAX_BYTES: Final = 8 << 20
_OVERHEAD_BYTES: Final = 300  # of a known reference, beside its bytes

Keys = dict[str, Value]


class Writing:
    """Decides which metadata must be written to the log before a message may refer to it."""

    def __init__(self, keep_s: float | None, keep_bytes: int | None) -> None:
        kept_us = AGAIN_MAX_US if keep_s is None else round(keep_s * 1e6) // KEPT_PART
        self._again_us = min(kept_us, AGAIN_MAX_US)
        self._again_bytes = None if keep_bytes is None else keep_bytes // SIZE_PART
        # Reference → when it was written, and how much the log had taken by then; the oldest first.
        self._written: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self.taken = 0  # bytes that the log has taken while its follower looked, which counts them
        # Topic → its last metadata, with their reference and bytes. The same object means the same.
        self._of_topic: OrderedDict[str, tuple[Keys, bytes, bytes]] = OrderedDict()

    def refer(self, topic: str, keys: Keys | None) -> tuple[bytes, bytes]:
        """The reference of a topic's metadata, and their bytes; b"" if they are short, or none."""
        if not keys:
            return b"", b""
        known = self._of_topic.get(topic)
        if known is None or known[0] is not keys:
            encoded = encode_said(keys)
            if len(encoded) <= INLINE_MAX_BYTES:
                return b"", b""
            known = (keys, reference_of(encoded), encoded)
            self._of_topic[topic] = known
            self._of_topic.move_to_end(topic)
            if len(self._of_topic) > TOPICS_MAX:
                self._of_topic.popitem(last=False)
        return known[1], known[2]

    def is_due(self, reference: bytes, now_us: int) -> bool:
        """Whether it has to be written before a message may refer to it."""
        at = self._written.get(reference)
        if at is None or now_us - at[0] > self._again_us:
            return True
        return self._again_bytes is not None and self.taken - at[1] > self._again_bytes

    def wrote(self, reference: bytes, now_us: int) -> None:
        """It was appended, or seen in the log."""
        self._written[reference] = (now_us, self.taken)
        self._written.move_to_end(reference)
        if len(self._written) > WRITTEN_MAX:
            self._written.popitem(last=False)

    def failed(self, reference: bytes) -> None:
        """It could not be appended."""
        self._written.pop(reference, None)


class Known:
    """Resolves references to metadata that were read from the log."""

    def __init__(self, max_bytes: int = KNOWN_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._keys: OrderedDict[bytes, tuple[Keys, int]] = OrderedDict()  # the least used first
        self.size = 0

    def get(self, reference: bytes) -> Keys | None:
        found = self._keys.get(reference)
        if found is None:
            return None
        self._keys.move_to_end(reference)
        return found[0]

    def learn(self, reference: bytes, keys: Keys, size: int) -> None:
        """``size``: of their bytes. The least used entry goes when there is no room."""
        if reference in self._keys:
            self._keys.move_to_end(reference)
            return
        size += _OVERHEAD_BYTES
        self._keys[reference] = (keys, size)
        self.size += size
        while self.size > self._max_bytes:
            _, (_, gone) = self._keys.popitem(last=False)
            self.size -= gone
