"""A client of the paper's own broker, by the protocol of its published source: for V-A beside ours (``--peer``).

A connection carries messages one after the other: a byte that says which kind, and a map in MessagePack. A subscriber
says its query once and is told, at once, which streams satisfy it (a *difference*). A publisher says its stream's
metadata with the first message and with each change. It knows no acknowledgements, and no log-in.

The classes have those methods of ``tocsin.client`` that ``crowd`` uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec

from tocsin.errors import OperatorError

PUBLISH, QUERY, DIFFERENCE = 0, 1, 2  # kinds of messages
MESSAGE_MAX: Final = 1 << 20
READ_BYTES: Final = 1 << 16
REMEDY: Final = "Start a broker of the paper's, and give its address with --peer HOST:PORT"
_FIXED: Final = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8} | {
    0xD0 + number: size for number, size in enumerate((1, 2, 4, 8))
}  # first byte → bytes behind it
_SIZED: Final = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}  # … → of the size
_LISTS: Final = {0xDC: (">H", 1), 0xDD: (">I", 1), 0xDE: (">H", 2), 0xDF: (">I", 2)}  # … and values an entry


class Message(msgspec.Struct, frozen=True):
    """What a subscriber is given."""

    payload: bytes


class _Published(msgspec.Struct):
    uuid: str = msgspec.field(name="UUID")
    metadata: dict[str, str | None] = msgspec.field(name="Metadata")
    value: bytes = msgspec.field(name="Value")


class _Asked(msgspec.Struct):
    uuid: str = msgspec.field(name="UUID")
    query: str = msgspec.field(name="Query")


class OriginalClient:
    """One connection: a publisher of one stream, or a subscriber with one query."""

    dropped = 0

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port

    async def __aenter__(self) -> OriginalClient:
        host, port = self._address
        try:
            self.reader, self._writer = await asyncio.open_connection(host, port)
        except OSError as error:
            problem = f"the original broker cannot be reached at {host}:{port}: {error.strerror or error}"
            raise OperatorError(problem, REMEDY) from None
        return self

    async def __aexit__(self, *how: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def query(self, text: str) -> OriginalQuery:
        return OriginalQuery(self, text)

    def stream(self, topic: str, metadata: Mapping[str, str], /) -> OriginalStream:
        return OriginalStream(self, topic, metadata)

    async def say(self, kind: int, message: msgspec.Struct) -> None:
        self._writer.write(bytes((kind,)) + msgspec.msgpack.encode(message))
        await self._writer.drain()

    async def flush(self) -> None:
        await self._writer.drain()


class OriginalQuery:
    """The messages that a query brings."""

    def __init__(self, client: OriginalClient, text: str) -> None:
        self._client = client
        self._text = text
        self._messages = messages(client.reader)

    async def open(self) -> None:
        """Ask, and wait for the answer."""
        await self._client.say(QUERY, _Asked(str(uuid.uuid4()), self._text))
        kind, _ = await anext(self._messages)
        if kind != DIFFERENCE:
            raise OperatorError(f"the peer answered a query with a message of kind {kind}", REMEDY)

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for kind, body in self._messages:
            if kind == PUBLISH:
                yield Message(msgspec.msgpack.decode(body, type=_Published).value)


class OriginalStream:
    """A stream's publisher."""

    def __init__(self, client: OriginalClient, topic: str, metadata: Mapping[str, str]) -> None:
        self._client = client
        self._uuid = str(uuid.uuid5(uuid.NAMESPACE_OID, topic))
        self._news = dict(metadata)  # metadata that the broker has not been told

    async def publish(self, payload: bytes, metadata: Mapping[str, str] | None = None, /) -> None:
        self._news |= metadata or {}
        news, self._news = self._news, {}
        await self._client.say(PUBLISH, _Published(self._uuid, dict(news), payload))


async def messages(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    """The kind and the body of each message, until the connection ends. Raises ``OperatorError``."""
    had = b""
    while more := await reader.read(READ_BYTES):
        had += more
        at = 0
        while (end := end_of(had, at + 1)) is not None:
            yield had[at], had[at + 1 : end]
            at = end
        had = had[at:]
        if len(had) > MESSAGE_MAX:
            raise OperatorError(f"the peer sends a message of more than {MESSAGE_MAX} bytes", REMEDY)


def end_of(data: bytes, at: int) -> int | None:
    """Where the value that begins there ends; None if it is not there yet. Raises ``OperatorError``."""
    waiting = 1  # values
    while waiting:
        if at >= len(data):
            return None
        first = data[at]
        at, waiting = at + 1, waiting - 1
        if first in _FIXED:
            at += _FIXED[first]
        elif first in _SIZED or first in _LISTS:
            form, values = (_SIZED[first], 0) if first in _SIZED else _LISTS[first]
            if at + struct.calcsize(form) > len(data):
                return None
            (size,) = struct.unpack_from(form, data, at)
            at += struct.calcsize(form) + (0 if values else size)
            waiting += values * size
        elif 0x80 <= first < 0x90:
            waiting += 2 * (first & 0x0F)
        elif 0x90 <= first < 0xA0:
            waiting += first & 0x0F
        elif 0xA0 <= first < 0xC0:
            at += first & 0x1F
        elif 0x80 <= first < 0xE0:
            raise OperatorError(f"the peer does not speak the paper's protocol: byte {first:#x}", REMEDY)
    return at if at <= len(data) else None
