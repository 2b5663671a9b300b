"""A client that is coming in: its CONNECT, what it is granted, and what it has sent since without waiting.

A session has one from the CONNECT until the CONNACK.
"""

from __future__ import annotations

from mqtt5 import ConnAckPacket, ConnectPacket

from tocsin.core.session import handshake
from tocsin.core.session.early import Early
from tocsin.core.session.handshake import SessionLimits
from tocsin.core.session.signals import Accepted, Authenticate
from tocsin.wire.connect import Version


class Arrival:
    """Raises ``ConnectRefused`` if the CONNECT cannot be served."""

    __slots__ = ("_version", "early", "granted", "packet")

    def __init__(
        self, packet: ConnectPacket, version: Version, limits: SessionLimits, assigned_client_id: str
    ) -> None:
        self.packet = packet
        self.granted = handshake.terms(packet, version, limits, assigned_client_id)
        self.early = Early(limits.early_max_bytes)
        self._version = version

    def credentials(self) -> Authenticate:
        """The check that the shell has to make."""
        return Authenticate(
            client_id=self.granted.client_id,
            username=self.packet.username,
            password=self.packet.password,
            user_properties=tuple(self.packet.user_properties),
            will_topic=None if self.packet.will is None else self.packet.will.topic,
        )

    def acceptance(self) -> Accepted:
        """The client's data that the shell needs to give it its session."""
        return handshake.acceptance(self.packet, self.granted, self._version)

    def welcomes(
        self, limits: SessionLimits, *, present: bool = False, told: tuple[tuple[str, str], ...] = ()
    ) -> list[ConnAckPacket]:
        """The CONNACK with all properties, then one without them for a client that takes no packet so large."""
        words = (told, ()) if told else ((),)
        return [handshake.connack(self.packet, self.granted, limits, present, each) for each in words]
