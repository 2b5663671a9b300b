"""The set of streams that satisfies a predicate, kept from what ``$streams/<predicate>`` tells.

``model.stream_news`` has the messages. The first whole set is ``Set``. One that comes later (a broker was lost, or we
were too far behind) is told as the differences, so that a program that follows the changes need not know of it.
"""

from __future__ import annotations

from tocsin.client.values import Change, Changed, Joined, Left, Set
from tocsin.model.stream import Metadata
from tocsin.model.stream_news import NEWS


class StreamSet:
    """The set of streams that satisfy one predicate. ``streams`` is the newest set; it is whole once ``known``."""

    def __init__(self) -> None:
        self.streams: dict[str, Metadata] = {}
        self.known = False
        self._parts: dict[str, Metadata] = {}  # parts of a set whose last part has not come

    def begin(self) -> None:
        """The next whole set is that of another connection."""
        self._parts.clear()

    def take(self, payload: bytes) -> list[Change]:
        """The changes of a notice. Raises ``Malformed`` if it is none, ``FormatNewer`` if it is a newer one."""
        notice = NEWS.read(payload)
        if notice.streams is not None:
            self._parts.update((stream.topic, stream.metadata) for stream in notice.streams)
            return [] if notice.more else self._replace()
        if notice.left is not None:
            return self._remove(notice.left.topic, notice.left.metadata)
        put = notice.joined or notice.changed
        return self._put(put.topic, put.metadata) if put is not None else []

    def _put(self, topic: str, metadata: Metadata) -> list[Change]:
        before = self.streams.get(topic)
        self.streams[topic] = metadata
        if before == metadata:
            return []
        return [(Joined if before is None else Changed)(topic, metadata)]

    def _remove(self, topic: str, metadata: Metadata) -> list[Change]:
        before = self.streams.pop(topic, None)
        return [] if before is None else [Left(topic, metadata or before)]

    def _replace(self) -> list[Change]:
        now, self._parts = self._parts, {}
        if not self.known:
            self.known, self.streams = True, now
            return [Set(dict(now))]
        gone = [topic for topic in self.streams if topic not in now]
        left = [change for topic in gone for change in self._remove(topic, {})]
        return left + [change for topic, metadata in now.items() for change in self._put(topic, metadata)]
