"""What bridges tell each other of the writers in their local networks.

| topic, retained | what |
| --- | --- |
| ``PREFIX/$bridges/NAME`` | ``{"v": 1, "incarnation": "…", "up": true}``; the bridge's will says false |
| ``PREFIX/$writers/NAME/TOPIC`` | ``{"v": 1, "incarnation": "…", "writers": […]}``: the writers of a DDS topic |

What a bridge announced counts while that bridge is up, in the incarnation that announced it. So a bridge that is killed
takes its writers with it when its will comes (WILL_DELAY_S: the lease of a DDS participant), and a late will of an
earlier incarnation says nothing about the present one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.bridge.dds.mapping import Unmappable
from tocsin.bridge.dds.quality import FOREVER, Quality
from tocsin.model.versions import UNREADABLE, Document

WILL_DELAY_S: Final = 10  # as long as Cyclone DDS waits for a participant that is gone
WRITERS_MAX: Final = 500  # of a topic, in one announcement
SOURCES_MAX: Final = 50_000  # of all bridges
BRIDGES_MAX: Final = 1_000


class Source(msgspec.Struct, frozen=True):
    """A writer in another local network."""

    key: str  # GUID
    type_name: str
    quality: Quality
    lively: bool = True


class Announcement(msgspec.Struct, frozen=True):
    """The writers of one topic in one local network."""

    incarnation: str
    writers: tuple[Source, ...]


class Presence(msgspec.Struct, frozen=True):
    """Whether a bridge is there."""

    incarnation: str
    up: bool


ANNOUNCEMENT: Final = Document("DDS writers of a local network", msgspec.json.Decoder(Announcement))
PRESENCE: Final = Document("whether a DDS bridge is there", msgspec.json.Decoder(Presence))


def read_announcement(payload: bytes) -> Announcement:
    """Raises ``Unmappable``."""
    try:
        told = ANNOUNCEMENT.read(payload)
    except UNREADABLE as error:
        raise Unmappable(str(error)) from None
    if len(told.writers) > WRITERS_MAX:
        raise Unmappable(f"it announces {len(told.writers)} writers; {WRITERS_MAX} are the most")
    for each in told.writers:
        quality = each.quality
        spans = quality.deadline_ns, quality.budget_ns, quality.lease_ns, quality.lifespan_ns
        if not all(0 <= span <= FOREVER for span in spans) or not 0 <= quality.depth < 1 << 31:
            raise Unmappable("it announces a writer with a quality that cannot be")
    return told


def read_presence(payload: bytes) -> Presence:
    """Raises ``Unmappable``."""
    try:
        return PRESENCE.read(payload)
    except UNREADABLE as error:
        raise Unmappable(str(error)) from None


class Others:
    """The writers that other bridges have announced, of those bridges that are up."""

    def __init__(self) -> None:
        self._up: dict[str, str] = {}  # bridge → its incarnation
        self._told: dict[str, dict[str, Announcement]] = {}  # topic → bridge → the latest
        self._sources: dict[str, dict[str, Source]] = {}  # topic → GUID; of bridges that are up
        self._count = 0  # of sources in ``_told``

    def sources(self, topic: str) -> dict[str, Source]:
        """Of a topic, by GUID."""
        return self._sources.get(topic, {})

    @property
    def bridges(self) -> int:
        return len(self._up)

    def presence(self, bridge: str, presence: Presence | None) -> list[str]:
        """A bridge is there, or not (None as well); returns the topics whose sources may differ now."""
        if presence is not None and presence.up:
            if bridge not in self._up and len(self._up) >= BRIDGES_MAX:
                return []
            if self._up.get(bridge) == presence.incarnation:
                return []
            self._up[bridge] = presence.incarnation
        elif presence is None or self._up.get(bridge) == presence.incarnation:
            self._up.pop(bridge, None)
        else:
            return []
        changed = [topic for topic, told in self._told.items() if bridge in told]
        for topic in changed:
            self._settle(topic)
        return changed

    def announced(self, bridge: str, topic: str, told: Announcement | None) -> bool:
        """A bridge has announced its writers of a topic (None: none); false if there is no room."""
        before = self._told.get(topic, {}).pop(bridge, None)
        self._count -= len(before.writers) if before is not None else 0
        room = told is None or self._count + len(told.writers) <= SOURCES_MAX
        if told is not None and told.writers and room:
            self._told.setdefault(topic, {})[bridge] = told
            self._count += len(told.writers)
        elif not self._told.get(topic):
            self._told.pop(topic, None)
        self._settle(topic)
        return room

    def _settle(self, topic: str) -> None:
        found = {
            source.key: source
            for bridge, told in self._told.get(topic, {}).items()
            if self._up.get(bridge) == told.incarnation
            for source in told.writers
        }
        if found:
            self._sources[topic] = found
        else:
            self._sources.pop(topic, None)
