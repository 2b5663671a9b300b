"""The control messages between brokers and the coordinator, and their bytes (MessagePack).

All of them may be lost, repeated or overtaken. Two versions make that harmless: a broker numbers its
interests, the coordinator numbers each broker's routes, every heartbeat says which numbers its sender has,
and a change says which number it builds on (``base``; 0 for a whole state). Whoever sees a number it did not
expect asks for, or sends, the whole.
"""

from __future__ import annotations

import msgspec

from tocsin.errors import Malformed
from tocsin.model.message import Address, Message
from tocsin.model.network import BrokerInfo, Route, RoutesVersion


class Heartbeat(Message, frozen=True, gc=False):
    """Broker → coordinator: I am here, this is what I have."""

    broker: str
    incarnation: int
    interests: int  # the version of its interests
    routes: RoutesVersion  # the routes that it applies


class Interests(Message, frozen=True, gc=False):
    """Broker → coordinator: what my clients want. Part ``part`` (from 0) of ``parts``; only the whole has an effect."""

    info: BrokerInfo
    incarnation: int
    base: int
    version: int
    added: tuple[str, ...]
    removed: tuple[str, ...] = ()
    part: int = 0
    parts: int = 1


class Leave(Message, frozen=True, gc=False):
    """Broker → coordinator: I stop now, on purpose."""

    broker: str
    incarnation: int


class Resync(Message, frozen=True, gc=False):
    """Coordinator → broker: send all your interests."""

    coordinator: int


class Routes(Message, frozen=True, gc=False):
    """Coordinator → broker: your routes, and the peers that they name. Part ``part`` of ``parts``, as above."""

    base: int
    version: RoutesVersion
    peers: tuple[BrokerInfo, ...]
    added: tuple[Route, ...]
    removed: tuple[Route, ...] = ()
    part: int = 0
    parts: int = 1


Control = Heartbeat | Interests | Leave | Resync | Routes


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
