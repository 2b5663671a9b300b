"""Topic aliases for one client, to save bytes: the first topics that it gets, up to its maximum."""

from __future__ import annotations

from typing import Final

from tocsin.wire.frames import aliased_frame, topic_of

# Our bound, whatever a client offers: the first topics are mostly the busiest.
ALIASES_MAX: Final = 32
PUBLISH: Final = 3  # the packet type, in the upper half of a frame's first byte


class Aliases:
    """The numbers of one connection. For frames in the order in which they are sent, and none that may be dropped."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._most = min(most, ALIASES_MAX)
        self._known: dict[bytes, int] = {}  # topic → number

    def __bool__(self) -> bool:
        """Whether the client takes any."""
        return self._most > 0

    def of(self, frame: bytes) -> bytes:
        """The frame with its topic as a number, if it is a PUBLISH and there is one, or one left, for its topic."""
        if not self._most or frame[0] >> 4 != PUBLISH:
            return frame
        topic = topic_of(frame)
        alias = self._known.get(topic)
        if alias is not None:
            return aliased_frame(frame, alias, known=True)
        if len(self._known) >= self._most:
            return frame
        alias = self._known[topic] = len(self._known) + 1
        return aliased_frame(frame, alias, known=False)


NONE: Final = Aliases(0)
