"""A bare MQTT 5 client as a machine: for scenarios whose clients do little, and should cost little.

The client library (``tocsin.client``) runs as a process of its own and is tried in ``network``. A caller is cheaper by
far: one machine that dials, says packets and hears packets. Its scenario decides what else it does.
"""

from __future__ import annotations

from typing import Final

from mqtt5 import ConnAckPacket, ConnectPacket, Packet

from tocsin.core.machine import Effect, Event, Say, SetTimer
from tocsin.errors import WireError
from tocsin.model.network import Address
from tocsin.sim.process.broker import PORT
from tocsin.sim.process.signals import Arrived, Closed, Dial, HangUp, Opened, Transmit
from tocsin.wire.mqtt.codec import Decoder, encode
from tocsin.wire.mqtt.connect import V5

PACKET_MAX_BYTES: Final = 1 << 20
REFUSED: Final = 0x80  # reason codes from here on are refusals


class Caller:
    """One client, at the node of its name. A scenario overrides what it says and what it does when it hears."""

    def __init__(self, name: Address) -> None:
        self.name = name
        self.at = ""  # the broker that it dialled last
        self.connected = False  # that broker has accepted it
        self.now_us = 0
        self._calls = 0
        self._calling = False  # a connection is there, or being made
        self._decoder = Decoder(PACKET_MAX_BYTES, role="client", version=V5)
        self._out: list[Effect] = []

    # ── what a scenario says ────────────────────────────────────────────────────────────────────────────────

    def greeting(self) -> ConnectPacket:
        """Its first packet on a connection; if nothing else is said, for a session that ends with the connection."""
        return ConnectPacket(self.name, clean_start=True, keep_alive=0)

    def welcomed(self, answer: ConnAckPacket) -> None:
        """A broker has accepted it."""

    def refused(self, answer: ConnAckPacket) -> None:
        """A broker has not; it ends the connection."""

    def heard(self, packet: Packet) -> None:
        """A packet came from a broker that has accepted it."""

    def lost(self) -> None:
        """There is no connection: it could not be made, was refused, or ended."""

    def told(self, event: Event) -> None:
        """An event that is of no connection: its start, a timer, or one of the scenario's own."""

    # ── what it does ────────────────────────────────────────────────────────────────────────────────────────

    def call(self, broker: str) -> None:
        """Dial a broker, and leave the last one without a word."""
        self.hang_up()
        self._calls += 1
        self._calling = True
        self.at = broker
        self._decoder = Decoder(PACKET_MAX_BYTES, role="client", version=V5)
        self._out.append(Dial(connection=self._connection, host=broker, port=PORT))

    def say(self, packet: Packet) -> None:
        self._out.append(Transmit(connection=self._connection, data=encode(packet, V5)))

    def hang_up(self) -> None:
        if self._calling:
            self._calling = self.connected = False
            self._out.append(HangUp(connection=self._connection))

    def note(self, said: Say) -> None:
        """Say something that promises can hear."""
        self._out.append(said)

    def wake(self, name: str, delay_us: int) -> None:
        """Be told a ``TimerFired`` later."""
        self._out.append(SetTimer(name=name, delay_us=delay_us, cause=self.name))

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _connection(self) -> str:
        return f"{self.name}#{self._calls}"

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        self.now_us = now_us
        match event:
            case Opened(connection=name):
                if self._calling and name == self._connection:
                    self.say(self.greeting())
            case Arrived(connection=name, data=data):
                if self._calling and name == self._connection:
                    self._read(name, data)
            case Closed(connection=name):
                if self._calling and name == self._connection:
                    self._end()
            case _:
                self.told(event)
        effects, self._out = self._out, []
        return effects

    def _read(self, connection: str, data: bytes) -> None:
        for packet in self._decoder.feed(data):
            if isinstance(packet, WireError):
                raise packet
            if not self._calling or connection != self._connection:
                return  # it has hung up since
            if not isinstance(packet, ConnAckPacket):
                self.heard(packet)
            elif int(packet.reason_code) < REFUSED:
                self.connected = True
                self.welcomed(packet)
            else:
                self.refused(packet)

    def _end(self) -> None:
        self._calling = self.connected = False
        self.lost()
