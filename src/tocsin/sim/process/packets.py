"""The packets between clients and brokers, over connections that keep order or break.

A connection is two numbered sequences of packets over a network that loses and reorders. A packet that was seen before
is dropped; a gap, or silence, breaks the connection: as with TCP, what arrives is a beginning of what was sent.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tocsin.core.delivery.stored_session import FOREVER_S
from tocsin.model.network import Message

Key = tuple[str, int]  # a message: who published it, and its number


class Packet(msgspec.Struct, frozen=True, tag=True):
    """The base of all."""


class Connect(Packet, frozen=True):
    """The first of a connection. A session that lasts is resumed while it has not expired."""

    lasting: bool = True
    expiry_s: int = FOREVER_S


class Connack(Packet, frozen=True):
    present: bool


class Publish(Packet, frozen=True):
    packet_id: int
    qos: int
    topic: str
    publisher: str
    number: int
    repeat: bool = False
    critical: bool = False  # said by publishers
    offer: str = ""  # likewise: the quality of its stream; the payload then is an object with the number


class Answer(Packet, frozen=True):
    """PUBACK, PUBREC, PUBREL and PUBCOMP."""

    kind: Literal["puback", "pubrec", "pubrel", "pubcomp"]
    packet_id: int


class Subscribe(Packet, frozen=True):
    topic_filter: str
    qos: int


class Suback(Packet, frozen=True):
    topic_filter: str


class Unsubscribe(Packet, frozen=True):
    topic_filter: str


class Unsuback(Packet, frozen=True):
    topic_filter: str


class Ping(Packet, frozen=True):
    """So that silence means something; both sides send it."""


class Disconnect(Packet, frozen=True):
    pass


class Frame(Message, frozen=True):
    """A packet on a connection. Connections of a client are numbered, and so are the packets of each direction."""

    connection: int
    number: int
    packet: Packet


class Reset(Message, frozen=True):
    """There is no such connection here, or no longer."""

    connection: int


class ConnectionSide:
    """One side of a connection."""

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self._sent = 0
        self._expected = 0

    def frame(self, packet: Packet) -> Frame:
        self._sent += 1
        return Frame(self.connection, self._sent - 1, packet)

    def take(self, frame: Frame) -> Literal["next", "repeat", "gap"]:
        if frame.number < self._expected:
            return "repeat"
        if frame.number > self._expected:
            return "gap"
        self._expected += 1
        return "next"
