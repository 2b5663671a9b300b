"""What the mirror is told, and what it wants done."""

from __future__ import annotations

import msgspec

from tocsin.bridge.dds.mapping import Sample
from tocsin.bridge.dds.quality import Quality
from tocsin.client.message import Message
from tocsin.core.machine import Effect, Event
from tocsin.model.publication import Publication


class Endpoint(msgspec.Struct, frozen=True):
    """A reader or writer that somebody else has in the local network."""

    key: str  # GUID
    writes: bool
    topic: str
    type_name: str
    quality: Quality


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


class EndpointFound(Event, frozen=True, kw_only=True):
    """An endpoint is there, or has another quality than before."""

    endpoint: Endpoint


class EndpointGone(Event, frozen=True, kw_only=True):
    """An endpoint is not there any more."""

    key: str


class BridgeFound(Event, frozen=True, kw_only=True):
    """Another bridge of the same network is in this domain."""

    key: str
    name: str


class BridgeGone(Event, frozen=True, kw_only=True):
    """That bridge is gone."""

    key: str


class WriterLively(Event, frozen=True, kw_only=True):
    """Somebody else's writer has asserted its liveliness again, or has not in time."""

    key: str
    lively: bool


class Connected(Event, frozen=True, kw_only=True):
    """The network is reached, for the first time or again."""


class WantedTold(Event, frozen=True, kw_only=True):
    """Whether anybody else in the network subscribes to a topic."""

    topic: str  # of the network
    wanted: bool


class Made(Event, frozen=True, kw_only=True):
    """An entity is there; a writer has found a reader, or had time to."""

    entity: str


class MakeFailed(Event, frozen=True, kw_only=True):
    """An entity cannot be made. ``final``: it will not do later either, while the endpoints stay as they are."""

    entity: str
    reason: str
    final: bool = False


class Taken(Event, frozen=True, kw_only=True):
    """Samples came to a reader of ours."""

    entity: str
    samples: tuple[Sample, ...]


class Replayed(Event, frozen=True, kw_only=True):
    """The samples that a late reader would get."""

    topic: str
    to: str  # the bridge that asked
    samples: tuple[Sample, ...]


class Heard(Event, frozen=True, kw_only=True):
    """A message of the network."""

    token: int
    message: Message
    now_ns: int  # since 1970


class Written(Event, frozen=True, kw_only=True):
    """Writers of ours have taken samples."""

    tokens: tuple[int, ...]


class WriteFailed(Event, frozen=True, kw_only=True):
    """A writer of ours cannot take a sample."""

    token: int
    problem: str


class Published(Event, frozen=True, kw_only=True):
    """The network has a message."""

    token: int


class PublishFailed(Event, frozen=True, kw_only=True):
    """The network does not take a message. ``final``: it will not take it later either."""

    token: int
    reason: str
    final: bool = False


class SubscriptionFailed(Event, frozen=True, kw_only=True):
    """The network refused a subscription; the shell asks again."""

    topic: str
    reason: str  # empty: it is granted now


# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────


class MakeReader(Effect, frozen=True, kw_only=True):
    """Have a reader. ``like``: endpoints that know the type."""

    entity: str
    topic: str
    type_name: str
    like: tuple[str, ...]
    quality: Quality


class MakeWriter(Effect, frozen=True, kw_only=True):
    """Have a writer."""

    entity: str
    topic: str
    type_name: str
    like: tuple[str, ...]
    quality: Quality


class Drop(Effect, frozen=True, kw_only=True):
    """Have this entity no longer."""

    entity: str


class Pause(Effect, frozen=True, kw_only=True):
    """Take no more from readers, or go on."""

    paused: bool


class Write(Effect, frozen=True, kw_only=True):
    """Have a writer write; ``Written`` or ``WriteFailed`` follows."""

    token: int
    entity: str
    sample: Sample
    content_type: str


class Replay(Effect, frozen=True, kw_only=True):
    """Find what a late reader of this quality gets. ``like``: endpoints that know the type."""

    topic: str
    to: str  # the bridge that asked
    type_name: str
    like: tuple[str, ...]
    quality: Quality


class Lively(Effect, frozen=True, kw_only=True):
    """Assert the liveliness of a writer, again and again, or no more."""

    entity: str
    lively: bool


class AskWanted(Effect, frozen=True, kw_only=True):
    """Ask whether anybody else subscribes to a topic of the network; ``WantedTold`` follows, each time it changes."""

    topic: str


class StopAsking(Effect, frozen=True, kw_only=True):
    """Ask that no more."""

    topic: str


class Subscribe(Effect, frozen=True, kw_only=True):
    """Subscribe to a topic of the network, at QoS 1."""

    topic: str


class Unsubscribe(Effect, frozen=True, kw_only=True):
    """Unsubscribe from it."""

    topic: str


class Publish(Effect, frozen=True, kw_only=True):
    """Publish; ``Published`` or ``PublishFailed`` follows. ``entity``: the reader whose sample it is, if any; it knows
    the type."""

    token: int
    publication: Publication
    entity: str = ""


class Acknowledge(Effect, frozen=True, kw_only=True):
    """A message of the network is dealt with."""

    token: int


class Note(Effect, frozen=True, kw_only=True):
    """A line for the log."""

    event: str
    facts: dict[str, object]
    warn: bool = False


class Figures(msgspec.Struct):
    """Samples and messages since the bridge began."""

    taken: int = 0  # samples from DDS
    published: int = 0
    heard: int = 0  # messages from the network
    written: int = 0  # to DDS
    repeated: int = 0  # known already
    looped: int = 0
    refused: int = 0  # neither side can take them
    dropped: int = 0  # best effort, and no room
    retried: int = 0
