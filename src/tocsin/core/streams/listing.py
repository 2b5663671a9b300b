"""One subscription to ``$streams/<predicate>``: the set of streams first, then each change of it.

It is told only of streams that it may receive; the others are **withheld**. That a stream joined or changed is told at
once; that it left, when the subscriber has got the messages that came before: while it is behind in the log it is
**owed** that. A stream that joins again before it was told to have left has only changed, for this subscriber. So it
sees joined and left take turns, and every message of a stream between the two.

Owed is no more than what it was told of, so that a slow subscriber costs no more than the set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from tocsin.model.stream import Metadata
from tocsin.model.stream_news import NEWS

PART_BYTES: Final = 64 << 10  # bytes of streams in one message, before the stream that exceeds it

ListingEvent = Literal["joined", "changed", "left"]
Turn = tuple[ListingEvent, str, Metadata]

_encoder = msgspec.json.Encoder()


class Listing:
    """One subscriber's view of one set."""

    __slots__ = ("_owed", "_withheld", "begun")

    def __init__(self) -> None:
        self.begun = False  # it was told the set
        self._withheld: set[str] = set()
        self._owed: dict[str, Metadata] = {}

    def begin(self, streams: Mapping[str, Metadata], may: Callable[[str], bool]) -> dict[str, Metadata]:
        """The whole set to send, for the first time or again."""
        self.begun = True
        self._owed.clear()
        self._withheld = {topic for topic in streams if not may(topic)}
        return {topic: said for topic, said in streams.items() if topic not in self._withheld}

    def joined(self, topic: str, may: bool) -> ListingEvent | None:
        """The message about a stream that joined; None: no message."""
        if not may:
            self._withheld.add(topic)
            return None
        return "joined" if self._owed.pop(topic, None) is None else "changed"

    def changed(self, topic: str) -> bool:
        """Whether to say that a stream changed."""
        return topic not in self._withheld

    def left(self, topic: str, metadata: Metadata, *, behind: bool) -> bool:
        """Whether to say now that a stream left."""
        if topic in self._withheld:
            self._withheld.remove(topic)
            return False
        if behind:
            self._owed[topic] = metadata
        return not behind

    def caught_up(self) -> list[Turn]:
        """It has got all messages that there are: what it is owed."""
        owed, self._owed = self._owed, {}
        return [("left", topic, metadata) for topic, metadata in owed.items()]

    def permit(self, streams: Mapping[str, Metadata], may: Callable[[str], bool]) -> list[Turn]:
        """The client's rights have changed: the changes of the set that follow."""
        turns: list[Turn] = []
        for topic in [each for each in self._owed if not may(each)]:
            turns.append(("left", topic, self._owed.pop(topic)))
        for topic, metadata in streams.items():
            if may(topic) and topic in self._withheld:
                self._withheld.remove(topic)
                turns.append(("joined", topic, metadata))
            elif not may(topic) and topic not in self._withheld:
                self._withheld.add(topic)
                turns.append(("left", topic, metadata))
        return turns


# The version comes last: there are clients that take the first field for the word.
_END: Final = b',"v":%d}' % NEWS.newest


def encode_turn(word: ListingEvent, topic: str, metadata: Metadata) -> bytes:
    return _encoder.encode({word: {"topic": topic, "metadata": metadata}})[:-1] + _END


def encode_set(streams: Mapping[str, Metadata]) -> list[bytes]:
    """The set as one message, or as several: all but the last say that there is more."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for topic, metadata in streams.items():
        each = _encoder.encode({"topic": topic, "metadata": metadata})
        if size > PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += len(each)
    *others, last = [b'{"streams":[' + b",".join(part) + b"]" for part in parts]
    return [*(part + b',"more":true' + _END for part in others), last + _END]
