"""MQTT over WebSocket: the same connections as over TCP, behind an HTTP upgrade and in binary frames.

A **channel** is one accepted socket. To the session's shell (``broker.connection``) it is a transport like any other
from the moment it is accepted, so that the listener's bounds and the deadline for CONNECT hold for the HTTP request
too. MQTT is a stream of bytes here; where frames and fragments begin says nothing about packets.

    accepted ──GET /mqtt, subprotocol mqtt──► open ──CLOSE from either side──► closing ──► lost
        └──────anything else: an HTTP status, in words──────────────────────────────────────┘

Whoever says CLOSE first waits for the other's; we wait no longer than CLOSE_DEADLINE_S. Everything from outside has a
bound: the request REQUEST_MAX_BYTES, a frame the largest packet and a margin, what waits for a slow reader what the
connection allows, pings that it does not read the answers of one owed answer.

The Origin of a web page is handed on (``get_extra_info("origin")``) to those who decide about admission
(``core.admission``): it counts where a client proves no name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from tocsin.broker.connection import Connection
from tocsin.wire import websocket as wire
from tocsin.wire.websocket import REQUEST_MAX_BYTES, Broken, Close, Ping, Reader, Upgrade, binary_frame

if TYPE_CHECKING:
    from tocsin.broker.listener import Listener

FRAME_MARGIN_BYTES: Final = 64 << 10  # of small packets that share a frame with the largest
CLOSE_DEADLINE_S: Final = 5.0  # for the other side's CLOSE, and for the last bytes before it

_END_OF_REQUEST: Final = b"\r\n\r\n"


def framed(listener: Listener) -> Callable[[Connection], asyncio.Protocol]:
    """What puts WebSocket between a socket and a connection."""
    max_frame_bytes = listener.limits.packet_max_bytes + FRAME_MARGIN_BYTES
    return lambda connection: Channel(connection, max_frame_bytes)


class Channel(asyncio.Protocol):
    """One WebSocket: a protocol to its socket, and to its ``Connection`` an ``asyncio.Transport``."""

    __slots__ = (
        "_closing", "_congested", "_connection", "_deadline", "_origin", "_owed_pong", "_reader", "_request", "_tcp",
    )  # fmt: skip

    def __init__(self, connection: Connection, max_frame_bytes: int) -> None:
        self._connection = connection
        self._tcp: asyncio.Transport  # from ``connection_made`` on
        self._request: bytes | None = b""  # as much of it as has come; None once it was answered
        self._reader = Reader(max_frame_bytes)
        self._origin: str | None = None
        self._closing = False  # nothing more is sent, and nothing but CLOSE heard
        self._congested = False  # the kernel takes no more for now
        self._owed_pong: bytes | None = None  # the answer to the newest ping, while congested
        self._deadline: asyncio.TimerHandle | None = None  # set while closing

    # ── the socket tells ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)
        self._connection.connection_made(cast(asyncio.Transport, self))

    def data_received(self, data: bytes) -> None:
        if self._request is not None:
            data = self._take_request(self._request + data)
            if not data:
                return
        for item in self._reader.feed(data):
            if isinstance(item, Close):
                self._answer_close()
            elif self._closing:
                return
            elif isinstance(item, bytes):
                self._hand_on(item)
            elif isinstance(item, Ping):
                self._answer_ping(item.payload)
            else:
                self._refuse(item)

    def pause_writing(self) -> None:
        self._congested = True
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._congested = False
        if self._owed_pong is not None:
            payload, self._owed_pong = self._owed_pong, None
            self._answer_ping(payload)
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._connection.connection_lost(error)

    def _take_request(self, data: bytes) -> bytes:
        """Answer the request when it is whole; the bytes behind it, if it was granted."""
        head, end, rest = data.partition(_END_OF_REQUEST)
        if len(head) > REQUEST_MAX_BYTES:
            self.abort()
        elif not end:
            self._request = data
        elif not self._closing:
            answer = wire.answer(head)
            self._tcp.write(answer.response)
            if isinstance(answer, Upgrade):
                self._request = None
                self._origin = answer.origin
                return rest
            self.close()
        return b""

    def _hand_on(self, data: bytes) -> None:
        try:
            self._connection.data_received(data)
        except Exception:
            structlog.get_logger().exception("websocket failed")
            self._refuse(Broken(wire.INTERNAL_ERROR, "an error in the broker"))

    # ── the connection asks, as of any transport ────────────────────────────────────────────────────────────

    def write(self, data: bytes) -> None:
        if self._request is None and not self._closing and not self._tcp.is_closing():
            self._tcp.write(binary_frame(data))

    def get_write_buffer_size(self) -> int:
        return self._tcp.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._closing or self._tcp.is_closing()

    def close(self) -> None:
        """Send what waits, take leave, and end."""
        if self._request is not None:  # there is nobody yet to take leave from
            self._closing = True
            self._tcp.close()
        elif not self.is_closing():
            self._say_close(wire.OK)

    def abort(self) -> None:
        self._closing = True
        self._tcp.abort()

    def pause_reading(self) -> None:
        if not self.is_closing():
            self._tcp.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_closing():
            self._tcp.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "origin":
            return default if self._origin is None else self._origin
        if name == "websocket":
            return self
        if name == "socket":  # not to be written to but in frames
            return default
        return self._tcp.get_extra_info(name, default)

    # ── the frames that are about the WebSocket itself ──────────────────────────────────────────────────────

    def _answer_ping(self, payload: bytes) -> None:
        """A pong; to a peer that does not read, one for its newest ping, later (RFC 6455, 5.5.3)."""
        if self._congested:
            self._owed_pong = payload
        elif not self.is_closing():
            self._tcp.write(wire.pong_frame(payload))

    def _answer_close(self) -> None:
        if not self._closing:
            self._say_close(wire.OK)
        self._tcp.close()
        self._connection.connection_lost(None)  # it need not wait for the last bytes to leave

    def _refuse(self, broken: Broken) -> None:
        """The peer breaks the rules of WebSocket: tell it, and end. Its own CLOSE may be past recognising."""
        if not self.is_closing():
            self._say_close(broken.code, broken.reason)
            if self._tcp.can_write_eof():
                self._tcp.write_eof()  # and read on to the peer's end, so that no reset overtakes the reason
            else:
                self._tcp.close()
        self._connection.connection_lost(None)

    def _say_close(self, code: int, reason: str = "") -> None:
        self.resume_reading()  # or the answer would not be heard
        self._closing = True
        self._tcp.write(wire.close_frame(code, reason))
        self._deadline = asyncio.get_running_loop().call_later(CLOSE_DEADLINE_S, self._tcp.abort)
