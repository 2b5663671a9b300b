"""The broker's door: accepts connections within bounds, and knows who is in."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import structlog

from tocsin.broker.connection import Connection
from tocsin.broker.exchange import Exchange
from tocsin.config import Limits
from tocsin.core.admission import Admission, link_cluster
from tocsin.core.session import (
    Accepted,
    Authenticate,
    Authenticated,
    Close,
    Rejected,
    ServerStopping,
    SessionLimits,
    TakenOver,
)
from tocsin.errors import PortTaken
from tocsin.model.network import BrokerInfo

BACKLOG: Final = 1_024  # connections that wait to be accepted; the kernel's somaxconn bounds it as well
STRANGERS_MAX: Final = 1_000  # connections beyond the clients: those still to introduce themselves, and links


def listening_socket(host: str, port: int, broker_id: str) -> socket.socket:
    """A bound socket that listens.

    Its protocol is named (IPPROTO_TCP), because asyncio switches Nagle's delay off only on sockets that say so.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise PortTaken(host, port, f"broker {broker_id}", "the port of that broker") from None
    listening.setblocking(False)
    return listening


class Listener:
    """See the module's text."""

    def __init__(self, own: BrokerInfo, limits: Limits, exchange: Exchange, admission: Admission) -> None:
        self.own = own
        self.exchange = exchange
        self.outbound_max_bytes = limits.outbound_max_bytes
        self.limits = SessionLimits(
            connect_deadline_us=round(limits.connect_deadline_s * 1e6),
            packet_max_bytes=limits.packet_max_bytes,
            subscriptions_max=limits.subscriptions_per_client,
            topic_max_bytes=limits.topic_max_bytes,
            topic_max_levels=limits.topic_depth_max,
            keep_alive_max_s=limits.keep_alive_max_s,
            subscription_ids=True,
        )
        self._admission = admission
        self._sockets_max = limits.connections_max + STRANGERS_MAX
        self._connections: dict[Connection, None] = {}
        self._clients: dict[str, Connection] = {}  # client id → the connection that holds it
        self._links: dict[str, Connection] = {}  # the same for peers' links, which are no clients
        self._count = 0  # connections ever made
        self._server: asyncio.Server | None = None
        self._log = structlog.get_logger()

    @property
    def clients(self) -> int:
        return len(self._clients)

    async def open(self, listening: socket.socket) -> None:
        self._server = await asyncio.get_running_loop().create_server(self._make, sock=listening)

    async def close(self) -> None:
        """Take no more connections, and tell those that are there that the broker stops."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.post(ServerStopping(cause=f"{self.own.id}:stop"))

    def _make(self) -> Connection:
        self._count += 1
        return Connection(self, self._count)

    # ── what connections ask ────────────────────────────────────────────────────────────────────────────────

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more connection, whoever it is."""
        if len(self._connections) >= self._sockets_max:
            return False
        self._connections[connection] = None
        return True

    def authenticate(self, asked: Authenticate) -> Authenticated | Rejected:
        return self._admission.decide(asked, len(self._clients))

    def accept(self, connection: Connection, accepted: Accepted) -> str | None:
        """Register a connection under its client id; the cluster that it links from, if it is a link."""
        cluster = link_cluster(accepted)
        holders = self._clients if cluster is None else self._links
        before = holders.get(accepted.client_id)
        holders[accepted.client_id] = connection
        if before is not None:
            before.post(TakenOver(cause=accepted.cause))
        self._log.debug("client accepted", subscriber=accepted.client_id, cause=accepted.cause)
        return cluster

    def closed(self, connection: Connection, close: Close) -> None:
        """Keep a note of how a connection ended."""
        self._log.debug(
            "connection closed",
            subscriber=connection.client_id,
            cause=close.cause,
            reason=close.reason,
            reason_code=close.reason_code,
            fault=close.fault,
        )

    def release(self, connection: Connection) -> None:
        """A connection is over; forget all that it held. Harmless when repeated."""
        self._connections.pop(connection, None)
        for holders in (self._clients, self._links):
            if holders.get(connection.client_id) is connection:
                del holders[connection.client_id]
        self.exchange.forget(connection)
