"""Publishers with leases and flows at QoS 0, a subscriber that never leaves, and subscribers that come late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    Packet,
    PingReqPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    UnsubAckPacket,
    UnsubscribePacket,
)

from tocsin.core.machine import Event, Started, TimerFired
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.process.caller import Caller

LEASE_US: Final = 5 * MILLION
PING_US: Final = MILLION
PUBLISH_US: Final = 150_000
REDIAL_US: Final = 200_000
SESSION_S: Final = 600
LIVES: Final = "$qos/liveliness/"
MISMATCHES: Final = "$qos/incompatible/"


class Move(Event, frozen=True, kw_only=True):
    """A source is to go elsewhere."""


class Source(Caller):
    """Publishes numbered messages on its own topic, and moves between brokers. Its session lasts, so that its lease
    goes on where it comes; it publishes only now and then after it has moved."""

    def __init__(
        self,
        name: str,
        brokers: Sequence[str],
        topic: str,
        offer: str,
        chance: Chance,
        quiet: bool = False,
        period_us: int = PUBLISH_US,
    ) -> None:
        super().__init__(name)
        self.topic = topic
        self.number = 0  # of its newest message
        self.flow = 0  # of its connections
        self.first: dict[int, int] = {}  # the first number of each flow
        self.away_us: int | None = 0  # since when it has no connection; None: it has one
        self.gaps: list[tuple[int, int]] = []  # when it had none
        self._brokers = brokers
        self._offer = offer
        self._chance = chance
        self._quiet = quiet  # it publishes once, and then shows only that it is there
        self._period_us = period_us
        self.until_us = 0  # it publishes so long
        self.mismatches: list[str] = []  # topics of which it was told that somebody requests more

    def greeting(self) -> ConnectPacket:
        return ConnectPacket(self.name, clean_start=False, keep_alive=0, session_expiry_interval=SESSION_S)

    def told(self, event: Event) -> None:
        match event:
            case Started():
                self.wake("dial", MILLION)
            case TimerFired(name="dial"):
                self.call(self._chance.one_of(self._brokers))
            case TimerFired(name="ping") if self.connected:
                self.say(PingReqPacket())
                self.wake("ping", PING_US)
            case TimerFired(name="publish") if self.connected:
                self.publish()
            case Move() if self.connected:
                self.hang_up()
                self.lost()

    def publish(self) -> None:
        if self.now_us < self.until_us and not (self._quiet and self.number):
            self.number += 1
            self.first.setdefault(self.flow, self.number)
            policies = (each.partition("=") for each in self._offer.split(","))
            said = [(f"offer.{policy}", value) for policy, _, value in policies]
            payload = b"%d %d" % (self.flow, self.number)
            self.say(PublishPacket(self.topic, payload, qos=QoS.AT_MOST_ONCE, user_properties=said))
        self.wake("publish", self._period_us)

    def welcomed(self, answer: ConnAckPacket) -> None:
        self.flow += 1
        if self.away_us is not None:
            self.gaps.append((self.away_us, self.now_us))
            self.away_us = None
        self.say(SubscribePacket(1, [TopicFilter(f"{MISMATCHES}#")]))
        self.wake("ping", PING_US)
        self.wake("publish", PUBLISH_US)

    def heard(self, packet: Packet) -> None:
        if isinstance(packet, PublishPacket):
            self.mismatches.append(packet.topic.removeprefix(MISMATCHES))

    def lost(self) -> None:
        if self.away_us is None:
            self.away_us = self.now_us
        self.wake("dial", REDIAL_US)


class Got(msgspec.Struct, frozen=True):
    """A message that the subscriber got."""

    topic: str
    flow: int
    number: int
    at_us: int


class Sink(Caller):
    """Subscribes with requests, and to news of who is alive."""

    def __init__(self, name: str, broker: str, filters: Sequence[str]) -> None:
        super().__init__(name)
        self.ready_us: int | None = None  # when all was granted
        self.got: list[Got] = []
        self.mismatches: dict[str, int] = {}  # topics that do not match a subscription → when it was told
        self.lives: list[tuple[int, str, int, int]] = []  # when, topic, alive, not alive
        self.on_got: list[Callable[[Got], None]] = []
        self._broker = broker
        self._filters = filters

    def told(self, event: Event) -> None:
        if isinstance(event, Started | TimerFired):
            self.call(self._broker)

    def welcomed(self, answer: ConnAckPacket) -> None:
        self.say(
            SubscribePacket(
                1, [TopicFilter(each) for each in (f"{LIVES}#", f"{MISMATCHES}#", *self._filters)]
            )
        )

    def lost(self) -> None:
        self.ready_us = None
        self.wake("dial", REDIAL_US)

    def heard(self, packet: Packet) -> None:
        match packet:
            case SubAckPacket():
                self.ready_us = self.now_us
            case PublishPacket(topic=topic, payload=payload) if topic.startswith(LIVES):
                said = msgspec.json.decode(bytes(payload or b""))
                where = topic.removeprefix(LIVES)
                self.lives.append((self.now_us, where, said["alive"], said["not_alive"]))
            case PublishPacket(topic=topic) if topic.startswith(MISMATCHES):
                self.mismatches.setdefault(topic.removeprefix(MISMATCHES), self.now_us)
            case PublishPacket(topic=topic, payload=payload):
                flow, number = map(int, bytes(payload or b"").split())
                message = Got(topic, flow, number, self.now_us)
                self.got.append(message)
                for hook in self.on_got:
                    hook(message)


class Stay(msgspec.Struct):
    """One subscription of a latecomer, from SUBACK to UNSUBSCRIBE."""

    begun_us: int
    before: tuple[int, int]  # the flow and the number that the publisher was at
    got: list[tuple[int, int]] = []  # flows and numbers, as they came
    ended_us: int | None = None


class Latecomer(Caller):
    """Subscribes with durability now and then, for a while."""

    def __init__(self, name: str, broker: str, wanted: str, source: Source, chance: Chance) -> None:
        super().__init__(name)
        self.stays: list[Stay] = []
        self.source = source
        self.stay_us = 9 * MILLION
        self._broker = broker
        self._filter = wanted
        self._chance = chance
        self._stays = False

    def told(self, event: Event) -> None:
        match event:
            case Started() | TimerFired(name="dial"):
                self.call(self._broker)
            case TimerFired(name="come") if self.connected and not self._stays:
                self._stays = True
                self.say(SubscribePacket(1, [TopicFilter(self._filter)]))
            case TimerFired(name="go") if self.connected and self._stays:
                self._leave()
                self.say(UnsubscribePacket(2, [self._filter]))

    def _leave(self) -> None:
        self._stays = False
        if self.stays and self.stays[-1].ended_us is None:
            self.stays[-1].ended_us = self.now_us

    def welcomed(self, answer: ConnAckPacket) -> None:
        self._come_later()

    def _come_later(self) -> None:
        self.wake("come", self._chance.between(MILLION // 10, 3 * MILLION))

    def lost(self) -> None:
        self._leave()
        self.wake("dial", REDIAL_US)

    def heard(self, packet: Packet) -> None:
        match packet:
            case SubAckPacket():
                self.stays.append(Stay(self.now_us, (self.source.flow, self.source.number), []))
                self.wake("go", self.stay_us)
            case UnsubAckPacket():
                self._come_later()
            case PublishPacket(payload=payload) if self._stays and self.stays:
                flow, number = map(int, bytes(payload or b"").split())
                self.stays[-1].got.append((flow, number))
