"""The set of streams that satisfies a predicate, kept from what ``$streams/<predicate>`` tells.

    {"streams": [{"topic": …, "metadata": {…}}, …], "more": true}     the whole set, in parts but for the last
    {"joined": {"topic": …, "metadata": {…}}}      and so ``changed`` and ``left``

The first whole set is ``Set``. One that comes later (a broker was lost, or we were too far behind) is told as the
differences, so that a program that follows the changes need not know of it.
"""

from __future__ import annotations

import msgspec

from tocsin.errors import Malformed
from tocsin.model.stream import Metadata, Value


class Set(msgspec.Struct, frozen=True):
    """All the streams there are now."""

    streams: dict[str, Metadata]  # by topic


class Joined(msgspec.Struct, frozen=True):
    """A stream satisfies the predicate from now on; its messages follow."""

    topic: str
    metadata: Metadata


class Changed(msgspec.Struct, frozen=True):
    """A stream has other metadata, and still satisfies the predicate."""

    topic: str
    metadata: Metadata


class Left(msgspec.Struct, frozen=True):
    """A stream does not satisfy it any more, or is gone; its last message is behind us."""

    topic: str
    metadata: Metadata  # the last that is known


Change = Set | Joined | Changed | Left


class _Stream(msgspec.Struct):
    topic: str
    metadata: dict[str, Value] = {}


class _Notice(msgspec.Struct):
    streams: list[_Stream] | None = None
    more: bool = False
    joined: _Stream | None = None
    changed: _Stream | None = None
    left: _Stream | None = None


_read = msgspec.json.Decoder(_Notice).decode


class StreamSet:
    """See the module's text. ``streams`` is the newest set; it is whole once ``known``."""

    def __init__(self) -> None:
        self.streams: dict[str, Metadata] = {}
        self.known = False
        self._parts: dict[str, Metadata] = {}  # of a set whose last part has not come

    def begin(self) -> None:
        """The next whole set is that of another connection."""
        self._parts.clear()

    def take(self, payload: bytes) -> list[Change]:
        """What a notice changes. Raises ``Malformed`` if it is none."""
        try:
            notice = _read(payload)
        except msgspec.DecodeError as error:
            raise Malformed(f"a notice about streams cannot be read: {error}") from None
        if notice.streams is not None:
            self._parts.update((stream.topic, stream.metadata) for stream in notice.streams)
            return [] if notice.more else self._replace()
        if notice.left is not None:
            return self._remove(notice.left)
        put = notice.joined or notice.changed
        return self._put(put) if put is not None else []

    def _put(self, stream: _Stream) -> list[Change]:
        topic, before = stream.topic, self.streams.get(stream.topic)
        if before == stream.metadata:
            return []
        self.streams[topic] = stream.metadata
        return [(Joined if before is None else Changed)(topic, stream.metadata)]

    def _remove(self, stream: _Stream) -> list[Change]:
        before = self.streams.pop(stream.topic, None)
        return [] if before is None else [Left(stream.topic, stream.metadata or before)]

    def _replace(self) -> list[Change]:
        now, self._parts = self._parts, {}
        if not self.known:
            self.known, self.streams = True, now
            return [Set(dict(now))]
        gone = [_Stream(topic) for topic in self.streams if topic not in now]
        changes = [change for stream in gone for change in self._remove(stream)]
        for topic, metadata in now.items():
            changes += self._put(_Stream(topic, dict(metadata)))
        return changes
