"""Tells clients of brokers that are lost: watch connections (``core.survival.watchers``), and subscribers to ``$SYS``.

Every lost broker has a retained message on ``$SYS/broker/network/lost/BROKER``: a JSON object with the version of its
format, the stand-in and its addresses. An empty message says that the broker is back. So a plain MQTT client with a
second connection learns as much as one that watches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
from mqtt5 import Packet, PublishPacket

from tocsin.core.survival.homes import GUEST, PROPERTY_VERSION, PROPERTY_WATCH
from tocsin.core.survival.watchers import LOST_TOPIC, Watchers
from tocsin.model.network import BrokerInfo
from tocsin.model.publication import Publication
from tocsin.model.versions import Document

ROOT: Final = "$SYS/broker/network/lost/"


class Loss(msgspec.Struct, frozen=True):
    """A lost broker, for people and their programs."""

    broker: str
    stand_in: str | None  # None: nobody stands in, or it is not known yet who does
    servers: tuple[str, ...] = ()  # of the stand-in, as URLs


LOSS: Final = Document("the loss of a broker", msgspec.json.Decoder(Loss))


class Watching(Protocol):
    """A watch connection."""

    def send(self, packet: Packet) -> None: ...


class Losses:
    """What one broker says of lost brokers. ``say`` publishes a retained message of this broker's own."""

    def __init__(self, say: Callable[[Publication], None]) -> None:
        self.watchers: Watchers[Any] = Watchers()
        self._say = say
        self._stand_ins: Mapping[str, BrokerInfo | None] = {}  # of lost brokers, as the leader says

    def came(self, watcher: Watching, broker: str) -> tuple[tuple[str, str], ...]:
        """A connection watches a broker from now on: what to tell it."""
        return ((PROPERTY_VERSION, GUEST.text), (PROPERTY_WATCH, self.watchers.came(watcher, broker)))

    def told(self, lost: Mapping[str, BrokerInfo | None]) -> None:
        """These brokers are lost, as the leader says, with their stand-ins."""
        before, self._stand_ins = self._stand_ins, dict(lost)
        moved = [each for each in lost if each in before and before[each] != lost[each]]
        self._tell(self.watchers.told(lost))
        for broker in moved:
            self._publish(broker, lost=True)

    def meanwhile(self, broker: str, *, lost: bool) -> None:
        """This broker stands in for another until a leader is heard, or no longer."""
        self._tell(self.watchers.meanwhile(broker, lost=lost))

    def _tell(self, news: list[tuple[str, str, tuple[Watching, ...]]]) -> None:
        for broker, topic, watchers in news:
            packet = PublishPacket(topic, broker.encode())
            for watcher in watchers:
                watcher.send(packet)
            self._publish(broker, lost=topic == LOST_TOPIC)

    def _publish(self, broker: str, *, lost: bool) -> None:
        payload = LOSS.write(self._loss(broker)) if lost else b""
        self._say(Publication(ROOT + broker, payload, 0, "", retain=True))

    def _loss(self, broker: str) -> Loss:
        stand_in = self._stand_ins.get(broker)
        if stand_in is None:
            return Loss(broker, None)
        servers = tuple(f"{each.scheme}://{each.address}" for each in stand_in.entrances)
        return Loss(broker, stand_in.id, servers)
