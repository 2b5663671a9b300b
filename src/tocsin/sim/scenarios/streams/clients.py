"""Clients: publishers whose streams change, readers that ask queries. They come, go, move, and are slow at times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tocsin.core.machine import Event, Started, TimerFired
from tocsin.core.streams.metadata_payload import PROPERTY_PREFIX
from tocsin.model.stream import Diff, Metadata
from tocsin.model.stream_news import NEWS
from tocsin.query import Query, encode_filter, parse
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.process.caller import REFUSED, Caller
from tocsin.sim.world import World
from tocsin.wire.mqtt.topics import META_PREFIX, QUERY_PREFIX, STREAMS_PREFIX

QUERIES: Final = ("kind = 'lamp'", "room = '1' OR room = '2'", "kind = 'lamp' AND NOT room = '1'")
NAMES: Final = ("anna", "ben", "cleo")
EXPIRIES_S: Final = (0, 0, 30)
SLOW_US: Final = 3 * MILLION
WINDOW: Final = 3  # messages that a reader takes before it has acknowledged one
BURST_US: Final = 50_000  # longer than a message and its acknowledgement take
ACTIONS: Final = 150

# ── what the scenario has them do ────────────────────────────────────────────────────────────────────────────


class Publishes(Event, frozen=True, kw_only=True):
    """Messages on one of its streams: whether each is durable, and what it says of the stream."""

    topic: str
    messages: tuple[tuple[bool, Diff | None], ...]
    broker: str  # where it connects to, if it is connected to none
    expiry_s: int  # of its session, then


class Describes(Event, frozen=True, kw_only=True):
    """Something is said of one of its streams; None: forget what was said."""

    topic: str
    diff: Diff | None
    broker: str
    expiry_s: int


class Leaves(Event, frozen=True, kw_only=True):
    """It disconnects."""


class SlowsDown(Event, frozen=True, kw_only=True):
    """A reader acknowledges nothing for a while."""

    for_us: int


class Message:
    """A message of a stream."""

    def __init__(self, topic: str, source: str, number: int, durable: bool, at_us: int) -> None:
        self.topic = topic
        self.source = source  # the connection of its publisher
        self.number = number  # among the messages of its stream of the same kind, from this connection
        self.durable = durable
        self.at_us = at_us
        self.metadata: Metadata | None = None  # of its stream, when it went; None: not known
        self.after: Message | None = None  # of the same stream and connection, with nothing said in between


class Heard:
    """Collects what readers hear. Hooks are called with a reader, a word, a topic, and a message or None."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.hooks: list[Callable[[Reader, str, str, Message | None], None]] = []
        self.changes: list[tuple[int, str]] = []  # when somebody may have changed a stream, and whose
        self.departures: list[tuple[int, str]] = []  # when who disconnected
        self.mixing: dict[str, None] = {}  # who ended a connection before all its messages were answered

    def tell(self, reader: Reader, word: str, topic: str, message: Message | None = None) -> None:
        for hook in self.hooks:
            hook(reader, word, topic, message)


class Publisher(Caller):
    """Publishes on streams of its own. It connects when it has something to say, and again when it was lost."""

    def __init__(self, name: str, heard: Heard) -> None:
        super().__init__(name)
        self.unanswered: dict[int, None] = {}  # packet ids of durable messages of this connection
        self._heard = heard
        self._waiting: list[Publishes | Describes] = []  # until it is connected
        self._expiry_s = 0
        self._lasts = False  # it has a session
        self._numbers: dict[tuple[str, bool], int] = {}  # of this connection's messages
        self._last: dict[
            str, Message
        ] = {}  # topic → the last message of this connection, if none has changed it
        self._packet_id = 0
        self._dialled = False

    def greeting(self) -> ConnectPacket:
        clean = not (self._lasts and self._expiry_s)
        return ConnectPacket(
            self.name, clean_start=clean, session_expiry_interval=self._expiry_s, keep_alive=0
        )

    def told(self, event: Event) -> None:
        match event:
            case Publishes() | Describes():
                if self.connected:
                    self._do(event)
                    return
                self._waiting.append(event)
                if not self._dialled:
                    self._dialled = True
                    self._expiry_s = event.expiry_s
                    self.call(event.broker)
            case Leaves() if self.connected:
                self._note_change()
                self._note_end()
                self.say(DisconnectPacket())
                self.hang_up()
                self._dialled = False

    def welcomed(self, answer: ConnAckPacket) -> None:
        self._lasts = self._expiry_s > 0
        self.unanswered.clear()
        self._numbers.clear()
        self._last.clear()
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self._do(event)

    def heard(self, packet: Packet) -> None:
        if isinstance(packet, PubAckPacket):
            self.unanswered.pop(packet.packet_id, None)

    def lost(self) -> None:
        self._note_end()
        self._dialled = False
        self._waiting.clear()

    def _note_change(self) -> None:
        self._heard.changes.append((self.now_us, self.name))

    def _note_end(self) -> None:
        self._heard.departures.append((self.now_us, self.name))
        if self.unanswered:
            self._heard.mixing[self.name] = None

    def _do(self, event: Publishes | Describes) -> None:
        if isinstance(event, Describes):
            self._note_change()
            self._last.pop(event.topic, None)
            payload = b"" if event.diff is None else msgspec.json.encode(event.diff)
            self.say(PublishPacket(META_PREFIX + event.topic, payload, qos=QoS.AT_MOST_ONCE))
            return
        for durable, diff in event.messages:
            self._publish(event.topic, durable, diff)

    def _publish(self, topic: str, durable: bool, diff: Diff | None) -> None:
        if diff:
            self._note_change()
        number = self._numbers[topic, durable] = self._numbers.get((topic, durable), 0) + 1
        message = Message(topic, self._connection, number, durable, self.now_us)
        message.after = None if diff else self._last.get(topic)
        self._last[topic] = message
        self._heard.messages.append(message)
        packet_id = None
        if durable:
            self._packet_id = packet_id = 1 + self._packet_id % 60_000
            self.unanswered[packet_id] = None
        self.say(
            PublishPacket(
                topic,
                b"%d" % (len(self._heard.messages) - 1),
                qos=QoS(int(durable)),
                packet_id=packet_id,
                user_properties=[
                    (PROPERTY_PREFIX + key, str(value or "")) for key, value in (diff or {}).items()
                ],
            )
        )


class Reader(Caller):
    """Asks a query, for its set and for its messages, on one connection; when it is lost, it is over."""

    def __init__(self, name: str, heard: Heard, broker: str, query: Query) -> None:
        super().__init__(name)
        self.query = query
        self.live = True  # it was not lost with its broker
        self.subscribed = False  # it was told so
        self.known_us = 0  # when it was told the set
        self.caught_up_us = 0  # if its window is full, or was: when it may have got what the log has by then
        self._heard = heard
        self._broker = broker
        self._slow = False
        self._owed: list[int] = []  # packet ids that it has not acknowledged
        self._taken_us: deque[int] = deque(maxlen=WINDOW)  # when it got the last durable messages
        self._listing = STREAMS_PREFIX + encode_filter(query.text)
        self._parts: dict[str, None] = {}  # of a set that comes in several messages
        self._set: dict[str, None] = {}  # the streams that it was told of

    def greeting(self) -> ConnectPacket:
        return ConnectPacket(self.name, clean_start=True, keep_alive=0, receive_max=WINDOW)

    def told(self, event: Event) -> None:
        match event:
            case Started():
                self.call(self._broker)
            case SlowsDown(for_us=for_us) if not self._slow:
                self._slow = True
                self.caught_up_us = self.now_us + for_us + MILLION
                self.wake("hurry", for_us)
            case TimerFired(name="hurry"):
                self._slow = False
                self._acknowledge()

    def welcomed(self, answer: ConnAckPacket) -> None:
        names = (QUERY_PREFIX + encode_filter(self.query.text), self._listing)
        self.say(SubscribePacket(1, [TopicFilter(name, max_qos=QoS.AT_LEAST_ONCE) for name in names]))

    def heard(self, packet: Packet) -> None:
        match packet:
            case SubAckPacket(reason_codes=codes):
                self.subscribed = all(int(code) < REFUSED for code in codes)
            case PublishPacket(topic=topic, payload=payload):
                if topic == self._listing:
                    self._learn(bytes(payload or b""))
                else:
                    message = self._heard.messages[int(bytes(payload or b""))]
                    self._heard.tell(self, "message", topic, message)
                if packet.packet_id:
                    self._owed.append(packet.packet_id)
                    self._note_burst()
                    self._acknowledge()

    def lost(self) -> None:
        self.live = False

    def _learn(self, payload: bytes) -> None:
        news = NEWS.read(payload)
        if news.streams is not None:
            self._parts.update((each.topic, None) for each in news.streams)
            if not news.more:
                self._replace()
        for word, stream in (("joined", news.joined), ("left", news.left)):
            if stream is not None:
                if word == "joined":
                    self._set[stream.topic] = None
                else:
                    self._set.pop(stream.topic, None)
                self._heard.tell(self, word, stream.topic)

    def _replace(self) -> None:
        """It was told the whole set, for the first time or again."""
        self.known_us = self.known_us or self.now_us
        before, self._set, self._parts = self._set, self._parts, {}
        for topic in before:
            if topic not in self._set:
                self._heard.tell(self, "left", topic)
        for topic in self._set:
            if topic not in before:
                self._heard.tell(self, "joined", topic)

    def _note_burst(self) -> None:
        """Messages that come faster than they are acknowledged fill the window."""
        self._taken_us.append(self.now_us)
        if len(self._taken_us) == WINDOW and self.now_us - self._taken_us[0] < BURST_US:
            self.caught_up_us = max(self.caught_up_us, self.now_us + MILLION)

    def _acknowledge(self) -> None:
        if not self._slow:
            for packet_id in self._owed:
                self.say(PubAckPacket(packet_id))
            self._owed.clear()


def let_act(world: World, heard: Heard, brokers: Sequence[str], until_us: int) -> list[Reader]:
    """Add clients, and have them act; the readers."""
    return _Script(world, heard, brokers, until_us).readers


class _Script:
    """The actions of clients and their times, drawn before the run."""

    def __init__(self, world: World, heard: Heard, brokers: Sequence[str], until_us: int) -> None:
        self.readers: list[Reader] = []
        self._world = world
        self._heard = heard
        self._brokers = brokers
        self._until_us = until_us
        self._chance: Chance = world.chances.of("clients")
        for name in NAMES:
            world.add(name, lambda _disk, name=name: Publisher(name, heard))  # type: ignore[misc]
        acts: tuple[tuple[Callable[[int], None], int], ...] = (
            (self._ask, 2),
            (self._publish, 10),
            (self._describe, 2),
            (self._leave, 1),
            (self._slow, 1),
        )
        for _ in range(ACTIONS):
            self._chance.weighted(acts)(self._chance.below(until_us))

    def _post(self, at_us: int, name: str, event: Event) -> None:
        self._world.at(at_us, partial(_post, self._world, name, event))

    def _ask(self, at_us: int) -> None:
        name = f"reader/{len(self.readers)}"
        query = parse(self._chance.one_of(QUERIES))
        reader = Reader(name, self._heard, self._chance.one_of(self._brokers), query)
        self.readers.append(reader)
        self._world.add(name, lambda _disk: reader, start_us=at_us)

    def _slow(self, at_us: int) -> None:
        if self.readers:
            for_us = self._chance.below(SLOW_US)
            reader = self._chance.one_of(self.readers)
            self._post(at_us, reader.name, SlowsDown(for_us=for_us, cause=reader.name))

    def _diff(self) -> Diff:
        diff: dict[str, str | None] = {}
        if self._chance.below(2):
            diff["kind"] = self._chance.one_of(("lamp", "door", None))
        if self._chance.below(2):
            diff["room"] = str(self._chance.between(1, 3))
        return diff

    def _publish(self, at_us: int) -> None:
        """A few messages of one client on one of its streams; one of them may say something of it."""
        messages = tuple(
            (not self._chance.below(2), self._diff() if not self._chance.below(3) else None)
            for _ in range(self._chance.between(1, 3))
        )
        name, chance = self._chance.one_of(NAMES), self._chance
        self._post(
            at_us,
            name,
            Publishes(
                topic=f"{name}/{chance.between(1, 2)}",
                messages=messages,
                broker=chance.one_of(self._brokers),
                expiry_s=chance.one_of(EXPIRIES_S),
                cause=name,
            ),
        )

    def _describe(self, at_us: int) -> None:
        name, chance = self._chance.one_of(NAMES), self._chance
        self._post(
            at_us,
            name,
            Describes(
                topic=f"{name}/{chance.between(1, 2)}",
                diff=self._diff() if chance.below(6) else None,
                broker=chance.one_of(self._brokers),
                expiry_s=chance.one_of(EXPIRIES_S),
                cause=name,
            ),
        )

    def _leave(self, at_us: int) -> None:
        name = self._chance.one_of(NAMES)
        self._post(at_us, name, Leaves(cause=name))


def _post(world: World, name: str, event: Event) -> None:
    world.post(name, event)
