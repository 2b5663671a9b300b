"""Clients that subscribe to channels and unsubscribe, lose connections, leave, and come back to any of the brokers."""

from __future__ import annotations

from tocsin.model.message import Address
from tocsin.sim.scenarios.channels.wire import Unsuback, Unsubscribe
from tocsin.sim.scenarios.durable.clients import AWAY_MASK, Client
from tocsin.sim.scenarios.durable.wire import Answer, Packet, Publish, Suback, Subscribe

THINK_MASK = 0x1FFFFF  # up to two seconds before it changes what it is subscribed to


class ChannelClient(Client):
    """Wants the first of its names always, and the others now and then. What was not answered it asks again."""

    def __init__(
        self, address: Address, brokers: tuple[Address, ...], restless_us: int, names: tuple[str, ...]
    ) -> None:
        super().__init__(address, brokers, restless_us)
        self.names = names
        self.kept: tuple[str, ...] = names[:1]  # wanted always
        self.wanted: dict[str, None] = dict.fromkeys(self.kept)
        self._has: dict[str, None] = {}  # SUBACK came, and no UNSUBSCRIBE was sent since
        self._leaving: dict[str, None] = {}  # UNSUBSCRIBE was sent and not answered

    def _resume(self) -> None:
        for name in self._leaving:
            self._send(Unsubscribe(name))
        for name in self.wanted:  # also those that it has, as many clients do
            if name not in self._leaving:
                self._send(Subscribe(name, self.qos_of(name)))
        self._timer("think", self._think_us())

    def _on_timer(self, name: str, now_us: int) -> None:
        if name != "think" or now_us < self._restless_us:
            super()._on_timer(name, now_us)

    def _act(self, timer: str) -> None:
        self._timer("think", self._think_us())
        name = self.names[self._draw(0xFF) % len(self.names)]
        if name in self._leaving or name in self.kept or not self.may_change(name):
            return
        if name in self.wanted:
            del self.wanted[name]
            self._has.pop(name, None)
            self._leaving[name] = None
            self._say("unsubscribing", **self.named(name))
            self._send(Unsubscribe(name))
        else:
            self.wanted[name] = None
            self._say("subscribing", **self.named(name))
            self._send(Subscribe(name, self.qos_of(name)))

    def _think_us(self) -> int:
        """How long until it changes what it is subscribed to."""
        return self._draw(THINK_MASK) + AWAY_MASK

    def qos_of(self, name: str) -> int:
        return 1

    def named(self, name: str) -> dict[str, str]:
        """How a subscription is called where something is said of it."""
        return {"name": name}

    def may_change(self, name: str) -> bool:
        """Whether it may change its mind about a name now."""
        return True

    def _take(self, packet: Packet) -> None:
        match packet:
            case Suback(topic_filter=name) if name in self.wanted and name not in self._has:
                self._has[name] = None
                self._say("subscribed", **self.named(name))
            case Unsuback(topic_filter=name) if name in self._leaving:
                del self._leaving[name]
                self._say("unsubscribed", **self.named(name))
            case Publish(topic=name, number=number, packet_id=packet_id):
                self._say("took", connection=self._connections, name=name, number=number)
                self._send(Answer("puback", packet_id))
