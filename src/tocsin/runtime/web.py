"""The shell of ``wire.websocket_caller``: WebSocket between a socket and the protocol that calls over it."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, cast

from tocsin.wire.websocket import (
    OK,
    PROTOCOL_ERROR,
    Broken,
    Close,
    Ping,
    binary_frame,
    close_frame,
    pong_frame,
)
from tocsin.wire.websocket_caller import Caller, Granted, masked

FRAME_MARGIN_BYTES: Final = 64 << 10  # of small packets that share a frame with the largest


class WebCall(asyncio.Protocol):
    """A protocol to its socket, and to ``inner`` an ``asyncio.Transport`` from the moment the server has agreed."""

    def __init__(self, inner: asyncio.Protocol, host: str, port: int, packet_max_bytes: int) -> None:
        self._inner = inner
        self._caller = Caller(host, port, secrets.token_bytes(16), packet_max_bytes + FRAME_MARGIN_BYTES)
        self._tcp: asyncio.Transport  # from ``connection_made`` on
        self._closing = False

    # ── the socket tells ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)
        self._tcp.write(self._caller.request)

    def data_received(self, data: bytes) -> None:
        for item in self._caller.feed(data):
            match item:
                case Granted():
                    self._inner.connection_made(cast(asyncio.Transport, self))
                case Ping(payload=payload):
                    self._send(pong_frame(payload))
                case Close():
                    self._end(OK, ConnectionError("the server closed the WebSocket"))
                case Broken(reason=reason):
                    self._end(PROTOCOL_ERROR, ConnectionError(reason))
                case bytes():
                    self._inner.data_received(item)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._inner.connection_lost(error)

    # ── the inner protocol asks, as of any transport ────────────────────────────────────────────────────────

    def write(self, data: bytes) -> None:
        self._send(binary_frame(data))

    def get_write_buffer_size(self) -> int:
        return self._tcp.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._closing or self._tcp.is_closing()

    def close(self) -> None:
        self._send(close_frame(OK))
        self._closing = True
        self._tcp.close()

    def abort(self) -> None:
        self._closing = True
        self._tcp.abort()

    def _send(self, frame: bytes) -> None:
        if not self.is_closing():
            self._tcp.write(masked(frame, secrets.token_bytes(4)))

    def _end(self, code: int, error: ConnectionError) -> None:
        """Take leave, and say why there is no connection any more."""
        self._send(close_frame(code))
        self._closing = True
        self._tcp.close()
        self._inner.connection_lost(error)
