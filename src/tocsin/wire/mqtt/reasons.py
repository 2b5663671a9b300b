"""Reason codes: those of a peer as text, and the one that a refusal gets."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from mqtt5 import (
    ConnAckPacket,
    DisconnectPacket,
    PubAckPacket,
    PubCompPacket,
    PubRecPacket,
    SubAckPacket,
    UnsubAckPacket,
)

REFUSED_FROM: Final = 0x80  # reason codes from here on are refusals
# How the reason of a SUBACK or UNSUBACK begins that holds at this broker, and that the store has no word of yet.
DEGRADED: Final = "degraded: "

Reasoned = ConnAckPacket | DisconnectPacket | PubAckPacket | PubCompPacket | PubRecPacket | SubAckPacket


def reason_of(packet: Reasoned) -> str:
    """Why, as the peer said it, or else as the standard names its code."""
    return packet.reason_str or _code_of(packet).name.replace("_", " ").lower()


def refusal_of(packet: Reasoned) -> str | None:
    """Why the peer refuses; None if it does not."""
    return reason_of(packet) if int(_code_of(packet)) >= REFUSED_FROM else None


def is_degraded(packet: SubAckPacket | UnsubAckPacket) -> bool:
    """Whether the store has no word yet of what a broker has answered."""
    return (packet.reason_str or "").startswith(DEGRADED)


def refusal_code(codes: type[Any], code: int) -> Any:
    """The refusal with this number; *unspecified error* where there is none."""
    try:
        return codes(code) if code >= REFUSED_FROM else codes.UNSPECIFIED_ERROR
    except ValueError:
        return codes.UNSPECIFIED_ERROR


def _code_of(packet: Reasoned) -> IntEnum:
    """The packet's reason code. A SUBACK has one here: we subscribe to one filter at a time."""
    return packet.reason_codes[0] if isinstance(packet, SubAckPacket) else packet.reason_code
