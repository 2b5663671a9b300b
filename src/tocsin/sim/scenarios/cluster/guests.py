"""Clients whose sessions last: they come to a broker, subscribe or unsubscribe, and stay until they go elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tocsin.core.machine import Event, TimerFired
from tocsin.sim.chance import MILLION
from tocsin.sim.process.caller import Caller
from tocsin.sim.world import World
from tocsin.wire.mqtt.reasons import is_degraded

EXPIRY_S: Final = 3_600
REDIAL_US: Final = MILLION
KEEP_ALIVE_S: Final = 12
NAMES: Final = ("a", "b", "c")
COMINGS: Final = 70


class Comes(Event, frozen=True, kw_only=True):
    """A client comes to a broker, and subscribes or unsubscribes."""

    broker: str
    name: str
    wanted: bool


class Guest(Caller):
    """One of them. It tries its broker again and again, until it is to come elsewhere."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.provisional = 0  # how often it was told that a subscription is stored later
        self._wish: Comes | None = None  # what it has not been answered
        self._packet_id = 0
        self._pinged = False  # and not answered

    def greeting(self) -> ConnectPacket:
        return ConnectPacket(
            self.name, clean_start=False, session_expiry_interval=EXPIRY_S, keep_alive=KEEP_ALIVE_S
        )

    def told(self, event: Event) -> None:
        match event:
            case Comes():
                self._wish = event
                if self.connected and self.at == event.broker:
                    self._ask()
                else:
                    self.call(event.broker)
            case TimerFired(name="dial") if not self.connected and self.at:
                self.call(self.at)
            case TimerFired(name="ping") if self.connected:
                self._ping()

    def welcomed(self, answer: ConnAckPacket) -> None:
        self._pinged = False
        self.wake("ping", KEEP_ALIVE_S * MILLION // 2)
        self._ask()

    def heard(self, packet: Packet) -> None:
        match packet:
            case SubAckPacket(packet_id=packet_id) | UnsubAckPacket(packet_id=packet_id):
                if packet_id == self._packet_id:
                    self._wish = None
                if is_degraded(packet):
                    self.provisional += 1
            case PingRespPacket():
                self._pinged = False

    def lost(self) -> None:
        self.wake("dial", REDIAL_US)

    def _ask(self) -> None:
        wish = self._wish
        if wish is None:
            return
        self._packet_id += 1
        if wish.wanted:
            self.say(SubscribePacket(self._packet_id, [TopicFilter(wish.name, max_qos=QoS.AT_LEAST_ONCE)]))
        else:
            self.say(UnsubscribePacket(self._packet_id, [wish.name]))

    def _ping(self) -> None:
        if self._pinged:
            self.hang_up()
            self.lost()
            return
        self._pinged = True
        self.say(PingReqPacket())
        self.wake("ping", KEEP_ALIVE_S * MILLION // 2)


def let_come(
    world: World, guests: Mapping[str, Sequence[str]], brokers: Sequence[str], until_us: int
) -> None:
    """Have clients come, most of the time to a broker that is near; ``guests`` are they, each with those that are."""
    chance = world.chances.of("clients")
    names = tuple(guests)
    for number in range(COMINGS):
        at_us, guest = chance.below(until_us), chance.one_of(names)
        comes = Comes(
            broker=chance.one_of(guests[guest] if chance.below(6) else brokers),
            name=chance.one_of(NAMES),
            wanted=bool(chance.below(3)),
            cause=f"coming {number}",
        )
        world.at(at_us, lambda guest=guest, comes=comes: _come(world, guest, comes))  # type: ignore[misc]


def _come(world: World, guest: str, comes: Comes) -> None:
    world.post(guest, comes)
