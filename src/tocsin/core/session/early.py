"""Packets that a client sends behind its CONNECT without waiting for the answer: kept, in order, up to a bound."""

from __future__ import annotations

from typing import Any

from mqtt5 import Packet, PublishPacket

_OVERHEAD_BYTES = 64  # what a kept packet or filter costs beside its contents, about


class Early:
    """Packets that came before the CONNACK."""

    __slots__ = ("_bytes", "_max_bytes", "_packets")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._packets: list[Packet] = []
        self._bytes = 0

    def keep(self, packet: Packet) -> bool:
        """Whether there was room for it."""
        self._bytes += _contents_bytes(packet) + _OVERHEAD_BYTES
        if self._bytes > self._max_bytes:
            return False
        self._packets.append(packet)
        return True

    def take(self) -> list[Packet]:
        """All of them; none is kept any more."""
        packets, self._packets = self._packets, []
        return packets


def _contents_bytes(packet: Any) -> int:
    """About how much a packet holds."""
    if isinstance(packet, PublishPacket):
        properties = sum(len(name) + len(value) for name, value in packet.user_properties)
        return len(packet.topic) + len(packet.payload) + properties
    patterns = getattr(packet, "patterns", None) or [
        each.pattern for each in getattr(packet, "topic_filters", ())
    ]
    return sum(len(pattern) + _OVERHEAD_BYTES for pattern in patterns)
