"""Messages that wait for a link, oldest first, bounded by age and by bytes.

They wait while there is no way to the peer, and while the link is **full**: it has taken more than it could send. At
QoS 0 a message that is older than STALE_US would be of no use any more, so it is dropped; and where there is no room
the oldest go, because the newest are worth most. ``dropped`` and ``late`` count both.

A **mark** is behind everything that waits when it is set: ``passed`` says that all of that has gone, one way or the
other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from tocsin.wire.internal.relayed import pieces
from tocsin.wire.mqtt.frames import topic_of

STALE_US: Final = 5_000_000


class LinkBacklog:
    """Frames of messages in the order in which they came."""

    def __init__(self, bytes_max: int, dropped: Callable[[int], None]) -> None:
        """``dropped`` is told how many messages are not sent any more."""
        self.size = 0  # the bytes that wait
        self.late = 0  # messages that were dropped because they were too old
        self._bytes_max = bytes_max
        self._dropped = dropped
        self._queue: deque[tuple[int, bytes, int]] = deque()  # when they came, frames, messages
        self._added = 0  # entries, in all

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def oldest_us(self) -> int:
        """When the first of those that wait came; there has to be one."""
        return self._queue[0][0]

    @property
    def mark(self) -> int:
        """A mark behind everything that waits now."""
        return self._added

    def passed(self, mark: int) -> bool:
        """Whether nothing waits any more of what was before the mark."""
        return self._added - len(self._queue) >= mark

    def add(self, data: bytes, messages: int, now_us: int) -> None:
        self._queue.append((now_us, data, messages))
        self._added += 1
        self.size += len(data)
        self.expire(now_us)
        while self.size > self._bytes_max:
            self._dropped(self._pop()[2])

    def expire(self, now_us: int) -> None:
        """Drop what is too old."""
        while self._queue and self._queue[0][0] < now_us - STALE_US:
            messages = self._pop()[2]
            self.late += messages
            self._dropped(messages)

    def take(self, now_us: int) -> Iterator[tuple[bytes, int]]:
        """What waits and is not too old, one after the other, for as long as the caller goes on."""
        while True:
            self.expire(now_us)
            if not self._queue:
                return
            _, data, messages = self._pop()
            yield data, messages

    def take_each(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """The messages on topics that are wanted, with their frames; the others go on waiting, in their order."""
        queue, self._queue, self.size = self._queue, deque(), 0
        for at_us, data, messages in queue:
            kept, left = [], 0
            for frame, _ in pieces(data, 1):
                topic = topic_of(frame).decode()
                if wanted(topic):
                    left += 1
                    yield topic, frame
                else:
                    kept.append(frame)
            if kept:
                self._queue.append((at_us, b"".join(kept), messages - left))
                self.size += sum(map(len, kept))

    def _pop(self) -> tuple[int, bytes, int]:
        entry = self._queue.popleft()
        self.size -= len(entry[1])
        return entry
