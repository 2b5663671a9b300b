"""Clients that subscribe to channels and unsubscribe, lose connections, leave, and come back to any of the brokers."""

from __future__ import annotations

from tocsin.model.network import Address
from tocsin.sim.process.packets import (
    Answer,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from tocsin.sim.process.restless import AWAY_MASK, Client

RECEIVE_MAX = 4  # the least of which some is spared for critical results
THINK_MASK = 0x1FFFFF  # up to two seconds before it changes what it is subscribed to
# One time in four it is away for up to seventeen seconds: longer than a broker takes to restart and look around.
LONG_AWAY_MASK = 0xFFFFFF


class ChannelClient(Client):
    """Wants the first of its names always, and the others now and then. It repeats what was not answered."""

    receive_max = RECEIVE_MAX

    def __init__(
        self, address: Address, brokers: tuple[Address, ...], restless_us: int, names: tuple[str, ...]
    ) -> None:
        super().__init__(address, brokers, restless_us)
        self.names = names
        self.wanted: dict[str, None] = dict.fromkeys(names[:1])
        self._has: dict[str, None] = {}  # SUBACK came, and no UNSUBSCRIBE was sent since
        self._leaving: dict[str, None] = {}  # UNSUBSCRIBE was sent and not answered

    def _resume(self) -> None:
        for name in self._leaving:
            self._send(Unsubscribe(name))
        for name in self.wanted:  # also those that it has, as many clients do
            if name not in self._leaving:
                self._send(Subscribe(name, 1))
        self._think()

    def _think(self) -> None:
        self._timer("think", self._draw(THINK_MASK) + AWAY_MASK)

    def _away_us(self, now_us: int) -> int:
        return super()._away_us(now_us) if self._draw(3) else self._draw(LONG_AWAY_MASK)

    def _on_timer(self, name: str, now_us: int) -> None:
        if name != "think" or now_us < self._restless_us:
            super()._on_timer(name, now_us)

    def _act(self, timer: str) -> None:
        self._think()
        name = self.names[self._draw(0xFF) % len(self.names)]
        if name in self._leaving or name == self.names[0]:
            return
        if name in self.wanted:
            del self.wanted[name]
            self._has.pop(name, None)
            self._leaving[name] = None
            self._say("unsubscribing", name=name)
            self._send(Unsubscribe(name))
        else:
            self.wanted[name] = None
            self._send(Subscribe(name, 1))

    def _take(self, packet: Packet) -> None:
        match packet:
            case Suback(topic_filter=name) if name in self.wanted and name not in self._has:
                self._has[name] = None
                self._say("subscribed", name=name)
            case Unsuback(topic_filter=name) if name in self._leaving:
                del self._leaving[name]
                self._say("unsubscribed", name=name)
            case Publish(topic=name, number=number, packet_id=packet_id):
                self._say("took", connection=self._connections, name=name, number=number)
                self._send(Answer("puback", packet_id))
