"""An echo server over the broker's WebSocket transport, for the Autobahn test suite to fuzz.

MQTT refuses text, and Autobahn's cases send it: here text is echoed too, once it is whole and valid UTF-8. The request,
frames, fragments, pings and CLOSE are those of ``broker.entrance.websocket``.

    python -m tests.conformance.autobahn 19001        serves until it is interrupted

    wstest -m fuzzingclient -s fuzz.json              with {"servers": [{"url": "ws://127.0.0.1:19001/mqtt"}], …}
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from tocsin.broker.connection.connection import Connection
from tocsin.broker.entrance.websocket import WebSocketTransport

FRAME_MAX_BYTES = 64 << 20


class _Nobody:
    """In the place of an MQTT connection: it says nothing."""

    def __getattr__(self, name: str) -> object:
        return lambda *arguments: None


class Echo(WebSocketTransport):
    """Sends every whole message back."""

    def __init__(self) -> None:
        super().__init__(cast(Connection, _Nobody()), FRAME_MAX_BYTES)
        self._web = ServerProtocol(max_size=(None, FRAME_MAX_BYTES))  # Autobahn asks for no subprotocol
        self._kind = Opcode.BINARY
        self._parts: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        if self._request is not None:
            data = self._take_request(self._request + data)
        if data:
            self._web.receive_data(data)
            self._take_frames(cast(list[Frame], self._web.events_received()))
        if self._web.writes:
            self._answer()

    def _take_frames(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                self._kind, self._parts = frame.opcode, []
            elif frame.opcode is not Opcode.CONT:
                continue
            self._parts.append(bytes(frame.data))
            if frame.fin and self._web.state is State.OPEN:
                self._echo(b"".join(self._parts))

    def _echo(self, message: bytes) -> None:
        if self._kind is Opcode.BINARY:
            self._web.send_binary(message)
            return
        try:
            message.decode()
        except UnicodeDecodeError:
            self._web.fail(CloseCode.INVALID_DATA, "text is UTF-8")
        else:
            self._web.send_text(message)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
