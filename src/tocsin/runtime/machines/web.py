"""WebSocket between a socket and the protocol that calls over it: the client's side of
``broker.entrance.websocket``."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from tocsin.wire.mqtt.websocket import FRAME_MARGIN_BYTES, PATH, REQUEST_MAX_BYTES, SUBPROTOCOL

_quiet = logging.getLogger("tocsin.websocket")  # of the library's own lines, only errors
_quiet.setLevel(logging.ERROR)


class WebCall(asyncio.Protocol):
    """A protocol to its socket, and to ``inner`` an ``asyncio.Transport`` from the moment the server has agreed."""

    def __init__(self, inner: asyncio.Protocol, host: str, port: int, packet_max_bytes: int) -> None:
        self._inner = inner
        self._web = ClientProtocol(
            WebSocketURI(False, host, port, PATH, ""),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            max_size=(None, packet_max_bytes + FRAME_MARGIN_BYTES),
            logger=_quiet,
        )
        self._answer_bytes = 0  # that came before the server agreed
        self._tcp: asyncio.Transport  # from ``connection_made`` on
        self._closing = False

    # ── the socket tells ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)
        self._web.send_request(self._web.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        web = self._web
        if self._closing:
            return
        if web.state is State.CONNECTING:
            self._answer_bytes += len(data)
        web.receive_data(data)
        for event in web.events_received():
            if isinstance(event, Response):
                if web.state is State.OPEN and web.subprotocol is not None:
                    self._inner.connection_made(cast(asyncio.Transport, self))
            elif isinstance(event, Frame) and not self._closing:
                self._take(event)
        self._flush()
        problem = self._problem()
        if problem is not None and not self._closing:
            self._end(problem)

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY or frame.opcode is Opcode.CONT:
            self._inner.data_received(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self._end("the server sent text; MQTT comes in binary frames")

    def eof_received(self) -> bool:
        if not self._closing and self._web.state is State.CONNECTING:
            self._web.receive_eof()
            problem = self._problem()
            if problem is not None:
                self._end(problem)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._inner.connection_lost(error)

    # ── the inner protocol asks, as of any transport ────────────────────────────────────────────────────────

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self._web.send_binary(data)
            self._flush()

    def get_write_buffer_size(self) -> int:
        return self._tcp.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._closing or self._tcp.is_closing() or self._web.state is not State.OPEN

    def close(self) -> None:
        if not self.is_closing():
            self._web.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
        self._closing = True
        self._tcp.close()

    def abort(self) -> None:
        self._closing = True
        self._tcp.abort()

    def _flush(self) -> None:
        """Send what the library has to say: the request, frames, pongs, a CLOSE."""
        said = self._web.data_to_send()
        if said and not self._tcp.is_closing():
            self._tcp.write(b"".join(said))

    def _problem(self) -> str | None:
        """Why there is no WebSocket, or no more; None if all is well."""
        web = self._web
        refused = web.handshake_exc
        if isinstance(refused, InvalidStatus):
            status = refused.response
            return (
                f"the server answered {status.status_code} {status.reason_phrase[:80]!r}; "
                f"is there MQTT over WebSocket at {PATH}?"
            )
        if refused is not None:
            return f"the answer is no response to an upgrade: {refused}"
        if web.state is State.CONNECTING:
            too_long = self._answer_bytes > REQUEST_MAX_BYTES
            return "the answer is no response to an upgrade: it is too long" if too_long else None
        if web.state is State.OPEN:
            agreed = web.subprotocol == SUBPROTOCOL
            return None if agreed else f"the server does not speak the subprotocol {SUBPROTOCOL!r}"
        if web.parser_exc is not None:
            return str(web.parser_exc)
        return "the server closed the WebSocket"

    def _end(self, problem: str) -> None:
        """Say why there is no connection any more."""
        self._closing = True
        self._tcp.close()
        self._inner.connection_lost(ConnectionError(problem))
