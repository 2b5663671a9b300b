"""Clients as MQTT has them: a publisher and a subscriber with sessions that outlive connections.

They do not crash, but lose connections, leave now and then, and come back to any of the brokers. They keep their
packet ids, and repeat the packets in the same order when they come back.
"""

from __future__ import annotations

import msgspec

from tocsin.core.delivery.stored_session import FOREVER_S
from tocsin.core.machine import CancelTimer, Effect, Event, Received, Say, Send, SetTimer, Started, TimerFired
from tocsin.model.network import Address
from tocsin.sim.process.packets import (
    Answer,
    Connack,
    Connect,
    ConnectionSide,
    Disconnect,
    Frame,
    Packet,
    Ping,
    Publish,
    Reset,
    Suback,
    Subscribe,
)

PING_US = 700_000
SILENCE_US = 2_000_000  # of the broker, before the connection counts as broken
AWAY_MASK = 0x7FFFF  # up to half a second before it connects again
STAY_MASK = 0x3FFFFF  # up to four seconds before it leaves
PACKET_IDS = 5  # few, so that they are soon used again


class Client:
    """The base of both: connections to one of several brokers."""

    ping_us = PING_US
    silence_us = SILENCE_US
    eager = True  # it speaks before CONNACK has come
    receive_max = 65_535  # deliveries that it takes at a time

    def __init__(self, address: Address, brokers: tuple[Address, ...], restless_us: int) -> None:
        self.address = address
        self._brokers = brokers
        self._restless_us = restless_us  # until then it leaves now and then
        self._broker = brokers[0]
        self._connections = 0
        self._side: ConnectionSide | None = None  # None: away
        self._connected = False  # CONNACK came
        self._known = False  # some CONNACK came, so a session is there
        self.expiry_s = FOREVER_S  # how long its session outlives a connection
        self._chance = 0
        self._out: list[Effect] = []

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        match event:
            case Started():
                self._chance = event.incarnation
                self._begin()
                self._timer("connect", self._draw(AWAY_MASK))
            case TimerFired():
                self._on_timer(event.name, now_us)
            case Received(message=Frame() as frame):
                self._on_frame(event.sender, frame, now_us)
            case Received(message=Reset(connection=connection)):
                if self._side is not None and self._side.connection == connection:
                    self._break()
        effects, self._out = self._out, []
        return effects

    @property
    def connection(self) -> int | None:
        """The number of its connection; None: it has none."""
        return None if self._side is None else self._side.connection

    def _begin(self) -> None:
        """Choose what chance has to."""

    def _stay_us(self) -> int:
        """How long it stays before it leaves."""
        return self._draw(STAY_MASK)

    def _away_us(self, now_us: int) -> int:
        """How long it is away before it comes back."""
        return self._draw(AWAY_MASK)

    def _draw(self, mask: int) -> int:
        # Knuth's multiplier: numbers that differ, from the one that chance gave us.
        self._chance = (self._chance * 6_364_136_223_846_793_005 + 1) & ((1 << 64) - 1)
        return (self._chance >> 40) & mask

    def _timer(self, name: str, delay_us: int) -> None:
        self._out.append(SetTimer(name=name, delay_us=delay_us, cause=self.address))

    def _say(self, text: str, **facts: object) -> None:
        self._out.append(Say(text=text, facts=facts, cause=self.address))

    def _send(self, packet: Packet, cause: str = "") -> None:
        if self._side is not None:
            frame = self._side.frame(packet)
            self._out.append(Send(to=self._broker, message=frame, cause=cause or self.address))

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, name: str, now_us: int) -> None:
        if name == "connect" and self._side is None:
            self._broker = self._brokers[self._draw(AWAY_MASK) % len(self._brokers)]
            self._connections += 1
            self._side = ConnectionSide(self._connections)
            self._send(Connect(expiry_s=self.expiry_s))
            self._timer("ping", self.ping_us)
            self._timer("silence", self.silence_us)
            if now_us < self._restless_us:
                self._timer("leave", self._stay_us())
        elif name == "ping" and self._side is not None:
            if self.eager or self._connected:
                self._send(Ping())
            self._timer("ping", self.ping_us)
        elif name == "silence":
            self._break()
        elif name == "leave" and now_us < self._restless_us:
            if self._draw(1) and (self.eager or self._connected):
                self._send(Disconnect())
            self._break(self._away_us(now_us))
        elif self._connected:
            self._act(name)

    def _break(self, away_us: int | None = None) -> None:
        if self._side is not None:
            self._side = None
            self._connected = False
            self._out += [CancelTimer(name=name) for name in ("ping", "silence", "leave")]
            self._timer("connect", self._draw(AWAY_MASK) if away_us is None else away_us)

    def _on_frame(self, sender: Address, frame: Frame, now_us: int) -> None:
        side = self._side
        if side is None or sender != self._broker or frame.connection != side.connection:
            return
        match side.take(frame):
            case "gap":
                self._break()
            case "next":
                self._timer("silence", self.silence_us)
                if isinstance(frame.packet, Connack):
                    if self._known and not frame.packet.present:
                        self._say("session lost", client=self.address, expiry_s=self.expiry_s)
                        self._forget()
                    self._known = self._connected = True
                    self._resume()
                elif self._connected:
                    self._take(frame.packet)

    def _forget(self) -> None:
        """The session is over: so is what was part of it."""

    def _resume(self) -> None:
        """The session goes on: repeat what was not answered."""

    def _take(self, packet: Packet) -> None:
        """A packet of the broker."""

    def _act(self, timer: str) -> None:
        """A timer of one's own ran out, while connected."""


class Publisher(Client):
    """Publishes numbered messages at QoS 1 and 2 in turn, several at a time, each until it is answered for good."""

    critical_each = 0  # one in so many is critical; 0: none

    def __init__(
        self,
        address: Address,
        brokers: tuple[Address, ...],
        restless_us: int,
        messages: int,
        topics: tuple[str, ...],
    ) -> None:
        super().__init__(address, brokers, restless_us)
        self._messages = messages
        self._topics = topics
        self._published = 0
        self._next_id = 0
        self._open: dict[int, Publish | None] = {}  # packet id → what to repeat; None: its PUBREL

    @property
    def done(self) -> bool:
        return self._published == self._messages and not self._open

    def _forget(self) -> None:
        """A QoS 2 message may have been taken: it is not published once more."""
        self._open = {each: of for each, of in self._open.items() if of is not None and of.qos == 1}

    def _resume(self) -> None:
        for packet_id, message in self._open.items():
            if message is None:
                self._send(Answer("pubrel", packet_id))
            else:
                repeat = msgspec.structs.replace(message, repeat=True)
                self._send(repeat, cause=f"{self.address}#{message.number}")
        self._think()

    def _think(self) -> None:
        self._timer("publish", self._draw(AWAY_MASK))

    def _act(self, timer: str) -> None:
        if self._published == self._messages:
            return
        self._think()
        for _ in range(1 + self._draw(3) % 3):  # several at a time, or one
            free = [1 + (self._next_id + each) % PACKET_IDS for each in range(PACKET_IDS)]
            free = [each for each in free if each not in self._open]
            if not free or self._published == self._messages:
                return
            self._published += 1
            self._next_id = free[0]
            number = self._published
            topic = self._topics[number % len(self._topics)]
            critical = bool(self.critical_each) and number % self.critical_each == 0
            message = Publish(free[0], 1 + number % 2, topic, self.address, number, critical=critical)
            self._open[free[0]] = message
            self._send(message, cause=f"{self.address}#{number}")

    def _take(self, packet: Packet) -> None:
        if not isinstance(packet, Answer) or packet.packet_id not in self._open:
            return
        message = self._open[packet.packet_id]
        if packet.kind == "pubcomp":
            if message is None:
                del self._open[packet.packet_id]
        elif message is not None and packet.kind == ("puback", "pubrec")[message.qos - 1]:
            self._say("acknowledged", key=(self.address, message.number), qos=message.qos)
            del self._open[packet.packet_id]
            if message.qos == 2:
                self._open[packet.packet_id] = None
                self._send(Answer("pubrel", packet.packet_id), cause=f"{self.address}#{message.number}")


class AlarmingPublisher(Publisher):
    """Some of its messages are critical: at both QoS, on all topics."""

    critical_each = 5


class Subscriber(Client):
    """Takes what comes; at QoS 2 each packet id once until it is released.

    It subscribes to one more filter on each connection, and to those that it had once more, as many clients do.
    """

    receive_max = 4  # small, so that it falls behind; a quarter of it is for what is critical

    def __init__(
        self,
        address: Address,
        brokers: tuple[Address, ...],
        restless_us: int,
        filters: tuple[str, ...],
        qos: int,
    ) -> None:
        super().__init__(address, brokers, restless_us)
        self.filters = filters
        self.qos = qos
        self._subscribed: dict[str, None] = {}
        self._held: dict[int, None] = {}  # packet ids at QoS 2 that were taken and not released

    @property
    def held(self) -> list[int]:
        """The packet ids of what came at QoS 2 and was not released."""
        return list(self._held)

    def _forget(self) -> None:
        self._subscribed, self._held = {}, {}

    def _resume(self) -> None:
        for topic_filter in self.filters[: len(self._subscribed) + 1]:
            self._send(Subscribe(topic_filter, self.qos))

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Suback):
            if packet.topic_filter not in self._subscribed:
                self._subscribed[packet.topic_filter] = None
                self._say("subscribed", topic_filter=packet.topic_filter)
        elif isinstance(packet, Publish):
            self._take_message(packet)
        elif isinstance(packet, Answer) and packet.kind == "pubrel":
            self._held.pop(packet.packet_id, None)
            self._send(Answer("pubcomp", packet.packet_id))

    def _take_message(self, packet: Publish) -> None:
        identifier = packet.packet_id
        if packet.qos == 1 or identifier not in self._held:
            key = (packet.publisher, packet.number)
            facts = {"broker": self._broker, "connection": self._connections, "key": key, "qos": packet.qos}
            self._say("took", client=self.address, **facts)
        if packet.qos == 2:
            self._held[identifier] = None
        if packet.qos:
            self._send(Answer("puback" if packet.qos == 1 else "pubrec", identifier))
