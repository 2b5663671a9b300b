"""The clients' QoS 0 traffic, and the links that are cut during it.

A way from one broker to another may also be **narrow** for a while, and be offered more than it can carry.

A **station** is a client at each broker. It is subscribed to some topics and publishes on all of them, as the scenario
has it. A **cut** is of one link: what the one broker has dialled to the other carries nothing any more, as if something
between them had lost its way; the link in the other direction works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from mqtt5 import (
    ConnAckPacket,
    Packet,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tocsin.core.machine import Event, Started, TimerFired
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.process.caller import Caller
from tocsin.sim.process.wires import Wires
from tocsin.sim.world import World

TOPICS: Final = ("a", "b", "c")
PUBLISH_US: Final = 300_000
BUSY_US: Final = 100_000
CUTS_MAX: Final = 6
MOMENT_US: Final = 1_000_000  # before the end, so that the last messages arrive
REDIAL_US: Final = 500_000
LARGE_BYTES: Final = 10_000  # of a message that fills a narrow way
RATES: Final = (5_000, 30_000)  # bytes a second of a narrow way: the busy client alone publishes 100 000
NARROW_US: Final = (12 * MILLION, 25 * MILLION)
NARROWS_MAX: Final = 3

Pair = tuple[str, str]


class Speak(Event, frozen=True, kw_only=True):
    """A station is to publish."""

    topic: str
    size: int = 0  # of the message, at least


class Message:
    """A message of a topic, published at a broker."""

    def __init__(self, topic: str, origin: str, at_us: int) -> None:
        self.topic = topic
        self.origin = origin
        self.at_us = at_us


class Traffic:
    """All messages. ``on_got`` is called with the broker at which a station got one, and the message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.on_got: list[Callable[[str, Message], None]] = []

    def publish(self, topic: str, origin: str, at_us: int) -> bytes:
        self.messages.append(Message(topic, origin, at_us))
        return b"%d" % (len(self.messages) - 1)

    def got(self, broker: str, payload: bytes) -> None:
        message = self.messages[int(payload)]
        for hook in self.on_got:
            hook(broker, message)


class Station(Caller):
    """A client at one broker, which comes back whenever it loses it."""

    def __init__(self, traffic: Traffic, broker: str, wanted: Sequence[str]) -> None:
        super().__init__(station_of(broker))
        self.ready = False  # it is connected and subscribed
        self._traffic = traffic
        self._broker = broker
        self._wanted = wanted

    def told(self, event: Event) -> None:
        match event:
            case Started() | TimerFired():
                self.call(self._broker)
            case Speak(topic=topic, size=size) if self.ready:
                payload = self._traffic.publish(topic, self._broker, self.now_us).ljust(size)
                self.say(PublishPacket(topic, payload, qos=QoS.AT_MOST_ONCE))

    def welcomed(self, answer: ConnAckPacket) -> None:
        self.ready = not self._wanted
        if self._wanted:
            self.say(SubscribePacket(1, [TopicFilter(each) for each in self._wanted]))

    def heard(self, packet: Packet) -> None:
        match packet:
            case SubAckPacket():
                self.ready = True
            case PublishPacket(payload=payload):
                self._traffic.got(self._broker, bytes(payload or b""))

    def lost(self) -> None:
        self.ready = False
        self.wake("dial", REDIAL_US)


def station_of(broker: str) -> Address:
    """The node of a broker's station."""
    return f"station/{broker}"


class LinkCut(msgspec.Struct, frozen=True):
    """Links that are cut, from when on and until when; None: to the end."""

    at_us: int
    until_us: int | None
    pairs: tuple[Pair, ...]  # the dialling broker, and the dialled one


def draw_cuts(clusters: Mapping[str, str], until_us: int, chance: Chance) -> list[LinkCut]:
    """Cuts of single links, of both directions, of all to one broker, and of all from one cluster into the other."""
    names = list(clusters)
    cuts = []
    for _ in range(chance.between(1, CUTS_MAX)):
        one, other = chance.some_of(names, 2)
        pairs = [(one, other), (other, one)] if chance.below(2) else [(one, other)]
        wide = chance.below(8)
        if wide < 2:  # nobody reaches it
            pairs = [(each, other) for each in names if each != other]
        elif wide == 2 and clusters[one] != clusters[other]:  # nobody here reaches anybody there
            here, there = clusters[one], clusters[other]
            pairs = [(a, b) for a in names if clusters[a] == here for b in names if clusters[b] == there]
        at_us = chance.below(until_us)
        end_us = min(until_us, at_us + chance.between(1, 16) * MILLION) if chance.below(2) else None
        cuts.append(LinkCut(at_us, end_us, tuple(pairs)))
    return cuts


class Cuts:
    """The links that are cut now."""

    def __init__(self, world: World, wires: Wires, cuts: Sequence[LinkCut]) -> None:
        self.cut: dict[Pair, int] = {}  # links that are, and how many cuts they have
        self._world = world
        self._wires = wires
        for each in cuts:
            world.at(each.at_us, partial(self._begin, each.pairs))
            if each.until_us is not None:
                world.at(each.until_us, partial(self._end, each.pairs))

    def _begin(self, pairs: Sequence[Pair]) -> None:
        for pair in pairs:
            self.cut[pair] = self.cut.get(pair, 0) + 1
            self._wires.bar(*pair)
            self._world.tell("nemesis", f"cuts the link {' → '.join(pair)}")

    def _end(self, pairs: Sequence[Pair]) -> None:
        for pair in pairs:
            self.cut[pair] -= 1
            if not self.cut[pair]:
                del self.cut[pair]
                self._wires.unbar(*pair)
                self._world.tell("nemesis", f"mends the link {' → '.join(pair)}")


class NarrowWay(msgspec.Struct, frozen=True):
    """A way that is narrow for a while."""

    at_us: int
    until_us: int
    way: Pair  # who sends over it, and to whom
    rate: int  # bytes a second


def draw_narrow_ways(names: Sequence[str], until_us: int, chance: Chance) -> list[NarrowWay]:
    """One after the other, so that no message passes two."""
    ways, at_us = [], 0
    for _ in range(chance.between(1, NARROWS_MAX)):
        at_us += chance.between(2, 6) * MILLION
        end_us = min(until_us, at_us + chance.between(*NARROW_US))
        if end_us - at_us >= NARROW_US[0]:
            one, other = chance.some_of(names, 2)
            ways.append(NarrowWay(at_us, end_us, (one, other), chance.between(*RATES)))
        at_us = end_us
    return ways


def make_narrow(world: World, wires: Wires, ways: Iterable[NarrowWay]) -> None:
    """Have the ways narrow when it is time."""
    for each in ways:
        world.at(each.at_us, partial(wires.narrow, *each.way, each.rate))
        world.at(each.until_us, partial(wires.narrow, *each.way, 0))


def let_publish(
    world: World, names: Sequence[str], busy_until_us: int, until_us: int, chance: Chance, *, large: int = 0
) -> None:
    """Somebody publishes all the time, and one so often that messages could overtake each other; its messages are
    large."""
    for at_us in range(PUBLISH_US, until_us - MOMENT_US, PUBLISH_US):
        _speak_at(world, at_us, chance.one_of(names), chance.one_of(TOPICS))
    busy = chance.one_of(names)
    for at_us in range(BUSY_US, busy_until_us, BUSY_US):
        _speak_at(world, at_us, busy, TOPICS[0], large)


def _speak_at(world: World, at_us: int, broker: str, topic: str, size: int = 0) -> None:
    def speak() -> None:
        world.post(station_of(broker), Speak(topic=topic, size=size, cause=topic))

    world.at(at_us, speak)
