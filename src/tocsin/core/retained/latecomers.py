"""Subscriptions that began a short while ago, for messages that are retained only now.

A message that is to be retained is in the log first, and in the table a moment later. A subscription that began in
between gets it from neither, unless its broker has read it in the log: and before its first subscription to a topic a
broker does not read that. So each new subscription is remembered for REMEMBERED_US, with the position where it began. A
message that comes to the copy by the table alone, with a position up to there, is sent to it after all.

Invariant: no more than MOST are remembered, the newest.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from tocsin.wire.mqtt.topics import matches

Subscriber = TypeVar("Subscriber")

REMEMBERED_US: Final = (
    60_000_000  # a broker writes a message within that, or gives it up (``broker.retained.writer``)
)
MOST: Final = 1_000


class Latecomers(Generic[Subscriber]):
    """Who may have begun after a message, and before it was retained."""

    def __init__(self) -> None:
        self._known: deque[tuple[int, str, int, Subscriber]] = deque(maxlen=MOST)  # the oldest first
        self._newest = 0  # no subscription that is remembered began behind this position

    def __len__(self) -> int:
        return len(self._known)

    def add(self, topic_filter: str, since: int, subscriber: Subscriber, now_us: int) -> None:
        """A subscription begins behind a position."""
        self._known.append((now_us, topic_filter, since, subscriber))
        self._newest = max(self._newest, since)

    def late_for(self, topic: str, position: int, now_us: int) -> list[Subscriber]:
        """Those that began behind a message and match its topic."""
        known = self._known
        while known and now_us - known[0][0] > REMEMBERED_US:
            known.popleft()
        if position > self._newest:
            return []
        return [each for _, name, since, each in known if position <= since and matches(name, topic)]
