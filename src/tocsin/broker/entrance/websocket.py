"""MQTT over WebSocket: the same connections as over TCP, behind an HTTP upgrade and in binary frames.

The library ``websockets`` parses the request and the frames; this module puts them between a socket and a
``Connection``. To the connection a ``WebSocketTransport`` is a transport like any other from the moment the socket is
accepted, so that the listener's bounds and the deadline for CONNECT hold for the HTTP request too. MQTT is a stream of
bytes here; where frames and fragments begin says nothing about packets.

    accepted ──GET /mqtt, subprotocol mqtt──► open ──CLOSE from either side──► closing ──► lost
        └──────anything else: an HTTP status, and why───────────────────────────────────────┘

The side that sends CLOSE first waits for the other's; we wait no longer than CLOSE_DEADLINE_S. Everything from outside
has a bound: the request REQUEST_MAX_BYTES, a frame the largest packet and a margin, what waits for a slow reader what
the connection allows, pings that it does not read the answers of one owed answer.

The Origin of a web page is handed on (``get_extra_info("origin")``) to those who decide about admission
(``core.access.admission``): it counts where a client proves no name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import structlog
from websockets.exceptions import InvalidHeader, NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from tocsin.broker.connection.connection import Connection
from tocsin.wire.mqtt.websocket import (
    FRAME_MARGIN_BYTES,
    NO_PATH,
    ORIGIN_MAX,
    PATH,
    REQUEST_MAX_BYTES,
    SUBPROTOCOL,
)

if TYPE_CHECKING:
    from tocsin.broker.entrance.listener import Listener

CLOSE_DEADLINE_S: Final = 5.0  # for the other side's CLOSE, and for the last bytes before it

_END_OF_REQUEST: Final = b"\r\n\r\n"
_OPEN: Final = State.OPEN
_VERSION_HEADER: Final = "Sec-WebSocket-Version"
_quiet = logging.getLogger("tocsin.websocket")  # of the library's own lines, only errors
_quiet.setLevel(logging.ERROR)


def framed(listener: Listener) -> Callable[[Connection], asyncio.Protocol]:
    """The protocol that puts WebSocket between a socket and a connection."""
    max_frame_bytes = listener.limits.packet_max_bytes + FRAME_MARGIN_BYTES
    return lambda connection: WebSocketTransport(connection, max_frame_bytes)


def _select(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol:
    if SUBPROTOCOL not in offered:
        raise NegotiationError(f"ask for the subprotocol {SUBPROTOCOL!r}")
    return Subprotocol(SUBPROTOCOL)


class WebSocketTransport(asyncio.Protocol):
    """One WebSocket: a protocol to its socket, and to its ``Connection`` an ``asyncio.Transport``."""

    __slots__ = (
        "_closing",
        "_congested",
        "_connection",
        "_deadline",
        "_owed_pong",
        "_request",
        "_tcp",
        "_web",
    )

    def __init__(self, connection: Connection, max_frame_bytes: int) -> None:
        self._connection = connection
        self._tcp: asyncio.Transport  # from ``connection_made`` on
        self._request: bytes | None = b""  # as much of it as has come; None once it was answered
        self._web = ServerProtocol(
            select_subprotocol=_select, max_size=(None, max_frame_bytes), logger=_quiet
        )
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
        web = self._web
        web.receive_data(data)
        frames = cast(list[Frame], web.events_received())
        if len(frames) == 1 and frames[0].opcode is Opcode.BINARY and not self._closing:  # most of them
            self._hand_on(bytes(frames[0].data))
        elif frames and not self._closing:
            self._take_frames(frames)
        if web.writes:
            self._answer()

    def pause_writing(self) -> None:
        self._congested = True
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._congested = False
        if self._owed_pong is not None:
            pong, self._owed_pong = self._owed_pong, None
            if not self.is_closing():
                self._tcp.write(pong)
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._connection.connection_lost(error)

    # ── the connection asks, as of any transport ────────────────────────────────────────────────────────────

    def write(self, data: bytes) -> None:
        web = self._web
        if web.state is _OPEN and not self._closing and not self._tcp.is_closing():
            web.send_binary(data)
            self._tcp.write(web.data_to_send()[0])

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
            self._web.send_close(CloseCode.NORMAL_CLOSURE)
            self._answer()

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
            return default if self._web.origin is None else self._web.origin[:ORIGIN_MAX]
        if name == "websocket":
            return self
        if name == "socket":  # not to be written to but in frames
            return default
        return self._tcp.get_extra_info(name, default)

    # ── the request that opens it ───────────────────────────────────────────────────────────────────────────

    def _take_request(self, data: bytes) -> bytes:
        """Answer the request when it is whole; the bytes behind it, if it was granted."""
        head, end, rest = data.partition(_END_OF_REQUEST)
        if len(head) > REQUEST_MAX_BYTES:
            self.abort()
        elif not end:
            self._request = data
        elif not self._closing:
            web = self._web
            web.receive_data(head + end)
            for request in web.events_received():
                web.send_response(self._response(cast(Request, request)))
            for each in web.data_to_send():
                self._tcp.write(each)
            if web.state is _OPEN:
                self._request = None
                return rest
            self.close()
        return b""

    def _response(self, request: Request) -> Response:
        if request.path.partition("?")[0] not in (PATH, NO_PATH):
            return self._web.reject(404, f"There is only {PATH} here (or no path): MQTT over WebSocket.\n")
        response = self._web.accept(request)
        problem = self._web.handshake_exc
        if isinstance(problem, InvalidHeader) and problem.name == _VERSION_HEADER:
            response = self._web.reject(426, "Use WebSocket version 13 (RFC 6455).\n")
            response.headers["Upgrade"] = "websocket"
        if response.status_code == 426:
            response.headers[_VERSION_HEADER] = "13"
        return response

    # ── frames ──────────────────────────────────────────────────────────────────────────────────────────────

    def _take_frames(self, frames: list[Frame]) -> None:
        """Hand on the bytes of several frames as one piece, and judge what is no binary frame."""
        pieces: list[bytes] = []
        text = False
        for frame in frames:
            if frame.opcode is Opcode.BINARY or frame.opcode is Opcode.CONT:
                pieces.append(bytes(frame.data))
            elif frame.opcode is Opcode.TEXT:
                text = True
                break
        if pieces:
            self._hand_on(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if text and self._web.state is _OPEN:
            self._web.fail(CloseCode.UNSUPPORTED_DATA, "MQTT comes in binary frames")

    def _hand_on(self, data: bytes) -> None:
        try:
            self._connection.data_received(data)
        except Exception:
            structlog.get_logger().exception("websocket failed")
            if self._web.state is _OPEN:
                self._web.fail(CloseCode.INTERNAL_ERROR, "an error in the broker")

    def _answer(self) -> None:
        """Send what the library has to say to the peer: pongs, a CLOSE, the end."""
        said, over = self._web.data_to_send(), self._web.state is not _OPEN
        if self._tcp.is_closing():
            return
        if self._congested and not over:
            self._owed_pong = said[-1]  # one for its newest ping is enough (RFC 6455, 5.5.3)
            return
        ends = said[-1] == SEND_EOF
        self._tcp.write(b"".join(said))
        if over:
            self._close(ends=ends)

    def _close(self, *, ends: bool) -> None:
        """A CLOSE was sent; ``ends`` if nothing is left to hear from the peer."""
        self.resume_reading()  # or the answer would not be heard
        self._closing = True
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(CLOSE_DEADLINE_S, self._tcp.abort)
        if not ends:
            return
        if self._web.close_rcvd is None and self._tcp.can_write_eof():
            self._tcp.write_eof()  # and read on to the peer's end, so that no reset overtakes the reason
        else:
            self._tcp.close()
        self._connection.connection_lost(None)  # it need not wait for the last bytes to leave
