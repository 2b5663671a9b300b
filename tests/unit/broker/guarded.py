"""A door with a guard: users, rules, certificates."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial

import msgspec
from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
)

from tests.unit.broker.harness import NETWORK, Door, Peer
from tocsin.broker.entrance.listener import listening_socket
from tocsin.config import Settings
from tocsin.runtime.security.files import Guard
from tocsin.store.memory.store import MemoryStore
from tocsin.wire.mqtt.connect import V5, Version


class GuardedDoor(Door):
    """A door with a guard, and with a TLS listener if there are certificates."""

    def __init__(
        self, settings: Settings, *, store: MemoryStore | None = None, takes_part: bool = False
    ) -> None:
        super().__init__(settings.limits, store=store, takes_part=takes_part)
        self.guard = Guard(settings)
        self.settings = msgspec.structs.replace(settings, network=NETWORK)
        self.changes = 0  # how often the rules of access were others
        self.tls_port = 0

    def _changed(self, told: Callable[[], None]) -> None:
        self.changes += 1
        told()

    async def __aenter__(self) -> GuardedDoor:
        await super().__aenter__()
        self.listener._rights_changed = partial(self._changed, self.listener._rights_changed)
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
