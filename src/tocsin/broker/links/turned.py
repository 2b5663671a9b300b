"""Connections for brokers that others cannot dial: the side that can dials, and then both change places.

An **outward** broker (``BrokerInfo.outward``) is behind NAT or a firewall. It dials each peer that may have messages
for it, and turns the connection around (``core.links.incoming``): from then on it listens there, as at its own port,
and the peer uses the connection as if it had dialled. Certificates were shown on both sides before.

A turned connection waits at the peer until a link needs it. The kernels keep it alive, so that what is between them
does not forget it. When it ends, the outward broker makes the next one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from mqtt5 import ConnAckPacket, Packet, PingReqPacket

from tocsin.broker.links.link import ANSWER_MAX_BYTES, LinkSecurity, greeting_of, meant
from tocsin.core.links.incoming import PROPERTY_TURN
from tocsin.core.links.signals import Down
from tocsin.model.network import BrokerInfo
from tocsin.runtime.machines.line import Line

# Of an idle connection: until the kernel asks the peer's for a sign of life, between two questions, and how many.
ALIVE_S, ALIVE_AGAIN_S, ALIVE_MAX = 30, 10, 3
_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, ALIVE_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ALIVE_AGAIN_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ALIVE_MAX),
)


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    connected = transport.get_extra_info("socket")
    for level, option, value in _OPTIONS if connected is not None else ():
        connected.setsockopt(level, option, value)


class _Idle(asyncio.Protocol):
    """A turned connection that no link has taken yet: its peer may only end it."""

    def __init__(self, transport: asyncio.Transport, ended: Callable[[_Idle], None]) -> None:
        self.transport = transport
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended(self)


class TurnedConnections:
    """The connections that outward peers have turned around: one of each peer, by the name in its certificate."""

    def __init__(self) -> None:
        self.came: Callable[[str], None] = lambda name: None  # told of each that comes
        self._idle: dict[str, _Idle] = {}
        self._awaited: dict[str, asyncio.Future[asyncio.Transport]] = {}

    def put(self, name: str, transport: asyncio.Transport) -> None:
        """A peer has made one; an idle one from before is of no use any more."""
        _keep_alive(transport)
        awaited = self._awaited.pop(name, None)
        if awaited is not None and not awaited.done():
            awaited.set_result(transport)
            return
        before = self._idle.pop(name, None)
        if before is not None:
            before.transport.abort()
        idle = self._idle[name] = _Idle(transport, lambda ended: self._forget(name, ended))
        transport.set_protocol(idle)
        self.came(name)

    async def take(self, name: str) -> asyncio.Transport:
        """The connection of a peer, as soon as there is one."""
        idle = self._idle.pop(name, None)
        if idle is not None and not idle.transport.is_closing():
            return idle.transport
        awaited: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self._awaited[name] = awaited
        return await awaited

    @property
    def waiting(self) -> frozenset[str]:
        """The peers of which a connection waits."""
        return frozenset(self._idle)

    def close(self) -> None:
        """End those that wait."""
        for idle in tuple(self._idle.values()):
            idle.transport.abort()

    def _forget(self, name: str, idle: _Idle) -> None:
        if self._idle.get(name) is idle:
            del self._idle[name]


class OutwardCall:
    """Keeps a turned connection at one peer, for as long as it is open."""

    def __init__(
        self,
        own: BrokerInfo,
        peer: BrokerInfo,
        security: LinkSecurity,
        listen: Callable[[], asyncio.Protocol],
    ) -> None:
        """``listen`` makes the protocol of a connection that a peer has made to this broker."""
        self.peer = peer
        self._listen = listen
        greeting = greeting_of(own, 0, (PROPERTY_TURN, "1"))
        at = meant(security, peer)
        self._line = Line([at], greeting, self, redial=True, packet_max_bytes=ANSWER_MAX_BYTES)

    def open(self) -> None:
        self._line.open()

    def hurry(self) -> None:
        """Dial now, if only the back-off is waited for."""
        self._line.hurry()

    def close(self) -> None:
        self._line.close()

    def line_up(self, answer: ConnAckPacket) -> None:
        self._line.lend(self._listen)
        self._line.send(PingReqPacket())

    def line_down(self, down: Down) -> None:
        """It is dialled again."""

    def line_heard(self, packet: Packet) -> None:
        """What comes is the peer's link, and none of ours."""
