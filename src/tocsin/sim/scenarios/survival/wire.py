"""What clients, brokers and their copies say to each other beside MQTT's own, and what MQTT says of servers."""

from __future__ import annotations

from typing import Final

from tocsin.core.machine import Effect
from tocsin.model.message import Address, Message
from tocsin.sim.scenarios.durable.wire import Connack, Connect, Packet

PORT: Final = 1_883
ARRIVALS: Final = "arrivals"  # the address at which every broker hears who has come to another


class Call(Connect, frozen=True):
    """A CONNECT that says where the client is at home, whether it could not reach where it was sent, and its will."""

    home: str = ""
    stays: bool = False
    will_s: int | None = None  # its will's delay; None: it has no will


class Welcome(Connack, frozen=True):
    """A CONNACK that says where the client is, and where it could go if this broker were gone."""

    broker: str = ""
    servers: tuple[str, ...] = ()


class SentOn(Packet, frozen=True):
    """*Use another server*, as CONNACK or as DISCONNECT."""

    reference: str


class Servers(Packet, frozen=True):
    """A message on the topic by which a broker says where its clients could go now."""

    servers: tuple[str, ...]


class Knock(Message, frozen=True):
    """A client dials."""

    connection: int


class Opened(Message, frozen=True):
    """Somebody listens there."""

    connection: int


class Ousted(Packet, frozen=True):
    """*Session taken over*: another connection came with this client id."""


class HandOver(Message, frozen=True):
    """Broker → broker: let this client go, which came to me then."""

    client: str
    came_us: int


class HandedOver(Message, frozen=True):
    """Broker → broker: nothing of it is left to store here."""

    client: str


class Arrived(Message, frozen=True):
    """Broker → all: this client has come to me then."""

    broker: str
    client: str
    came_us: int
    connection: int  # which the real ones do not say: for those who look


class Inquest(Message, frozen=True):
    """Broker → all: do you know this will to be settled, by any of its names?"""

    names: tuple[str, ...]


class Settled(Message, frozen=True):
    """Broker → broker: it is."""

    names: tuple[str, ...]


class Ring(Effect, frozen=True, kw_only=True):
    """A client dials a machine: one on which nothing listens refuses, and breaks when its process ends."""

    to: Address
    connection: int


class EndWatch(Effect, frozen=True, kw_only=True):
    """Hear no more of a table that is watched."""

    table: str


def server(node: Address) -> str:
    """The address at which a node is reached."""
    return f"{node}:{PORT}"
