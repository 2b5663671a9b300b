"""A WebSocket client in a few lines, which can also do what no client should; and a door that it can knock at."""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Self, cast

from mqtt5 import ConnAckPacket, ConnectPacket

from tests.unit.broker.harness import DEADLINE_S, Door, Peer
from tocsin.broker.entrance.listener import listening_socket
from tocsin.broker.entrance.websocket import framed
from tocsin.config import Limits
from tocsin.wire.mqtt.connect import V5, Version

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
MASK = b"\x37\xfa\x21\x3d"
HEADERS = {
    "Host": "broker",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "mqtt",
}


def frame(
    kind: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, reserved: int = 0
) -> bytes:
    """A frame as a client sends it."""
    size = len(payload)
    mask_bit = 0x80 if masked else 0
    if size < 126:
        length = bytes([mask_bit | size])
    elif size < 1 << 16:
        length = bytes([mask_bit | 126]) + size.to_bytes(2)
    else:
        length = bytes([mask_bit | 127]) + size.to_bytes(8)
    head = bytes([(0x80 if fin else 0) | reserved << 4 | kind]) + length
    if not masked:
        return head + payload
    key = (MASK * (size // 4 + 1))[:size]
    body = (int.from_bytes(payload) ^ int.from_bytes(key)).to_bytes(size)
    return head + MASK + body


class WebDoor(Door):
    """A door that also takes WebSocket connections, at ``web_port``."""

    def __init__(self, limits: Limits, *, context: ssl.SSLContext | None = None) -> None:
        super().__init__(limits)
        self.web_port = 0
        self._context = context
        self._webs: list[Web] = []

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        listening = listening_socket("127.0.0.1", 0, "north-1")
        self.web_port = listening.getsockname()[1]
        wrap = framed(self.listener)
        self.server = await asyncio.get_running_loop().create_server(
            lambda: wrap(self.listener.make()), sock=listening, ssl=self._context
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.close()
        for web in self._webs:
            web.writer.transport.abort()
        await super().__aexit__(kind, error, trace)
        for _ in range(10):  # a socket's end has a few ticks more to travel when it is wrapped
            await asyncio.sleep(0)

    async def raw(self, *, context: ssl.SSLContext | None = None) -> Web:
        """A socket that has said nothing yet."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.web_port, ssl=context)
        web = Web(reader, writer)
        self._webs.append(web)
        return web

    async def web(self, *, context: ssl.SSLContext | None = None, **headers: str) -> Web:
        """A WebSocket that is open."""
        web = await self.raw(context=context)
        status, _, _ = await web.request(
            headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
        assert status == 101
        return web

    async def web_peer(
        self, client_id: str, *, version: Version = V5, context: ssl.SSLContext | None = None
    ) -> WebPeer:
        """A connected MQTT peer."""
        peer = WebPeer(await self.web(context=context), version)
        peer.send(ConnectPacket(client_id, clean_start=True))
        answer = await peer.receive(ConnAckPacket)
        assert int(answer.reason_code) == 0, answer
        return peer


class Web:
    """One side of a WebSocket, in frames; to a ``Peer`` it reads and writes like a stream of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.close_code: int | None = None  # of the CLOSE that was received
        self.close_reason = ""

    async def request(
        self, path: str = "/mqtt", headers: dict[str, str | None] | dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask for the upgrade; the status, the headers (names in small letters) and the body. None leaves one out."""
        wanted: dict[str, str | None] = {**HEADERS, **(headers or {})}
        lines = [f"{name}: {text}" for name, text in wanted.items() if text is not None]
        self.writer.write("\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode())
        async with asyncio.timeout(DEADLINE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *rest = head.split("\r\n")[:-2]
            answer = {name.lower(): text for name, _, text in (line.partition(": ") for line in rest)}
            body = await self.reader.readexactly(int(answer.get("content-length", "0")))
        return int(first.split(" ")[1]), answer, body

    async def next(self) -> tuple[int, bytes]:
        """The next frame: its kind and its payload. The broker never fragments or masks."""
        async with asyncio.timeout(DEADLINE_S):
            first, second = await self.reader.readexactly(2)
            assert first & 0xF0 == 0x80 and second < 0x80, "whole, unmasked, no extension"
            size = second
            if second >= 126:
                size = int.from_bytes(await self.reader.readexactly(2 if second == 126 else 8))
            return first & 0x0F, await self.reader.readexactly(size)

    async def closed(self) -> int | None:
        """Read on to the end, answering a CLOSE; its code, or None if the end came without one."""
        try:
            while True:
                kind, payload = await self.next()
                if kind == CLOSE:
                    self.close_code = int.from_bytes(payload[:2])
                    self.close_reason = payload[2:].decode()
                    self.writer.write(frame(CLOSE, payload[:2]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return self.close_code

    # as a stream of bytes

    def write(self, data: bytes) -> None:
        self.writer.write(frame(BINARY, data))

    async def read(self, at_most: int) -> bytes:
        kind, payload = await self.next()
        assert kind == BINARY, (kind, payload)
        return payload

    @property
    def transport(self) -> asyncio.WriteTransport:
        return self.writer.transport

    def close(self) -> None:
        self.writer.close()


class WebPeer(Peer):
    """A peer whose packets travel in frames, one each."""

    def __init__(self, web: Web, version: Version) -> None:
        super().__init__(web, web, version)  # type: ignore[arg-type]  # as much of a stream as a peer needs
        self.web = web

    def stop_reading(self) -> None:
        cast(asyncio.Transport, self.web.transport).pause_reading()

    def start_reading(self) -> None:
        cast(asyncio.Transport, self.web.transport).resume_reading()
