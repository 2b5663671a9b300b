"""Decides which endpoints the bridge has, and what becomes of each sample and message.

    writer found    → a reader of ours, for its group   → samples become messages
    reader found    → a writer of ours                  → messages of its topic become samples
    last one gone   → ours goes, too

What the bridge has follows from the endpoints that are there, and from nothing else: after each change ``_settle``
compares what should be with what is, for that topic. So the order in which endpoints come and go leaves no trace, and
an endpoint that restarts a hundred times under one name is found a hundred times.

Which entities those are is in ``wishes``. Three things are known of a topic: the endpoints here; the writers that
other bridges announce (``announced``); and whether anybody in the network wants it (``demand``). What nobody wants is
not read.

**A sample is written by the mirror of its writer.** One whose writer is not announced yet waits EARLY_US for that:
announcements go through the log, and messages at QoS 0 overtake them. What is heard while a writer is being made waits
for it.

**Several bridges** of one network in one domain know each other. The one whose name is first is *active*, the others do
nothing until it is gone.

**Late readers.** When a mirror of a writer that keeps samples is made, the bridge asks the others for them
(``mapping.Names.ask``). Each reads them from its own domain, as a late reader, and publishes them to the one that
asked. What was written already is known by writer, source time and content, and dropped. It asks ASKS times: a bridge
that was away for a moment has not heard the first time.

**Bounds.** What is on its way to the network is bounded by ``outbox``. Messages on their way to DDS are bounded by the
client's receive maximum above QoS 0, and in bytes at QoS 0. Endpoints, entities and remembered samples are bounded in
number.

Invariants: ``_entities`` has what the shell has, or is making; a message above QoS 0 is acknowledged once, when every
writer that it is for has taken it or cannot; a sample is written to one mirror.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from typing import Final
from zlib import crc32

import msgspec

from tocsin.bridge.dds.announced import (
    ANNOUNCEMENT,
    PRESENCE,
    WRITERS_MAX,
    Announcement,
    Others,
    Presence,
    Source,
    read_announcement,
    read_presence,
)
from tocsin.bridge.dds.demand import COOL, FORGET, Demand
from tocsin.bridge.dds.mapping import (
    ASK,
    BRIDGED,
    BRIDGES,
    WRITERS,
    Looped,
    Names,
    Sample,
    Unmappable,
    message_of,
    sample_of,
)
from tocsin.bridge.dds.outbox import OVERHEAD_BYTES, SEND, Outbox
from tocsin.bridge.dds.quality import Durability, Liveliness
from tocsin.bridge.dds.signals import (
    Acknowledge,
    BridgeFound,
    BridgeGone,
    Connected,
    Drop,
    Endpoint,
    EndpointFound,
    EndpointGone,
    Figures,
    Heard,
    Lively,
    Made,
    MakeFailed,
    MakeReader,
    MakeWriter,
    Note,
    Published,
    PublishFailed,
    Replay,
    Replayed,
    Subscribe,
    SubscriptionFailed,
    Taken,
    Unsubscribe,
    WantedTold,
    Write,
    WriteFailed,
    WriterLively,
    Written,
)
from tocsin.bridge.dds.wishes import (
    Kind,
    Plain,
    Wish,
    differs,
    group_of,
    group_of_writer,
    histories,
    mirrors,
    misfit,
    plain,
    readers,
    routes,
)
from tocsin.bridge.limits import delay_us, is_taken
from tocsin.client.message import Message
from tocsin.core.machine import Effect, Event, SetTimer, TimerFired
from tocsin.model.publication import Publication

ENDPOINTS_MAX: Final = 20_000
ENTITIES_MAX: Final = 4_000
IN_MAX_BYTES: Final = 32 << 20  # messages at QoS 0 on their way to DDS
KNOWN_MAX: Final = (
    16_384  # samples that are known of a topic with history: more than a writer is asked for at once
)
KNOWN_FEW: Final = 2_048  # of other topics
LATE_MAX: Final = 1_000  # sources of a topic that are gone, and whose last words may be on their way
PLAIN_MAX: Final = (
    100  # strengths and sets of partitions of a topic's messages that no announced writer has written
)
EARLY_MAX: Final = 1_000  # messages whose writers are not announced yet
STRANGERS_MAX: Final = 10_000  # writers that were not announced in time
LINGER_US: Final = 1_000_000  # of a reader whose last writer is gone: what that leaves is still to be taken
EARLY_US: Final = 1_000_000
TELL_US: Final = 5_000  # from a change of the writers here to its announcement: many come at once
MAKE: Final = "make "  # a timer, and an entity
GIVE_UP: Final = "give up "  # a timer, and an entity
AGAIN: Final = "ask again "  # a timer, and an entity
ASKS: Final = 3
AGAIN_US: Final = 2_000_000  # after the first time; each next one waits four times as long
TELL: Final = "tell "  # a timer, and a topic
EARLY: Final = "early "  # a timer, and a writer


class _Entity(msgspec.Struct):
    id: str  # of this one: what is heard of one that was dropped is about no other
    wish: Wish
    ready: bool = False
    unwanted: bool = False  # it is for nobody any more, and goes soon
    failures: int = 0
    asked: int = 0  # times, of a writer
    waiting: deque[tuple[int, Sample, str]] = msgspec.field(default_factory=deque)  # to be written


class _Message(msgspec.Struct):
    """A message of the network on its way to DDS."""

    durable: bool
    size: int
    left: int = 0  # writers that it is still for


class Mirror:
    """Mirrors the endpoints of one domain."""

    def __init__(self, name: str, names: Names, incarnation: str = "") -> None:
        self.figures = Figures()
        self.problems: dict[str, str] = {}  # of entities, topics and subscriptions, by their names
        self._name, self._names, self._incarnation = name, names, incarnation
        self._bridges: dict[str, str] = {}  # others of this network, by participant
        self._endpoints: dict[str, Endpoint] = {}
        self._dead: set[str] = set()  # writers here that have not asserted their liveliness in time
        self._topics: dict[str, dict[str, Endpoint]] = {}
        self._entities: dict[str, _Entity] = {}
        self._of_topic: dict[str, dict[str, None]] = {}  # topic → entities
        self._routes: dict[str, dict[str, str]] = {}  # topic → source → the writer of ours that stands for it
        self._plain: dict[str, dict[Plain, None]] = {}  # topic → what messages of no announced writer said
        self._subscribed: dict[str, None] = {}  # topics of the network
        self._demand = Demand(names)
        self._others = Others()
        self._presented = False  # the network knows that we are here
        self._rival = ""  # incarnation of another bridge under our name
        self._inherited: dict[str, deque[tuple[int, Sample, str]]] = {}  # what waits for an entity made anew
        self._keeping: set[str] = set()  # topics with sources that keep samples
        self._told: dict[str, tuple[Source, ...]] = {}  # topic → what we announced
        self._telling: set[str] = set()  # topics with a timer for that
        self._early: dict[str, list[Heard]] = {}  # writer that is not announced yet → its messages
        self._early_count = 0
        self._strangers: OrderedDict[str, None] = OrderedDict()  # writers that were not announced in time
        self._known: dict[str, OrderedDict[tuple[str, int, int], None]] = {}
        self._messages: dict[int, _Message] = {}
        self._in_bytes = 0  # of those at QoS 0
        self._out = Outbox(self.figures)
        self._number = 0  # of entities

    @property
    def active(self) -> bool:
        """Whether this bridge is the one of its network that works in this domain."""
        return all(self._name <= each for each in self._bridges.values())

    @property
    def in_flight(self) -> int:
        """Messages that the network does not have yet."""
        return len(self._out)

    @property
    def entities(self) -> int:
        return len(self._entities)

    @property
    def endpoints(self) -> int:
        return len(self._endpoints)

    @property
    def idle(self) -> int:
        """Topics that are written here and wanted nowhere else."""
        return self._demand.idle

    def start(self) -> list[Effect]:
        """The first effects."""
        prefix = self._names.prefix
        told = self._names.told(self._name, "#").replace("%23", "#")
        return [
            Subscribe(topic=f"{prefix}/{ASK}/#"),
            Subscribe(topic=told),
            Subscribe(topic=f"{prefix}/{BRIDGES}/#"),
            Subscribe(topic=f"{prefix}/{WRITERS}/#"),
        ]

    def stop(self) -> list[Effect]:
        """The last effects: this bridge and its writers are not here any more."""
        topics, self._told = tuple(self._told), {}
        return [*map(self._withdraw, topics), self._here(up=False)]

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        match event:
            case Written(tokens=tokens):
                return [each for token in tokens for each in self._written(token, "")]
            case Heard():
                return self._heard(event)
            case Taken(entity=entity, samples=samples):
                return self._taken(entity, samples)
            case Published(token=token):
                return self._out.published(token)
            case PublishFailed():
                return self._out.failed(event)
            case WriteFailed(token=token, problem=problem):
                return self._written(token, problem)
            case TimerFired(name=name):
                return self._fired(name)
            case _:
                return self._changed(event)

    def _changed(self, event: Event) -> list[Effect]:
        """Something else than a sample or message came."""
        match event:
            case EndpointFound(endpoint=endpoint):
                return self._found(endpoint)
            case EndpointGone(key=key):
                return self._gone(key)
            case WriterLively(key=key, lively=lively):
                return self._lively(key, lively)
            case BridgeFound(key=key, name=name):
                return self._bridges_changed(key, name)
            case BridgeGone(key=key):
                return self._bridges_changed(key, None)
            case Connected():
                self._presented = True
                return [self._here(up=True)]
            case WantedTold(topic=topic, wanted=wanted):
                return self._wanted_told(self._names.read(topic)[2], wanted)
            case Made(entity=entity):
                return self._made(entity)
            case MakeFailed():
                return self._make_failed(event)
            case Replayed():
                return self._replayed(event)
            case SubscriptionFailed(topic=topic, reason=reason):
                self._problem(topic, reason)
                return []
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
        self._dead.discard(key)
        if endpoint is None:
            return []
        there = self._topics[endpoint.topic]
        del there[key]
        if not there:
            del self._topics[endpoint.topic]
        return self._settle(endpoint.topic)

    def _lively(self, key: str, lively: bool) -> list[Effect]:
        endpoint = self._endpoints.get(key)
        if endpoint is None or lively == (key not in self._dead):
            return []
        if lively:
            self._dead.discard(key)
        else:
            self._dead.add(key)
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
        for topic in sorted({*self._topics, *self._of_topic, *self._told}):
            effects += self._settle(topic)
        return effects

    # ── what should be ──────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, topic: str) -> list[Effect]:
        """Have the entities and the subscription that a topic needs, and no others."""
        there = self._topics.get(topic, {}).values() if self.active else ()
        writers = [each for each in there if each.writes]
        reading = [each for each in there if not each.writes]
        sources = [each for each in self._others.sources(topic).values() if each.key not in self._endpoints]
        mirrored = mirrors(topic, sources, reading)
        wishes = {**mirrored, **plain(topic, self._plain.get(topic, ()), reading)}
        if self._demand.wanted(topic):
            wishes.update(readers(writers))
        self._problem(f"endpoints of {topic}", misfit(sources, reading))
        effects = [*self._announce(topic), *self._demand.written(topic, bool(writers))]
        for entity in tuple(self._of_topic.get(topic, ())):
            effects += self._spare(entity, wishes.get(entity))
        for entity, wish in wishes.items():
            effects += self._have(entity, wish)
        self._route(topic, routes(mirrored))
        if any(each.quality.durability >= Durability.TRANSIENT_LOCAL for each in sources):
            self._keeping.add(topic)
        else:
            self._keeping.discard(topic)
        if not reading:
            self._plain.pop(topic, None)
            if topic not in self._of_topic:
                self._known.pop(topic, None)
        return [*effects, *self._subscribe(topic, reading)]

    def _spare(self, entity: str, wish: Wish | None) -> list[Effect]:
        """Let an entity go that is not wished for, or not as it is. One that was is kept for a while: what came last
        is still to be taken and written."""
        held = self._entities[entity]
        if wish is not None:
            held.unwanted = False
            if not differs(wish, held.wish):
                return []
            self._inherited[entity], held.waiting = held.waiting, deque()
            return self._drop(entity)
        if held.unwanted:
            return []
        held.unwanted = True
        return [SetTimer(name=f"{GIVE_UP}{held.id}", delay_us=LINGER_US)]

    def _have(self, entity: str, wish: Wish) -> list[Effect]:
        held = self._entities.get(entity)
        if held is not None:
            was, held.wish = held.wish, wish
            return self._assert(held) if held.ready and was.lively != wish.lively else []
        if len(self._entities) >= ENTITIES_MAX:
            self._problem("entities", f"more than {ENTITIES_MAX} readers and writers are needed")
            return []
        self._number += 1
        made = self._entities[entity] = _Entity(f"{entity}#{self._number}", wish)
        made.waiting = self._inherited.pop(entity, made.waiting)
        self._of_topic.setdefault(wish.topic, {})[entity] = None
        return [_make(made)]

    def _assert(self, held: _Entity) -> list[Effect]:
        """A writer whose source has to assert its liveliness does so while its source does."""
        if held.wish.quality.liveliness is Liveliness.AUTOMATIC or held.wish.kind is Kind.READER:
            return []
        return [Lively(entity=held.id, lively=held.wish.lively)]

    # ── what others have, and want ──────────────────────────────────────────────────────────────────────────

    def _here(self, *, up: bool) -> Effect:
        said = PRESENCE.write(Presence(self._incarnation, up))
        return self._out.send(Publication(self._names.presence(self._name), said, 1, "", retain=True))

    def _announce(self, topic: str) -> list[Effect]:
        if topic in self._telling or self._announcement(topic) == self._told.get(topic, ()):
            return []
        self._telling.add(topic)
        return [SetTimer(name=TELL + topic, delay_us=TELL_US)]

    def _announcement(self, topic: str) -> tuple[Source, ...]:
        there = self._topics.get(topic, {}).values() if self.active else ()
        writers = sorted((each for each in there if each.writes), key=lambda each: each.key)
        return tuple(
            Source(each.key, each.type_name, each.quality, each.key not in self._dead)
            for each in writers[:WRITERS_MAX]
        )

    def _tell(self, topic: str) -> list[Effect]:
        self._telling.discard(topic)
        writers = self._announcement(topic)
        if writers == self._told.get(topic, ()):
            return []
        if not writers:
            del self._told[topic]
            return [self._withdraw(topic)]
        self._told[topic] = writers
        said = ANNOUNCEMENT.write(Announcement(self._incarnation, writers))
        where = self._names.writers(self._name, topic)
        return [self._out.send(Publication(where, said, 1, "", retain=True))]

    def _withdraw(self, topic: str) -> Effect:
        return self._out.send(Publication(self._names.writers(self._name, topic), b"", 1, "", retain=True))

    def _forget(self, topic: str) -> list[Effect]:
        written = self.active and any(each.writes for each in self._topics.get(topic, {}).values())
        return [] if written else self._demand.forget(topic)

    def _wanted_told(self, topic: str, wanted: bool) -> list[Effect]:
        changed, effects = self._demand.told(topic, wanted)
        return [*effects, *self._settle(topic)] if changed else effects

    def _cool(self, topic: str) -> list[Effect]:
        return self._settle(topic) if self._demand.cooled(topic) else []

    def _announced(self, kind: str, bridge: str, topic: str, message: Message) -> list[Effect]:
        """Another bridge says that it is there, or which writers it has; or we hear what we said ourselves."""
        payload = message.payload
        if bridge == self._name:
            return self._own(kind, topic, payload, kept=message.retain)
        if kind == BRIDGES:
            changed = self._others.presence(bridge, read_presence(payload) if payload else None)
        elif not self._names.allows(topic):
            return []
        else:
            room = self._others.announced(bridge, topic, read_announcement(payload) if payload else None)
            self._problem("announcements", "" if room else "other bridges announce too many writers")
            changed = [topic]
        return [each for topic in changed for each in (*self._settle(topic), *self._on_time(topic))]

    def _own(self, kind: str, topic: str, payload: bytes, *, kept: bool) -> list[Effect]:
        """What is said in our name. An earlier incarnation's word is put right; another process's is a mistake.

        ``kept``: it was said before we subscribed.
        """
        if kind == WRITERS:
            if not payload or read_announcement(payload).incarnation == self._incarnation:
                return []
            if self._told.pop(topic, None) is None:
                return [self._withdraw(topic)]
            return self._announce(topic)  # it was said over
        said = read_presence(payload) if payload else None
        if said is not None and said.incarnation == self._incarnation and said.up:
            return []
        if said is not None and said.up and not kept:
            self._rival = said.incarnation
            self._problem(
                "--name", f"another bridge is called {self._name} as well; give each a name of its own"
            )
            return []
        if said is not None and said.incarnation == self._rival:
            self._problem("--name", "")
        return [self._here(up=True)] if self._presented else []

    def _on_time(self, topic: str) -> list[Effect]:
        """Deal with what waited for the announcement of its writer."""
        effects: list[Effect] = []
        for writer in self._others.sources(topic):
            self._strangers.pop(writer, None)
            for event in self._early.pop(writer, ()):
                self._early_count -= 1
                effects += self._sample_heard(event, topic)
        return effects

    def _subscribe(self, topic: str, reading: list[Endpoint]) -> list[Effect]:
        """A message's own QoS decides how it comes; so we ask for the higher one, whatever the readers want."""
        name = self._names.mqtt(topic)
        if bool(reading) == (name in self._subscribed):
            return []
        if reading:
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
            self._known.pop(topic, None)
        self._problem(held.wish.label, "")
        self._unroute(topic, entity)
        effects: list[Effect] = [Drop(entity=held.id)]
        for token, _, _ in held.waiting:
            effects += self._written(token, "")
        return effects

    def _route(self, topic: str, ways: dict[str, str]) -> None:
        """Remember the writer of ours for each source, also for sources that are gone: their last words may come."""
        held = {way: entity for way, entity in self._routes.get(topic, {}).items() if way not in ways}
        for late in list(held)[: max(len(held) - LATE_MAX, 0)]:
            del held[late]
        if ways or held:
            self._routes[topic] = {**held, **ways}

    def _unroute(self, topic: str, entity: str) -> None:
        """No source goes by this writer any more; another one may get what it wrote again."""
        ways = self._routes.get(topic, {})
        gone = {source for source, way in ways.items() if way == entity}
        for source in gone:
            del ways[source]
        if not ways:
            self._routes.pop(topic, None)
        self._forget_samples(topic, gone)

    def _forget_samples(self, topic: str, writers: Collection[str]) -> None:
        known = self._known.get(topic)
        if writers and known:
            for each in [each for each in known if each[0] in writers]:
                del known[each]

    def _made(self, entity: str) -> list[Effect]:
        held = self._by_id(entity)
        if held is None:
            return []
        wish = held.wish
        if held.failures:
            self._forget_samples(wish.topic, wish.sources)  # those that came meanwhile were not written
        held.ready, held.failures = True, 0
        self._problem(wish.label, "")
        effects = self._assert(held)
        if wish.sources and wish.quality.durability >= Durability.TRANSIENT_LOCAL:
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
        effects: list[Effect] = [self._out.send(ask, "")]
        if held.asked < ASKS:
            effects.append(SetTimer(name=AGAIN + held.id, delay_us=AGAIN_US * 4 ** (held.asked - 1)))
        return effects

    def _make_failed(self, event: MakeFailed) -> list[Effect]:
        held = self._by_id(event.entity)
        if held is None:
            return []
        held.failures += 1
        self._problem(held.wish.label, event.reason)
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
        for sign, act in (
            (SEND, self._out.again),
            (EARLY, self._too_late),
            (TELL, self._tell),
            (COOL, self._cool),
            (FORGET, self._forget),
            (AGAIN, self._ask_again),
            (GIVE_UP, self._give_up),
            (MAKE, self._make_again),
        ):
            if name.startswith(sign):
                return act(name.removeprefix(sign))
        raise AssertionError(f"the mirror set no timer {name!r}")

    def _ask_again(self, entity: str) -> list[Effect]:
        writer = self._by_id(entity)
        return [] if writer is None or not self.active else self._ask(writer)

    def _give_up(self, entity: str) -> list[Effect]:
        held = self._by_id(entity)
        return self._drop(entity.rpartition("#")[0]) if held is not None and held.unwanted else []

    def _make_again(self, entity: str) -> list[Effect]:
        held = self._by_id(entity)
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
            if writer is not None and group_of_writer(writer) != group_of(wish):
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
            effects.append(self._out.send(publication, entity))
        return [*effects, *self._out.pause()]

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
            effects.append(self._out.send(message, ""))
        return [*effects, *self._out.pause()]

    # ── from the network to DDS ─────────────────────────────────────────────────────────────────────────────

    def _heard(self, event: Heard) -> list[Effect]:
        kind, bridge, topic = self._names.read(event.message.topic)
        self.figures.heard += 1
        if kind in (BRIDGES, WRITERS):
            acknowledge = Acknowledge(token=event.token)
            try:
                return [*self._announced(kind, bridge, topic, event.message), acknowledge]
            except Unmappable as error:
                return [*self._unmappable(event, error), acknowledge]
        if kind == ASK:
            return [*self._asked(event, topic), Acknowledge(token=event.token)]
        return self._sample_heard(event, topic)

    def _unmappable(self, event: Heard, error: Unmappable) -> list[Effect]:
        self.figures.refused += 1
        facts: dict[str, object] = {"topic": event.message.topic, "problem": str(error)}
        return [Note(event="a message is no sample", facts=facts, warn=True)]

    def _sample_heard(self, event: Heard, topic: str) -> list[Effect]:
        try:
            sample, content_type = sample_of(event.message, self._name, event.now_ns)
        except Looped:
            self.figures.looped += 1
            return [Acknowledge(token=event.token)]
        except Unmappable as error:
            return [*self._unmappable(event, error), Acknowledge(token=event.token)]
        if topic not in self._topics:
            return [Acknowledge(token=event.token)]  # nobody here reads it, and nothing is remembered of it
        durable = event.message.qos > 0
        if sample.writer:
            route = self._routes.get(topic, {}).get(sample.writer)
            if route is None and sample.writer in self._others.sources(topic):
                return [Acknowledge(token=event.token)]  # no reader here is in reach of it
            if route is None and self._may_wait(topic, sample.writer):
                return self._wait_for(sample.writer, event)
            if not self._is_new(topic, sample):
                self.figures.repeated += 1
                return [Acknowledge(token=event.token)]
            if route is not None:
                return self._write(event.token, (route,), sample, content_type, durable=durable)
        effects = self._settle_plain(topic, sample)
        found = self._plain_writers(topic, sample)
        return effects + self._write(event.token, found, sample, content_type, durable=durable)

    def _may_wait(self, topic: str, writer: str) -> bool:
        known = writer in self._strangers or self._names.mqtt(topic) not in self._subscribed
        return not known and self._early_count < EARLY_MAX

    def _wait_for(self, writer: str, event: Heard) -> list[Effect]:
        waiting = self._early.setdefault(writer, [])
        waiting.append(event)
        self._early_count += 1
        return [SetTimer(name=EARLY + writer, delay_us=EARLY_US)] if len(waiting) == 1 else []

    def _too_late(self, writer: str) -> list[Effect]:
        """A writer is not announced: its messages are taken as anybody's."""
        self._strangers[writer] = None
        if len(self._strangers) > STRANGERS_MAX:
            self._strangers.popitem(last=False)
        effects: list[Effect] = []
        for event in self._early.pop(writer, ()):
            self._early_count -= 1
            effects += self._sample_heard(event, self._names.read(event.message.topic)[2])
        return effects

    def _settle_plain(self, topic: str, sample: Sample) -> list[Effect]:
        """Have writers for a message of nobody in particular."""
        said = (sample.strength, sample.partitions)
        sources = self._plain.setdefault(topic, {}) if topic in self._topics else {}
        if topic not in self._topics or said in sources or len(sources) >= PLAIN_MAX:
            return []
        sources[said] = None
        return self._settle(topic)

    def _plain_writers(self, topic: str, sample: Sample) -> tuple[str, ...]:
        found = []
        for entity in self._of_topic.get(topic, ()):
            wish = self._entities[entity].wish
            if wish.kind is Kind.READER or wish.sources or self._entities[entity].unwanted:
                continue
            offered = wish.quality
            own = sample.strength if offered.exclusive else 0
            if (offered.strength, offered.partitions) == (own, sample.partitions):
                found.append(entity)
        return tuple(found)

    def _asked(self, event: Heard, topic: str) -> list[Effect]:
        """Another bridge wants what late readers of a topic get."""
        hops = [value for name, value in event.message.user_properties if name == BRIDGED]
        if not hops or hops[0] == self._name or not self.active:
            return []
        if "/" in hops[0] or not is_taken(self._names.told(hops[0], topic)):  # whoever may publish may ask
            return []
        writers = (each for each in self._topics.get(topic, {}).values() if each.writes)
        return [
            Replay(topic=topic, to=hops[0], type_name=type_name, like=like, quality=quality)
            for type_name, quality, like in histories(writers)
        ]

    def _is_new(self, topic: str, sample: Sample) -> bool:
        known = self._known.setdefault(topic, OrderedDict())
        key = sample.writer, sample.time_ns, crc32(sample.data)
        if key in known:
            return False
        known[key] = None
        if len(known) > (KNOWN_MAX if topic in self._keeping else KNOWN_FEW):
            known.popitem(last=False)
        return True

    def _write(
        self, token: int, entities: Iterable[str], sample: Sample, content_type: str, *, durable: bool
    ) -> list[Effect]:
        size = len(sample.data) + OVERHEAD_BYTES
        message = self._messages[token] = _Message(durable, size)
        if not durable:
            self._in_bytes += size
        full = not durable and self._in_bytes > IN_MAX_BYTES
        effects: list[Effect] = []
        for entity in entities:
            held = self._entities[entity]
            if full or (held.failures and not held.ready):  # it cannot be made; that is said
                continue
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


def _make(held: _Entity) -> Effect:
    wish = held.wish
    make = MakeReader if wish.kind is Kind.READER else MakeWriter
    return make(
        entity=held.id, topic=wish.topic, type_name=wish.type_name, like=wish.like, quality=wish.quality
    )
