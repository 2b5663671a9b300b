"""What publishers and those who ask queries are promised."""

from __future__ import annotations

from typing import Final

from tocsin.sim.invariants import Invariant
from tocsin.sim.scenarios.streams.brokers import Brokers, Message, Reader, Source
from tocsin.sim.scenarios.streams.clients import Clients
from tocsin.sim.world import World

LED_US: Final = 2_000_000  # by which every broker has heard of a leader; before, nothing waits
MOMENT_US: Final = 200_000  # longer than a message takes over two links, and waits at its gate


class InTurn(Invariant):
    """A subscriber hears joined, the messages of the stream in order, left, joined … and no message outside.

    A message may come without its *joined* to a subscriber that reads the log late, if something fails: a publisher
    waits a while for others to know of its stream, and no longer.
    """

    name = "messages come between joined and left"

    def __init__(self, brokers: Brokers) -> None:
        brokers.on_heard.append(self._hear)
        self._told: dict[Reader, set[str]] = {}
        self._numbers: dict[tuple[Reader, Source, str, bool], int] = {}

    def attach(self, world: World) -> None:
        self._world = world

    def _hear(self, reader: Reader, word: str, topic: str, message: Message | None) -> None:
        told = self._told.setdefault(reader, set())
        inside = topic in told
        if word == "joined":
            told.add(topic)
        elif word == "left":
            told.discard(topic)
        if inside == (word == "joined") and not (word == "message" and self._excused(reader)):
            self.broken(f"{reader.address} hears of {topic}: {word}, and it is {'in' if inside else 'out'}")
        if message is not None and (message.durable or not self._world.plan):
            self._in_order(reader, message)  # while routes change, QoS 0 may come by two ways

    def _excused(self, reader: Reader) -> bool:
        unanswered = not reader.known_us  # it does not know yet that it is subscribed
        return unanswered or (bool(self._world.plan) and reader.behind is not None)

    def _in_order(self, reader: Reader, message: Message) -> None:
        key = (reader, message.source, message.topic, message.durable)
        if message.number <= self._numbers.get(key, 0):
            self.broken(
                f"{reader.address} hears message {message.number} of {message.topic} after {self._numbers[key]}"
            )
        self._numbers[key] = message.number


class Complete(Invariant):
    """Where nothing fails, whoever asks a query gets every message of every stream that satisfied it.

    But a message at QoS 0 may be overtaken by what changes its stream a moment later, and may not know the way to who
    has just asked; and what a client that moves says on its old connection mixes with what it says on the new one.
    """

    name = "no message of a stream is missing"

    def __init__(self, brokers: Brokers, clients: Clients) -> None:
        brokers.on_heard.append(self._hear)
        self._clients = clients
        self._heard: set[tuple[Reader, Message]] = set()

    def _hear(self, reader: Reader, word: str, topic: str, message: Message | None) -> None:
        if message is not None:
            self._heard.add((reader, message))

    def finish(self, world: World) -> None:
        if world.plan:
            return
        messages = [message for message in self._clients.messages if message.at_us > LED_US]
        for reader in self._clients.readers:
            for message in messages:
                wanted = 0 < reader.known_us < message.at_us and reader.query.matches(message.metadata)
                if wanted and (reader, message) not in self._heard and not self._excused(reader, message):
                    kind = "durable message" if message.durable else "message"
                    self.broken(
                        f"{reader.address} never got {kind} {message.number} of {message.topic}, "
                        f"published at {message.at_us}, for {reader.query.text}"
                    )

    def _excused(self, reader: Reader, message: Message) -> bool:
        """Whether it may be missing for a reason that the class names."""
        at_us, client = message.at_us, message.source.client
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

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def finish(self, world: World) -> None:
        for address, broker in self._brokers.brokers.items():
            held = sum(len(source.gate) for source in broker.sources.values())
            if held or broker.held or broker.commits or broker.settled != broker.said:
                self.broken(
                    f"{address}: {held} messages wait, {broker.said - broker.settled} changes are unsettled"
                )
