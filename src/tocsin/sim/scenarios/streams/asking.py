"""Askers, which want to know whether anybody else wants topics of a filter, and listeners, which want some at times."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from mqtt5 import (
    ConnectPacket,
    Packet,
    PublishPacket,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
)

from tocsin.core.machine import Event, Started
from tocsin.model.demand_news import DEMAND_NEWS
from tocsin.sim.chance import Chance
from tocsin.sim.process.caller import REFUSED, Caller
from tocsin.sim.world import World
from tocsin.wire.mqtt.topics import WANTED_PREFIX

# Mostly of topics that no query brings: nearly every stream is wanted by one.
FILTERS: Final = ("quiet/1", "quiet/2", "+/3", "still/#", "$share/group/quiet/4", "anna/1")
QUESTIONS: Final = ("quiet/1", "quiet/+", "+/3", "quiet/4", "still/1/#", "still/+", "anna/+")
ASKERS: Final = 3
LISTENERS: Final = 2
CHANGES: Final = 16


class Turns(Event, frozen=True, kw_only=True):
    """It subscribes to a filter, or unsubscribes if it has it."""

    filter: str


class Listener(Caller):
    """Subscribes and unsubscribes, on one connection; when that is lost, it is over."""

    def __init__(self, name: str, broker: str) -> None:
        super().__init__(name)
        self._broker = broker
        self._held: set[str] = set()
        self._packet_id = 1

    def greeting(self) -> ConnectPacket:
        return ConnectPacket(self.name, clean_start=True, keep_alive=0)

    def told(self, event: Event) -> None:
        match event:
            case Started():
                self.call(self._broker)
            case Turns(filter=name) if self.connected:
                self._packet_id += 1
                if name in self._held:
                    self.say(UnsubscribePacket(self._packet_id, [name]))
                else:
                    self.say(SubscribePacket(self._packet_id, [TopicFilter(name)]))
                self._held ^= {name}


class Asker(Listener):
    """Asks about one filter. It may want topics itself, which does not count for it."""

    def __init__(self, name: str, broker: str, question: str) -> None:
        super().__init__(name, broker)
        self.question = question
        self.live = True  # its connection was not lost
        self.subscribed = False
        self.wanted: bool | None = None  # as it was told last

    def welcomed(self, answer: Packet) -> None:
        self.say(SubscribePacket(1, [TopicFilter(WANTED_PREFIX + self.question)]))

    def heard(self, packet: Packet) -> None:
        match packet:
            case SubAckPacket(packet_id=1, reason_codes=codes):
                self.subscribed = all(int(code) < REFUSED for code in codes)
            case PublishPacket(topic=topic, payload=payload) if topic.startswith(WANTED_PREFIX):
                self.wanted = DEMAND_NEWS.read(bytes(payload or b"")).wanted

    def lost(self) -> None:
        self.live = False


def let_ask(world: World, brokers: Sequence[str], until_us: int) -> list[Asker]:
    """Add askers and listeners, and have them act; the askers."""
    chance: Chance = world.chances.of("askers")
    askers = [
        Asker(f"asker/{number}", chance.one_of(brokers), chance.one_of(QUESTIONS)) for number in range(ASKERS)
    ]
    others = [Listener(f"listener/{number}", chance.one_of(brokers)) for number in range(LISTENERS)]
    for each in (*askers, *others):
        world.add(each.name, lambda _disk, each=each: each, start_us=chance.below(until_us // 2))  # type: ignore[misc]
    for _ in range(CHANGES):
        who = chance.one_of([*others, *others, *askers])
        turn = Turns(filter=chance.one_of(FILTERS), cause=who.name)
        world.at(chance.below(until_us), partial(_post, world, who.name, turn))
    return askers


def _post(world: World, name: str, event: Event) -> None:
    world.post(name, event)
