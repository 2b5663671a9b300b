"""Clients that a coordinator's door passes on: they come over the port for links, and are clients like any other.

    coordinator's certificate ──► PROXY header (``wire.proxy_header``) ──► CONNECT, as from a socket of the client's own

The header is believed because the coordinator has proven over TLS that it is one of this network; nobody else is asked
for one. So limits for each address, and rules about this machine's own clients, count for the client's address and not
for the coordinator's. A client on the coordinator's machine is on this one only if the coordinator is as well;
otherwise its address counts as unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import structlog

from tocsin.broker.connection.connection import Connection
from tocsin.core.access.admission import is_loopback
from tocsin.model.versions import UNREADABLE
from tocsin.wire.proxy_header import PassedOn, read_header

HEADER_S: Final = 10.0  # for the header to come: the door sends it with the first bytes
PASSED_ON: Final = "passed_on"  # what ``get_extra_info`` calls it

Make = Callable[[], Connection]


class PassedOnClient(asyncio.Protocol):
    """One connection of a coordinator's; a protocol to its socket, and to its ``Connection`` a transport."""

    __slots__ = ("_client", "_connection", "_deadline", "_early", "_make", "_tcp")

    def __init__(self, make: Make, transport: asyncio.Transport) -> None:
        self._make = make
        self._tcp = transport
        self._client: PassedOn | None = None  # once the header is read
        self._connection: Connection | None = None  # same
        self._early = b""  # of the header
        self._deadline = asyncio.get_running_loop().call_later(HEADER_S, transport.abort)

    # ── the socket tells ────────────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.data_received(data)
            return
        self._early += data
        try:
            read = read_header(self._early)
        except UNREADABLE as error:
            structlog.get_logger().warning("a client that was passed on is refused", problem=str(error))
            self._deadline.cancel()
            self._tcp.abort()
            return
        if read is None:
            return
        self._deadline.cancel()
        self._client, length = read
        rest, self._early = self._early[length:], b""
        self._connection = self._make()
        self._connection.connection_made(cast(asyncio.Transport, self))
        if rest:
            self._connection.data_received(rest)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        if self._connection is not None:
            self._connection.connection_lost(error)

    # ── the connection asks, as of any transport ────────────────────────────────────────────────────────────

    def write(self, data: bytes) -> None:
        self._tcp.write(data)

    def get_write_buffer_size(self) -> int:
        return self._tcp.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._tcp.set_write_buffer_limits(high, low)

    def is_closing(self) -> bool:
        return self._tcp.is_closing()

    def close(self) -> None:
        self._tcp.close()

    def abort(self) -> None:
        self._tcp.abort()

    def pause_reading(self) -> None:
        self._tcp.pause_reading()

    def resume_reading(self) -> None:
        self._tcp.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        client = self._client
        assert client is not None, "nobody asks before the header was read"
        if name == PASSED_ON:
            return client
        if name == "peername":
            return (self._address(client), client.port)
        return default  # the coordinator's TLS and its socket are not the client's

    def _address(self, client: PassedOn) -> str:
        peer = self._tcp.get_extra_info("peername")
        near = isinstance(peer, tuple) and is_loopback(peer[0])
        return "" if is_loopback(client.address) and not near else client.address
