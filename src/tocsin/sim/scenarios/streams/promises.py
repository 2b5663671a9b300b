"""The promises to publishers and to subscribers with queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.core.delivery.wanted import overlap
from tocsin.core.filters import interest_of
from tocsin.model.publication import decode_publication
from tocsin.model.stream import Metadata
from tocsin.model.subjects import said_reference
from tocsin.ports import Entry
from tocsin.sim.process.broker import broker_at
from tocsin.sim.process.stage import LOG
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.streams.asking import Asker
from tocsin.sim.scenarios.streams.clients import NAMES, Heard, Message, Publisher, Reader
from tocsin.sim.world import World

LED_US: Final = 4_000_000  # by which every broker has heard of a leader; before, nothing waits
MOMENT_US: Final = 200_000  # longer than a message takes over two links, and waits at its gate


class InTurn(Invariant):
    """A subscriber hears joined, the messages of the stream in order, left, joined … and no message outside.

    If something fails, a message may come without its *joined*: to a subscriber that reads the log late, as a publisher
    waits a while for others to know of its stream, and no longer; to one that was not told the set yet, as SUBACK waits
    a while for the coordinator, and no longer; and from a client that had left with messages on their way: what it says
    on its old connection mixes with what it says on the new one.
    """

    name = "messages come between joined and left"

    def __init__(self, heard: Heard) -> None:
        heard.hooks.append(self._hear)
        self._mixing = heard.mixing
        self._told: dict[Reader, set[str]] = {}
        self._numbers: dict[tuple[Reader, str, str, bool], int] = {}

    def attach(self, world: World) -> None:
        self._world = world

    def _hear(self, reader: Reader, word: str, topic: str, message: Message | None) -> None:
        told = self._told.setdefault(reader, set())
        inside = topic in told
        if word == "joined":
            told.add(topic)
        elif word == "left":
            told.discard(topic)
        if inside == (word == "joined") and not (word == "message" and self._excused(reader, topic)):
            self.broken(f"{reader.name} hears of {topic}: {word}, and it is {'in' if inside else 'out'}")
        if message is not None and (message.durable or not self._world.plan):
            self._in_order(reader, message)  # while routes change, QoS 0 may come by two ways

    def _excused(self, reader: Reader, topic: str) -> bool:
        if not reader.subscribed:
            return True  # it does not know yet that it is
        late = not reader.known_us or self._world.now_us < reader.caught_up_us
        return bool(self._world.plan) and (late or topic.partition("/")[0] in self._mixing)

    def _in_order(self, reader: Reader, message: Message) -> None:
        key = (reader, message.source, message.topic, message.durable)
        if message.number <= self._numbers.get(key, 0):
            self.broken(
                f"{reader.name} hears message {message.number} of {message.topic} after {self._numbers[key]}"
            )
        self._numbers[key] = message.number


class Complete(Invariant):
    """Where nothing fails, a client with a query gets every message of every stream that satisfied it.

    But a message at QoS 0 may be overtaken by a change of its stream a moment later, and may miss a client that has
    just subscribed. A client that moves may be heard on its old and its new connection in any order. The log tells
    the metadata of durable messages, and of the messages that follow them.
    """

    name = "no message of a stream is missing"

    def __init__(self, heard: Heard, readers: Sequence[Reader]) -> None:
        heard.hooks.append(self._hear)
        self._clients = heard
        self._readers = readers
        self._heard: set[tuple[Reader, Message]] = set()
        self.looked = 0  # how often a reader had to get a message

    def attach(self, world: World) -> None:
        world.observers.on_entry(LOG.name, self._note)

    def _note(self, entry: Entry) -> None:
        if said_reference(entry.subject) is None:
            publication = decode_publication(entry.payload)
            self._clients.messages[int(publication.payload)].metadata = publication.metadata

    def _hear(self, reader: Reader, word: str, topic: str, message: Message | None) -> None:
        if message is not None:
            self._heard.add((reader, message))

    def finish(self, world: World) -> None:
        if world.plan:
            return
        messages = [message for message in self._clients.messages if message.at_us > LED_US]
        for reader in self._readers:
            for message in messages:
                metadata = _metadata(message)
                if metadata is None or not 0 < reader.known_us < message.at_us or not reader.live:
                    continue
                if not reader.query.matches(metadata) or self._excused(reader, message):
                    continue
                self.looked += 1
                if (reader, message) not in self._heard:
                    kind = "durable message" if message.durable else "message"
                    self.broken(
                        f"{reader.name} at {reader.at} never got {kind} {message.number} of {message.topic}, "
                        f"published at {message.at_us}, for {reader.query.text}"
                    )

    def _excused(self, reader: Reader, message: Message) -> bool:
        """Whether it may be missing for a reason that the class names."""
        at_us, client = message.at_us, message.topic.partition("/")[0]
        moved = any(
            name == client and abs(at_us - when_us) <= MOMENT_US for when_us, name in self._clients.departures
        )
        changed = at_us - reader.known_us < MOMENT_US or any(
            name == client and at_us <= when_us <= at_us + MOMENT_US
            for when_us, name in self._clients.changes
        )
        return moved or (changed and not message.durable)


class NothingWaits(Invariant):
    """In the end every message has gone, and every change is settled."""

    name = "nothing waits for ever"

    def __init__(self, brokers: Sequence[str]) -> None:
        self._brokers = brokers

    def finish(self, world: World) -> None:
        for name in self._brokers:
            broker = broker_at(world, name)
            if broker is None:
                self.broken(f"{name} does not run")
            registry = broker.parts.registry
            held = registry.statistics()["held"]
            if held or registry.unsettled:
                self.broken(f"{name}: {held} messages wait, {registry.unsettled} changes are unsettled")
        for name in NAMES:
            publisher = world.machine(name)
            if isinstance(publisher, Publisher) and publisher.connected and publisher.unanswered:
                self.broken(f"{name} waits for {len(publisher.unanswered)} answers")


class Truthful(Invariant):
    """In the end every asker knows whether anybody else wants topics of its filter."""

    name = "askers know whether they are wanted"

    def __init__(self, brokers: Sequence[str], askers: Sequence[Asker]) -> None:
        self._brokers = brokers
        self._askers = askers
        self.looked: list[bool] = []  # the answers that were right

    def finish(self, world: World) -> None:
        wanted: list[tuple[str, str]] = []  # client, and filter or topic
        for name in self._brokers:
            broker = broker_at(world, name)
            if broker is not None:
                wanted += broker.parts.exchange.wanting()
        for asker in self._askers:
            if asker.live and asker.subscribed:
                others = [
                    each for who, each in wanted if who != asker.name and _overlap(each, asker.question)
                ]
                if asker.wanted is not bool(others):
                    self.broken(
                        f"{asker.name} at {asker.at} was told {asker.wanted} of {asker.question}: {others}"
                    )
                self.looked.append(bool(others))


def _overlap(wanted: str, asked: str) -> bool:
    pattern = interest_of(wanted).pattern
    return not pattern.startswith("$") and overlap(pattern, asked)


def _metadata(message: Message | None) -> Metadata | None:
    """The metadata of a message's stream when the message went: as the log has it, or as it was with the message
    before."""
    while message is not None and message.metadata is None:
        message = message.after
    return None if message is None else message.metadata
