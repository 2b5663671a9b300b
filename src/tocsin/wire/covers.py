"""A backup's word that it covers for a broker, to all brokers over the bus (MessagePack).

It may be lost, and is repeated while it holds. What it means is in ``core.survival.covering``.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.model.network import BrokerInfo, Message
from tocsin.model.versions import Packed


class Covering(Message, frozen=True, array_like=True, tag="C"):
    """Broker → all: send me too what goes to this broker at QoS 0; or (``over``) no longer."""

    primary: str
    by: BrokerInfo
    over: bool = False


COVERING: Final = Packed("a word of a stand-in", msgspec.msgpack.Decoder(Covering), spoken=True)


def subject(network: str) -> str:
    """Where all brokers hear it. No broker can have this name, so that it is nobody's subject of replication."""
    return f"{network}.replication._covering"


def encode_covering(word: Covering) -> bytes:
    return COVERING.write(word)


def decode_covering(data: bytes) -> Covering:
    """The word, or ``Malformed`` for whatever is none."""
    return COVERING.read(data)
