"""Frames that wait for a way: for HOLD_S at most, and so many bytes. Older messages, and those over the bound, are
dropped and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from tocsin.runtime.machines.clock import monotonic_s

HOLD_S: Final = 5.0  # older messages at QoS 0 would be stale


class Waiting:
    """A queue of them. ``dropped`` is told how many messages were lost."""

    def __init__(self, bytes_max: int, dropped: Callable[[int], None]) -> None:
        self._bytes_max = bytes_max
        self._dropped = dropped
        self._queue: deque[tuple[float, bytes, int]] = deque()  # when, frames, messages
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, data: bytes, messages: int) -> None:
        now = monotonic_s()
        self._queue.append((now, data, messages))
        self._bytes += len(data)
        while self._queue and (self._bytes > self._bytes_max or self._queue[0][0] < now - HOLD_S):
            _, stale, lost = self._queue.popleft()
            self._bytes -= len(stale)
            self._dropped(lost)

    def take(self) -> Iterator[tuple[bytes, int]]:
        """All that is not too old, which then waits no longer."""
        queue, self._queue, self._bytes = self._queue, deque(), 0
        oldest = monotonic_s() - HOLD_S
        for at, data, messages in queue:
            if at < oldest:
                self._dropped(messages)
            else:
                yield data, messages
