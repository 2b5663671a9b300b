"""The control messages between brokers and coordinators, and their bytes (MessagePack).

All of them may be lost, repeated or overtaken, and none says anything that is not in the command log or can be said
again: commands are numbered and sent until a notice acknowledges them (``wire.commands``, ``wire.notices``), beats
and pulses are followed by others. Brokers speak to whichever coordinator leads, at an address that all of them
hear; the epoch in what a leader says lets a broker ignore one that was deposed.
"""

from __future__ import annotations

import msgspec

from tocsin.errors import Malformed
from tocsin.model.message import Address, Message
from tocsin.model.network import BrokerInfo
from tocsin.wire.commands import BrokerCommand


class Beat(Message, frozen=True, gc=False):
    """Broker → coordinator: I am here."""

    broker: str
    incarnation: int
    seen: int  # the number of the last notice that it has applied
    load: int = 0  # how full it is, in thousandths of the clients that it takes
    homes: tuple[
        str, ...
    ] = ()  # of guests: brokers, by id or address, of which it wants to know when they are back


class Submit(Message, frozen=True, gc=False):
    """Broker → coordinator: commands, of which the first has the number ``first``."""

    broker: str
    incarnation: int
    first: int
    commands: tuple[BrokerCommand, ...]


class Seen(Message, frozen=True, gc=False):
    """Broker → coordinator: I have applied the notices up to this one, which asked for it."""

    broker: str
    incarnation: int
    number: int


class Refresh(Message, frozen=True, gc=False):
    """Broker → coordinator: I missed something; tell me everything."""

    broker: str
    incarnation: int


class Pulse(Message, frozen=True, gc=False):
    """Leader → broker, for a beat: I lead, this is your last notice, these brokers have room for your clients, and
    these of the homes that you asked about are there."""

    epoch: int
    incarnation: int
    noticed: int
    refuges: tuple[BrokerInfo, ...] = ()
    homes: tuple[tuple[str, BrokerInfo], ...] = ()  # as they were asked about, and who that is


class Unknown(Message, frozen=True, gc=False):
    """Leader → broker: this incarnation is over, because it was silent for too long; join again with a new one."""

    epoch: int
    incarnation: int


class Expected(Message, frozen=True, gc=False):
    """Leader → broker: something is missing before what you sent; go on with the command of this number."""

    epoch: int
    incarnation: int
    next: int


class Clear(Message, frozen=True, gc=False):
    """Leader → broker: whoever is concerned by your commands up to this one knows."""

    epoch: int
    incarnation: int
    number: int


Control = Beat | Submit | Seen | Refresh | Pulse | Unknown | Expected | Clear


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A control message on the bus: who sent it, and the story that it belongs to."""

    sender: Address
    cause: str
    message: Control


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode_envelope(sender: Address, cause: str, message: Message) -> bytes:
    return _encoder.encode((sender, cause, message))


def decode_envelope(data: bytes) -> Envelope:
    """The envelope, or ``Malformed`` for whatever is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise Malformed(f"not a control message: {error}") from None
