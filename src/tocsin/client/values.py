"""Values that the client's core keeps, hears and tells; nothing here decides."""

from __future__ import annotations

import msgspec
from mqtt5 import Packet, PublishPacket, TopicFilter

from tocsin.errors import TocsinError
from tocsin.model.stream import Metadata
from tocsin.wire.mqtt.topics import matches

# ── of the session ──────────────────────────────────────────────────────────────────────────────────────────


class Wanted(msgspec.Struct):
    """A subscription."""

    how: TopicFilter
    pattern: str  # that the topics of a plain one match
    identifier: int | None  # that the messages of a query carry

    def takes(self, topic: str, identifiers: tuple[int, ...]) -> bool:
        """Whether a message of that topic, which carries these identifiers, is for it."""
        return self.identifier in identifiers if self.identifier else matches(self.pattern, topic)


class Answered(msgspec.Struct, frozen=True):
    """A request is done, or has failed."""

    request: int
    error: TocsinError | None = None


class Arrived(msgspec.Struct, frozen=True, eq=False):
    """A message for some subscriptions; above QoS 0 each of them has to settle it."""

    packet: PublishPacket
    takers: tuple[str, ...]  # filters


Effect = Packet | Answered | Arrived

# ── of a set of streams ─────────────────────────────────────────────────────────────────────────────────────


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
