"""Streams that are new, or that somebody publishes on again: topics on which brokers come to publish while it runs.

At each broker a **regular** publishes on each of these topics from some moment on, and **visitors** come, publish on
one and leave. So brokers get routes with their first message, keep them while somebody publishes there, and lose them
after a while. Stations do not publish on these topics: what a client publishes behind a first message waits with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mqtt5 import ConnAckPacket, PublishPacket, QoS

from tocsin.core.machine import Event, Started, TimerFired
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.process.caller import Caller
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.links.traffic import REDIAL_US, Message, Speak, Traffic
from tocsin.sim.scenarios.tiers.troubles import FLIGHT_US, Troubles
from tocsin.sim.world import World

TOPICS: Final = tuple(f"late/{number}" for number in range(5))
EVERY: Final = "late/#"
CLEAR_US: Final = 5 * MILLION  # so long a first message may wait for a leader
STAY_US: Final = (MILLION, 3 * MILLION)
AGAIN_US: Final = (MILLION // 4, 25 * MILLION)  # between two messages of a regular
VISITS: Final = 5  # at each broker


class Regular(Caller):
    """A client that stays at a broker to publish."""

    def __init__(self, traffic: Traffic, broker: str) -> None:
        super().__init__(regular_of(broker))
        self._traffic = traffic
        self._broker = broker

    def told(self, event: Event) -> None:
        match event:
            case Started() | TimerFired():
                self.call(self._broker)
            case Speak(topic=topic) if self.connected:
                payload = self._traffic.publish(topic, self._broker, self.now_us)
                self.say(PublishPacket(topic, payload, qos=QoS.AT_MOST_ONCE))

    def lost(self) -> None:
        self.wake("dial", REDIAL_US)


def regular_of(broker: str) -> Address:
    """The node of a broker's regular."""
    return f"regular/{broker}"


class Visitor(Caller):
    """A client that comes to a broker to publish, and leaves soon."""

    def __init__(self, traffic: Traffic, broker: str, stay_us: int) -> None:
        super().__init__(visitor_of(broker))
        self._traffic = traffic
        self._broker = broker
        self._stay_us = stay_us
        self._topic = ""

    def told(self, event: Event) -> None:
        match event:
            case Speak(topic=topic):
                self._topic = topic
                self.call(self._broker)
            case TimerFired():
                self.hang_up()

    def welcomed(self, answer: ConnAckPacket) -> None:
        payload = self._traffic.publish(self._topic, self._broker, self.now_us)
        self.say(PublishPacket(self._topic, payload, qos=QoS.AT_MOST_ONCE))
        self.wake("leave", self._stay_us)


def visitor_of(broker: str) -> Address:
    """The node of a broker's visitor."""
    return f"visitor/{broker}"


def draw_wanted(names: Sequence[str], chance: Chance) -> dict[str, tuple[str, ...]]:
    """What each station is subscribed to: everything, some topics, or nothing."""
    wanted = {}
    for name in names:
        kind = chance.below(3)
        wanted[name] = (
            (EVERY,) if not kind else tuple(each for each in TOPICS if kind == 1 and chance.below(2))
        )
    return wanted


def let_come(world: World, traffic: Traffic, names: Sequence[str], from_us: int, until_us: int) -> None:
    """Have regulars publish on new topics, and visitors come."""
    chance = world.chances.of("newcomers")
    for name in names:
        for topic in TOPICS:
            at_us = chance.between(from_us, until_us)
            while at_us < until_us:
                _speak_at(world, at_us, regular_of(name), topic)
                at_us += chance.between(*AGAIN_US)
        world.add(regular_of(name), lambda _disk, name=name: Regular(traffic, name))  # type: ignore[misc]
        stay_us = chance.between(*STAY_US)
        world.add(visitor_of(name), lambda _disk, name=name, stay_us=stay_us: Visitor(traffic, name, stay_us))  # type: ignore[misc]
        for _ in range(VISITS):
            _speak_at(world, chance.between(from_us, until_us), visitor_of(name), chance.one_of(TOPICS))


def _speak_at(world: World, at_us: int, node: Address, topic: str) -> None:
    def speak() -> None:
        world.post(node, Speak(topic=topic, cause=topic))

    world.at(at_us, speak)


class NoneLost(Invariant):
    """Messages on new streams come to all who want them, the first ones too; they may wait for a leader."""

    name = "no message of a new stream is lost"

    def __init__(
        self, traffic: Traffic, wanted: Mapping[str, Sequence[str]], troubles: Troubles, end_us: int
    ) -> None:
        self._traffic = traffic
        self._wanted = wanted
        self._troubles = troubles
        self._end_us = end_us
        self._got: set[tuple[str, Message]] = set()
        self.checked = 0
        traffic.on_got.append(lambda broker, message: self._got.add((broker, message)))

    def finish(self, world: World) -> None:
        for message in self._traffic.messages:
            for broker, filters in self._wanted.items():
                if message.topic not in TOPICS or not {message.topic, EVERY}.intersection(filters):
                    continue
                if not self._is_calm(message, broker):
                    continue
                self.checked += 1
                if (broker, message) not in self._got:
                    self.broken(
                        f"{broker} never got what {message.origin} published on {message.topic} at {message.at_us}"
                    )

    def _is_calm(self, message: Message, broker: str) -> bool:
        """Whether nothing is wrong from its publishing until it must have come."""
        until_us = message.at_us + CLEAR_US + FLIGHT_US
        times = range(message.at_us, until_us + 1, FLIGHT_US)
        return until_us < self._end_us and all(
            self._troubles.calm(at_us, broker, message.origin) for at_us in times
        )
