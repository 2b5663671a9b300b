"""Publishers under a latency budget, and subscribers that note what they get and what they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    Packet,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
)

from tocsin.core.machine import Event, Started, TimerFired
from tocsin.sim.process.caller import Caller

REDIAL_US: Final = 200_000
LATE: Final = "$qos/late/"
ADMISSION: Final = "$qos/admission/"


class Got(msgspec.Struct, frozen=True):
    """A message that a subscriber got."""

    topic: str
    flow: int  # of the publisher's connections
    number: int
    sent_us: int
    at_us: int

    @property
    def delay_us(self) -> int:
        return self.at_us - self.sent_us


class News(msgspec.Struct, frozen=True):
    """What a client was told of a topic."""

    topic: str
    at_us: int
    said: Mapping[str, Any]


class Hearing(Caller):
    """A client that notes news of budgets."""

    def __init__(self, name: str, broker: str, filters: Sequence[str]) -> None:
        super().__init__(name)
        self.ready_us: int | None = None  # when all was granted
        self.connections = 0  # so far
        self.late: list[News] = []
        self.admissions: list[News] = []
        self._broker = broker
        self._filters = (f"{LATE}#", f"{ADMISSION}#", *filters)

    def greeting(self) -> ConnectPacket:
        return ConnectPacket(self.name, clean_start=True, keep_alive=0)

    def told(self, event: Event) -> None:
        if isinstance(event, Started | TimerFired):
            self.call(self._broker)

    def welcomed(self, answer: ConnAckPacket) -> None:
        self.connections += 1
        self.say(SubscribePacket(1, [TopicFilter(each) for each in self._filters]))

    def lost(self) -> None:
        self.ready_us = None
        self.wake("dial", REDIAL_US)

    def heard(self, packet: Packet) -> None:
        match packet:
            case SubAckPacket():
                self.ready_us = self.now_us
            case PublishPacket(topic=topic, payload=payload) if topic.startswith(LATE):
                self.late.append(self._news(topic.removeprefix(LATE), payload))
            case PublishPacket(topic=topic, payload=payload) if topic.startswith(ADMISSION):
                self.admissions.append(self._news(topic.removeprefix(ADMISSION), payload))

    def _news(self, topic: str, payload: Any) -> News:
        return News(topic, self.now_us, msgspec.json.decode(bytes(payload or b"")))


class Source(Hearing):
    """Publishes numbered messages on its own topic, and stays at its broker."""

    def __init__(
        self, broker: str, topic: str, budget: str, priority: int, every_us: int, until_us: int
    ) -> None:
        super().__init__(f"source/{topic}", broker, ())
        self.topic = topic
        self.priority = priority
        self.flow = 0
        self.number = 0
        self.sent_us: dict[tuple[int, int], int] = {}  # by flow and number
        self._budget = budget
        self._every_us = every_us
        self._until_us = until_us

    def told(self, event: Event) -> None:
        if isinstance(event, TimerFired) and event.name == "publish":
            if self.connected:
                self._publish()
        else:
            super().told(event)

    def welcomed(self, answer: ConnAckPacket) -> None:
        super().welcomed(answer)
        self.flow += 1
        self.wake("publish", self._every_us)

    def _publish(self) -> None:
        if self.now_us < self._until_us:
            self.number += 1
            self.sent_us[self.flow, self.number] = self.now_us
            said = [("offer.budget", self._budget), ("priority", str(self.priority))]
            payload = b"%d %d %d" % (self.flow, self.number, self.now_us)
            self.say(PublishPacket(self.topic, payload, qos=QoS.AT_MOST_ONCE, user_properties=said))
            self.wake("publish", self._every_us)


class Sink(Hearing):
    """Subscribes to all topics, and notes what it gets."""

    def __init__(self, name: str, broker: str, filters: Sequence[str]) -> None:
        super().__init__(name, broker, filters)
        self.got: list[Got] = []
        self.on_got: list[Callable[[Got], None]] = []

    def heard(self, packet: Packet) -> None:
        if isinstance(packet, PublishPacket) and not packet.topic.startswith("$"):
            flow, number, sent_us = map(int, bytes(packet.payload or b"").split())
            message = Got(packet.topic, flow, number, sent_us, self.now_us)
            self.got.append(message)
            for hook in self.on_got:
                hook(message)
        else:
            super().heard(packet)
