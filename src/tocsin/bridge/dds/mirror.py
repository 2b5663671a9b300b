"""Decides which endpoints the bridge has, and what becomes of each sample and message.

    writer found    → a reader of ours, for its group   → samples become messages
    reader found    → a writer of ours                  → messages of its topic become samples
    last one gone   → ours goes, too

What the bridge has follows from the endpoints that are there, and from nothing else: after each change ``_settle``
compares what should be with what is, for that topic. So the order in which endpoints come and go leaves no trace, and
an endpoint that restarts a hundred times under one name is found a hundred times.

**Groups.** Writers of one topic and type share a reader of ours if they agree about reliability, durability, ownership
and partitions. Our reader may match writers of another group as well: what comes from them is left to their own group's
reader. So each sample is taken once.

**Writers** of ours are one for each topic, type, ownership, strength and set of partitions that samples come from.
DDS then finds the readers by their partitions. One without partitions is made as soon as a reader is found, the others
with the first sample. What is heard while a writer is being made waits for it.

**Several bridges** of one network in one domain know each other. The one whose name is first is *active*, the others do
nothing until it is gone.

**Late readers.** When a writer of ours is made for readers that want what was written before they came, the bridge asks
the others (``mapping.Names.ask``). Each reads it from its own domain, as a late reader, and publishes it to the one
that asked. What was written already is known by writer and source time, and dropped. It asks ASKS times: a bridge that
was only just starting has not heard the first time, or had nothing to read from yet.

**Bounds.** Samples on their way to the network are bounded in bytes; beyond, nothing is taken from readers, so that
reliable writers wait. Messages on their way to DDS are bounded by the client's receive maximum above QoS 0, and in
bytes at QoS 0. Endpoints, entities and remembered samples are bounded in number.

Invariants: ``_made`` and ``_making`` have the entities that the shell has; a message above QoS 0 is acknowledged once,
when every writer that it is for has taken it or cannot.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from tocsin.bridge.dds.mapping import (
    ASK,
    BRIDGED,
    Looped,
    Names,
    Sample,
    Unmappable,
    message_of,
    sample_of,
)
from tocsin.bridge.dds.quality import Durability, Quality, strictest, weakest
from tocsin.bridge.dds.signals import (
    Acknowledge,
    BridgeFound,
    BridgeGone,
    Drop,
    Endpoint,
    EndpointFound,
    EndpointGone,
    Figures,
    Heard,
    Made,
    MakeFailed,
    MakeReader,
    MakeWriter,
    Note,
    Pause,
    Publish,
    Published,
    PublishFailed,
    Replay,
    Replayed,
    Subscribe,
    SubscriptionFailed,
    Taken,
    Unsubscribe,
    Write,
    Written,
)
from tocsin.bridge.limits import delay_us, is_taken
from tocsin.core.machine import Effect, Event, SetTimer, TimerFired
from tocsin.model.publication import Publication

ENDPOINTS_MAX: Final = 20_000
ENTITIES_MAX: Final = 4_000
OUT_MAX_BYTES: Final = 32 << 20  # samples on their way to the network
IN_MAX_BYTES: Final = 32 << 20  # messages at QoS 0 on their way to DDS
KNOWN_MAX: Final = 4_096  # samples of a topic that are known
OVERHEAD_BYTES: Final = 400  # of a sample, beside its data
TRIES_MAX: Final = 10  # of a message that the network refuses; without an answer there is no bound
LINGER_US: Final = 1_000_000  # of a reader whose last writer is gone: what that leaves is still to be taken
MAKE: Final = "make "  # a timer, and an entity
GIVE_UP: Final = "give up "  # a timer, and an entity
AGAIN: Final = "ask again "  # a timer, and an entity
ASKS: Final = 3
AGAIN_US: Final = 2_000_000  # after the first time; each next one waits four times as long
SEND: Final = "send "  # a timer, and a token


class Kind(Enum):
    """Of the bridge's entities."""

    READER = "reader"
    WRITER = "writer"


class Wish(msgspec.Struct, frozen=True):
    """An entity that the bridge should have."""

    kind: Kind
    topic: str
    type_name: str
    quality: Quality
    like: tuple[str, ...]  # endpoints that know the type


class _Entity(msgspec.Struct):
    id: str  # of this one: what is heard of one that was dropped is about no other
    wish: Wish
    ready: bool = False
    unwanted: bool = False  # a reader without writers: it goes soon
    failures: int = 0
    asked: int = 0  # times, of a writer
    waiting: deque[tuple[int, Sample, str]] = msgspec.field(default_factory=deque)  # to be written


class _Message(msgspec.Struct):
    """A message of the network on its way to DDS."""

    durable: bool
    size: int
    left: int = 0  # writers that it is still for


class _Out(msgspec.Struct):
    """A sample on its way to the network."""

    publication: Publication
    entity: str
    tries: int = 0


class Mirror:
    """Mirrors the endpoints of one domain."""

    def __init__(self, name: str, names: Names) -> None:
        self.figures = Figures()
        self.problems: dict[str, str] = {}  # of entities and subscriptions, by their names
        self._name, self._names = name, names
        self._bridges: dict[str, str] = {}  # others of this network, by participant
        self._endpoints: dict[str, Endpoint] = {}
        self._topics: dict[str, dict[str, Endpoint]] = {}
        self._entities: dict[str, _Entity] = {}
        self._of_topic: dict[str, dict[str, None]] = {}  # topic → entities
        self._sources: dict[
            str, dict[tuple[int, tuple[str, ...]], None]
        ] = {}  # topic → strengths and partitions
        self._subscribed: dict[str, None] = {}  # topics of the network
        self._known: dict[str, OrderedDict[tuple[str, int], None]] = {}
        self._messages: dict[int, _Message] = {}
        self._in_bytes = 0  # of those at QoS 0
        self._out: dict[int, _Out] = {}
        self._out_bytes = 0
        self._paused = False
        self._token = 0
        self._number = 0  # of entities

    @property
    def active(self) -> bool:
        """Whether this bridge is the one of its network that works in this domain."""
        return all(self._name <= each for each in self._bridges.values())

    @property
    def in_flight(self) -> int:
        """Samples that the network does not have yet."""
        return len(self._out)

    @property
    def entities(self) -> int:
        return len(self._entities)

    @property
    def endpoints(self) -> int:
        return len(self._endpoints)

    def start(self) -> list[Effect]:
        """The first effects."""
        told = self._names.told(self._name, "#").replace("%23", "#")
        return [Subscribe(topic=f"{self._names.prefix}/{ASK}/#"), Subscribe(topic=told)]

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        match event:
            case EndpointFound(endpoint=endpoint):
                return self._found(endpoint)
            case EndpointGone(key=key):
                return self._gone(key)
            case BridgeFound(key=key, name=name):
                return self._bridges_changed(key, name)
            case BridgeGone(key=key):
                return self._bridges_changed(key, None)
            case Made(entity=entity):
                return self._made(entity)
            case MakeFailed():
                return self._make_failed(event)
            case Taken(entity=entity, samples=samples):
                return self._taken(entity, samples)
            case Replayed():
                return self._replayed(event)
            case Heard():
                return self._heard(event)
            case Written(token=token, problem=problem):
                return self._written(token, problem)
            case Published(token=token):
                return self._published(token)
            case PublishFailed():
                return self._publish_failed(event)
            case SubscriptionFailed(topic=topic, reason=reason):
                self._problem(topic, reason)
                return []
            case TimerFired(name=name):
                return self._fired(name)
        raise AssertionError(f"the mirror was told {event!r}")

    # ── what is there ───────────────────────────────────────────────────────────────────────────────────────

    def _found(self, endpoint: Endpoint) -> list[Effect]:
        if not self._names.allows(endpoint.topic):
            return []
        if not is_taken(self._names.told(self._name, endpoint.topic)):  # the longest that it is called
            self._problem("topics", f"no broker takes messages on {endpoint.topic[:80]!r}; it is left out")
            return []
        if endpoint.key not in self._endpoints and len(self._endpoints) >= ENDPOINTS_MAX:
            self._problem("endpoints", f"there are more than {ENDPOINTS_MAX} endpoints; deny some topics")
            return []
        before = self._endpoints.get(endpoint.key)
        moved = self._gone(endpoint.key) if before is not None and before.topic != endpoint.topic else []
        self._endpoints[endpoint.key] = endpoint
        self._topics.setdefault(endpoint.topic, {})[endpoint.key] = endpoint
        return [*moved, *self._settle(endpoint.topic)]

    def _gone(self, key: str) -> list[Effect]:
        endpoint = self._endpoints.pop(key, None)
        if endpoint is None:
            return []
        there = self._topics[endpoint.topic]
        del there[key]
        if not there:
            del self._topics[endpoint.topic]
        return self._settle(endpoint.topic)

    def _bridges_changed(self, key: str, name: str | None) -> list[Effect]:
        before = self.active
        if name is None:
            self._bridges.pop(key, None)
        else:
            self._bridges[key] = name
        if self.active == before:
            return []
        text = "this bridge works in its domain now" if self.active else "another bridge works in this domain"
        effects: list[Effect] = [Note(event=text, facts={"bridges": sorted(self._bridges.values())})]
        for topic in sorted({*self._topics, *self._of_topic}):
            effects += self._settle(topic)
        return effects

    # ── what should be ──────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, topic: str) -> list[Effect]:
        """Have the entities and the subscription that the endpoints of a topic need, and no others."""
        there = self._topics.get(topic, {}).values() if self.active else ()
        writers = [each for each in there if each.writes]
        readers = [each for each in there if not each.writes]
        wishes = {**dict(_readers(writers)), **dict(self._writers(topic, readers))}
        effects: list[Effect] = []
        for entity in tuple(self._of_topic.get(topic, ())):
            held = self._entities[entity]
            if entity in wishes:
                held.unwanted = False
                if _differs(wishes[entity], held.wish):
                    effects += self._drop(entity)
            elif held.wish.kind is Kind.WRITER:
                effects += self._drop(entity)
            elif not held.unwanted:
                held.unwanted = True
                effects.append(SetTimer(name=f"{GIVE_UP}{held.id}", delay_us=LINGER_US))
        for entity, wish in wishes.items():
            kept = self._entities.get(entity)
            if kept is not None:
                kept.wish = wish
            elif len(self._entities) < ENTITIES_MAX:
                self._number += 1
                made = self._entities[entity] = _Entity(f"{entity}#{self._number}", wish)
                self._of_topic.setdefault(topic, {})[entity] = None
                effects.append(_make(made))
            else:
                self._problem("entities", f"more than {ENTITIES_MAX} readers and writers are needed")
        if not readers:
            self._sources.pop(topic, None)
            self._known.pop(topic, None)
        return [*effects, *self._subscribe(topic, readers)]

    def _writers(self, topic: str, readers: list[Endpoint]) -> Iterator[tuple[str, Wish]]:
        """A writer for each type and ownership of the readers, and each source of samples that they may want."""
        groups: dict[tuple[str, bool, bool], list[Endpoint]] = {}
        for each in readers:
            groups.setdefault((each.type_name, each.quality.exclusive, each.quality.xcdr2), []).append(each)
        for (type_name, exclusive, xcdr2), group in groups.items():
            for strength, partitions in ((0, ()), *self._sources.get(topic, {})):
                wanting = [each for each in group if overlap(each.quality.partitions, partitions)]
                if not wanting:
                    continue
                offered = msgspec.structs.replace(
                    strictest(each.quality for each in wanting),
                    partitions=partitions,
                    strength=strength if exclusive else 0,
                )
                own = f"{strength if exclusive else 0} {' '.join(map(repr, partitions))}"
                entity = f"writer {topic!r} {type_name} {exclusive:d}{xcdr2:d} {own}"
                like = tuple(sorted(each.key for each in wanting))
                yield entity, Wish(Kind.WRITER, topic, type_name, offered, like)

    def _subscribe(self, topic: str, readers: list[Endpoint]) -> list[Effect]:
        """A message's own QoS decides how it comes; so we ask for the higher one, whatever the readers want."""
        name = self._names.mqtt(topic)
        if bool(readers) == (name in self._subscribed):
            return []
        if readers:
            self._subscribed[name] = None
            return [Subscribe(topic=name)]
        del self._subscribed[name]
        self._problem(name, "")
        return [Unsubscribe(topic=name)]

    def _by_id(self, entity: str) -> _Entity | None:
        held = self._entities.get(entity.rpartition("#")[0])
        return held if held is not None and held.id == entity else None

    def _drop(self, entity: str) -> list[Effect]:
        held = self._entities.pop(entity)
        topic = held.wish.topic
        del self._of_topic[topic][entity]
        if not self._of_topic[topic]:
            del self._of_topic[topic]
        self._problem(entity, "")
        effects: list[Effect] = [Drop(entity=held.id)]
        for token, _, _ in held.waiting:
            effects += self._written(token, "")
        return effects

    def _made(self, entity: str) -> list[Effect]:
        held = self._by_id(entity)
        if held is None:
            return []
        held.ready, held.failures = True, 0
        self._problem(entity.rpartition("#")[0], "")
        effects: list[Effect] = []
        wish = held.wish
        if wish.kind is Kind.WRITER and wish.quality.durability >= Durability.TRANSIENT_LOCAL:
            effects += self._ask(held)
        while held.waiting:
            token, sample, content_type = held.waiting.popleft()
            effects.append(Write(token=token, entity=held.id, sample=sample, content_type=content_type))
        return effects

    def _ask(self, held: _Entity) -> list[Effect]:
        """Ask the other bridges for what a late reader gets, now and again."""
        topic = self._names.ask(held.wish.topic)
        ask = Publication(topic, b"", 1, "", user_properties=((BRIDGED, self._name),))
        held.asked += 1
        effects: list[Effect] = [self._send(ask, "")]
        if held.asked < ASKS:
            effects.append(SetTimer(name=AGAIN + held.id, delay_us=AGAIN_US * 4 ** (held.asked - 1)))
        return effects

    def _make_failed(self, event: MakeFailed) -> list[Effect]:
        held = self._by_id(event.entity)
        if held is None:
            return []
        held.failures += 1
        self._problem(event.entity.rpartition("#")[0], event.reason)
        facts: dict[str, object] = {
            "topic": held.wish.topic,
            "type": held.wish.type_name,
            "problem": event.reason,
        }
        effects: list[Effect] = [Note(event="an endpoint cannot be mirrored", facts=facts, warn=True)]
        while held.waiting:
            effects += self._written(held.waiting.popleft()[0], event.reason)
        if not event.final:
            effects.append(SetTimer(name=f"{MAKE}{event.entity}", delay_us=delay_us(held.failures)))
        return effects

    def _fired(self, name: str) -> list[Effect]:
        if name.startswith(SEND):
            token = int(name.removeprefix(SEND))
            out = self._out.get(token)
            return (
                [] if out is None else [Publish(token=token, publication=out.publication, entity=out.entity)]
            )
        if name.startswith(AGAIN):
            writer = self._by_id(name.removeprefix(AGAIN))
            return [] if writer is None or not self.active else self._ask(writer)
        if name.startswith(GIVE_UP):
            unwanted = self._by_id(name.removeprefix(GIVE_UP))
            given_up = unwanted is not None and unwanted.unwanted
            return self._drop(name.removeprefix(GIVE_UP).rpartition("#")[0]) if given_up else []
        held = self._by_id(name.removeprefix(MAKE))
        return [] if held is None or held.ready else [_make(held)]

    # ── from DDS to the network ─────────────────────────────────────────────────────────────────────────────

    def _taken(self, entity: str, samples: Iterable[Sample]) -> list[Effect]:
        held = self._by_id(entity)
        if held is None:
            return []
        wish = held.wish
        effects: list[Effect] = []
        for sample in samples:
            writer = self._endpoints.get(sample.writer)
            if writer is not None and _group(writer) != _group_of(wish):
                continue  # another reader of ours has it
            self.figures.taken += 1
            offered = wish.quality if writer is None else writer.quality
            sample = msgspec.structs.replace(
                sample, partitions=wish.quality.partitions, strength=offered.strength
            )
            publication = message_of(
                sample,
                self._names.mqtt(wish.topic),
                self._name,
                qos=int(wish.quality.reliable),
                lifespan_ns=offered.lifespan_ns,
            )
            effects.append(self._send(publication, entity))
        return [*effects, *self._pause()]

    def _replayed(self, event: Replayed) -> list[Effect]:
        """Each sample says whose it is, as when it came first: the partitions and strength of its writer."""
        topic = self._names.told(event.to, event.topic)
        effects: list[Effect] = []
        for sample in event.samples:
            writer = self._endpoints.get(sample.writer)
            if writer is None:
                continue  # a late reader gets nothing of a writer that is gone
            offered = writer.quality
            told = msgspec.structs.replace(sample, partitions=offered.partitions, strength=offered.strength)
            message = message_of(told, topic, self._name, qos=1, lifespan_ns=offered.lifespan_ns)
            effects.append(self._send(message, ""))
        return [*effects, *self._pause()]

    def _send(self, publication: Publication, entity: str) -> Effect:
        self._token += 1
        self._out[self._token] = _Out(publication, entity)
        self._out_bytes += len(publication.payload) + OVERHEAD_BYTES
        return Publish(token=self._token, publication=publication, entity=entity)

    def _pause(self) -> list[Effect]:
        paused = self._out_bytes > (OUT_MAX_BYTES // 2 if self._paused else OUT_MAX_BYTES)
        if paused == self._paused:
            return []
        self._paused = paused
        return [Pause(paused=paused)]

    def _published(self, token: int) -> list[Effect]:
        out = self._out.pop(token, None)
        if out is None:
            return []
        self._out_bytes -= len(out.publication.payload) + OVERHEAD_BYTES
        self.figures.published += 1
        return self._pause()

    def _publish_failed(self, event: PublishFailed) -> list[Effect]:
        out = self._out.get(event.token)
        if out is None:
            return []
        out.tries += 1
        if not event.final and out.publication.qos and out.tries < TRIES_MAX:
            self.figures.retried += 1
            return [SetTimer(name=f"{SEND}{event.token}", delay_us=delay_us(out.tries))]
        del self._out[event.token]
        self._out_bytes -= len(out.publication.payload) + OVERHEAD_BYTES
        self.figures.refused += 1
        facts: dict[str, object] = {"topic": out.publication.topic, "problem": event.reason}
        return [Note(event="the network does not take a sample", facts=facts, warn=True), *self._pause()]

    # ── from the network to DDS ─────────────────────────────────────────────────────────────────────────────

    def _heard(self, event: Heard) -> list[Effect]:
        message = event.message
        kind, to, topic = self._names.read(message.topic)
        self.figures.heard += 1
        if kind == ASK:
            return [*self._asked(event, topic), Acknowledge(token=event.token)]
        try:
            sample, content_type = sample_of(message, self._name, event.now_ns)
        except Looped:
            self.figures.looped += 1
            return [Acknowledge(token=event.token)]
        except Unmappable as error:
            self.figures.refused += 1
            facts: dict[str, object] = {"topic": message.topic, "problem": str(error)}
            note = Note(event="a message is no sample", facts=facts, warn=True)
            return [note, Acknowledge(token=event.token)]
        if not self._is_new(topic, sample):
            self.figures.repeated += 1
            return [Acknowledge(token=event.token)]
        del to  # the shell subscribes to answers for this bridge only
        return self._write(event.token, topic, sample, content_type, durable=message.qos > 0)

    def _asked(self, event: Heard, topic: str) -> list[Effect]:
        """Another bridge wants what late readers of a topic get."""
        hops = [value for name, value in event.message.user_properties if name == BRIDGED]
        if not hops or hops[0] == self._name or not self.active:
            return []
        if "/" in hops[0] or not is_taken(self._names.told(hops[0], topic)):  # whoever may publish may ask
            return []
        return [
            Replay(entity=held.id, topic=topic, to=hops[0], partitions=held.wish.quality.partitions)
            for entity in self._of_topic.get(topic, ())
            if (held := self._entities[entity]).wish.kind is Kind.READER
            and held.ready
            and held.wish.quality.durability >= Durability.TRANSIENT_LOCAL
        ]

    def _is_new(self, topic: str, sample: Sample) -> bool:
        if not sample.writer:
            return True  # a plain client's
        known = self._known.setdefault(topic, OrderedDict())
        key = sample.writer, sample.time_ns
        if key in known:
            return False
        known[key] = None
        if len(known) > KNOWN_MAX:
            known.popitem(last=False)
        return True

    def _write(
        self, token: int, topic: str, sample: Sample, content_type: str, *, durable: bool
    ) -> list[Effect]:
        effects: list[Effect] = []
        source = (sample.strength, sample.partitions)
        if topic in self._topics and source != (0, ()):
            sources = self._sources.setdefault(topic, {})
            if source not in sources and len(sources) < ENTITIES_MAX:
                sources[source] = None
                effects += self._settle(topic)
        size = len(sample.data) + OVERHEAD_BYTES
        message = self._messages[token] = _Message(durable, size)
        if not durable:
            self._in_bytes += size
        full = not durable and self._in_bytes > IN_MAX_BYTES
        for entity in self._of_topic.get(topic, ()):
            held = self._entities[entity]
            offered = held.wish.quality
            strength = sample.strength if offered.exclusive else 0
            if held.wish.kind is not Kind.WRITER or full:
                continue
            if (offered.strength, offered.partitions) != (strength, sample.partitions):
                continue
            if held.failures and not held.ready:
                continue  # it cannot be made; that is said
            message.left += 1
            if held.ready:
                effects.append(Write(token=token, entity=held.id, sample=sample, content_type=content_type))
            else:
                held.waiting.append((token, sample, content_type))
        if not message.left:
            self.figures.dropped += full
            effects += self._over(token)
        return effects

    def _written(self, token: int, problem: str) -> list[Effect]:
        message = self._messages.get(token)
        if message is None:
            return []
        effects: list[Effect] = []
        if problem:
            self.figures.refused += 1
            effects.append(Note(event="a sample cannot be written", facts={"problem": problem}, warn=True))
        else:
            self.figures.written += 1
        message.left -= 1
        return effects if message.left else [*effects, *self._over(token)]

    def _over(self, token: int) -> list[Effect]:
        message = self._messages.pop(token)
        if not message.durable:
            self._in_bytes -= message.size
        return [Acknowledge(token=token)]

    def _problem(self, about: str, problem: str) -> None:
        if problem:
            self.problems[about] = problem
        else:
            self.problems.pop(about, None)


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────

Group = tuple[str, bool, Durability, bool, tuple[str, ...]]


def _make(held: _Entity) -> Effect:
    wish = held.wish
    make = MakeReader if wish.kind is Kind.READER else MakeWriter
    return make(
        entity=held.id, topic=wish.topic, type_name=wish.type_name, like=wish.like, quality=wish.quality
    )


def _group(writer: Endpoint) -> Group:
    quality = writer.quality
    return writer.type_name, quality.reliable, quality.durability, quality.exclusive, quality.partitions


def _group_of(wish: Wish) -> Group:
    quality = wish.quality
    return wish.type_name, quality.reliable, quality.durability, quality.exclusive, quality.partitions


def _readers(writers: list[Endpoint]) -> Iterator[tuple[str, Wish]]:
    groups: dict[Group, list[Endpoint]] = {}
    for each in writers:
        groups.setdefault(_group(each), []).append(each)
    for group, members in groups.items():
        topic = members[0].topic
        like = tuple(sorted(each.key for each in members))
        quality = weakest(each.quality for each in members)
        yield f"reader {topic!r} {group!r}", Wish(Kind.READER, topic, group[0], quality, like)


def _differs(wanted: Wish, held: Wish) -> bool:
    """Whether an entity has to be made anew; who else knows its type does not matter."""
    return (wanted.quality, wanted.type_name) != (held.quality, held.type_name)


def overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether partitions have one in common, as DDS has it: no partition is the one without a name, and a name may
    be a pattern on one side."""
    return any(_same(one, other) for one in some or ("",) for other in others or ("",))


def _same(one: str, other: str) -> bool:
    patterns = [each for each in (one, other) if any(sign in each for sign in "*?[")]
    if len(patterns) == 2:
        return one == other
    if not patterns:
        return one == other
    pattern = patterns[0]
    return fnmatchcase(other if pattern == one else one, pattern)
