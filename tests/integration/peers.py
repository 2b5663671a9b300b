"""Clients that speak packets to the brokers of a network that is up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from mqtt5 import ConnAckPacket, ConnectPacket

from tests.integration.running import DEADLINE_S
from tests.unit.broker.harness import Peer
from tocsin.wire.mqtt.connect import V5

Connect = Callable[..., Awaitable[Peer]]  # Peers.connect


class Peers:
    """All clients of one test."""

    def __init__(self, brokers: Mapping[str, tuple[str, int]]) -> None:
        self._brokers = brokers
        self._peers: list[Peer] = []

    async def connect(self, broker: str, client_id: str, expiry_s: int = 0) -> Peer:
        """Connect to a broker, tried until it is there; a client whose session lasts goes on with it."""
        async with asyncio.timeout(DEADLINE_S):
            while not await self._is_taken(broker, client_id, expiry_s):
                await asyncio.sleep(0.1)
        return self._peers[-1]

    async def _is_taken(self, broker: str, client_id: str, expiry_s: int) -> bool:
        try:
            peer = Peer(*await asyncio.open_connection(*self._brokers[broker]), V5)
            self._peers.append(peer)
            peer.send(ConnectPacket(client_id, clean_start=not expiry_s, session_expiry_interval=expiry_s))
            return int((await peer.receive(ConnAckPacket)).reason_code) == 0
        except OSError:
            return False

    async def close(self) -> None:
        for peer in self._peers:
            peer.writer.transport.abort()
        for _ in range(3):  # for the loop to end what was aborted
            await asyncio.sleep(0)
