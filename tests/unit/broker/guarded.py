"""A door with a guard: users, rules, certificates."""

from __future__ import annotations

import asyncio
import ssl

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
)

from tests.unit.broker.door import OWN, Door, Peer
from tocsin.broker.listener import Listener, listening_socket
from tocsin.config import Settings
from tocsin.core.admission import Admission
from tocsin.runtime.guard import Guard
from tocsin.store.memory import MemoryStore
from tocsin.wire.codec import V5, Version


class GuardedDoor(Door):
    """A door with a guard, and with a TLS listener if there are certificates."""

    def __init__(
        self, settings: Settings, *, store: MemoryStore | None = None, takes_part: bool = False
    ) -> None:
        super().__init__(settings.limits, store=store, takes_part=takes_part)
        self.guard = Guard(settings)
        self.changes = 0
        admission = Admission(settings.limits.connections_max, self.guard.policy)
        self.listener = Listener(
            OWN, settings.limits, self.exchange, admission, self.guard, access_changed=self._changed
        )
        self.tls_port = 0

    def _changed(self) -> None:
        self.changes += 1
        self.exchange.access_changed()

    async def __aenter__(self) -> GuardedDoor:
        await super().__aenter__()
        if self.guard.certificates is not None:
            listening = listening_socket("127.0.0.1", 0, "north-1")
            self.tls_port = listening.getsockname()[1]
            await self.listener.open(listening, tls=True)
        return self

    async def tls_peer(self, context: ssl.SSLContext, connect: ConnectPacket) -> tuple[Peer, int]:
        """A peer over TLS, and what its CONNECT was answered."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.tls_port, ssl=context)
        peer = Peer(reader, writer, V5)
        self._peers.append(peer)
        peer.send(connect)
        return peer, int((await peer.receive(ConnAckPacket)).reason_code)


async def answer(door: Door, connect: ConnectPacket, version: Version = V5) -> int:
    peer = await door.peer(connect=connect, version=version, accepted=False)
    return int((await peer.receive(ConnAckPacket)).reason_code)
