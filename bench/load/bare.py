"""A server on the brokers' event loop that does nothing but answer: what a connection costs before any broker's work.

    python bare.py PORT

It takes each packet as a whole, which ours are, and looks at its first byte.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final, cast

import uvloop

HOST: Final = "127.0.0.1"
BACKLOG: Final = 4_096
CONNACK: Final = b"\x20\x03\x00\x00\x00"


class Answering(asyncio.Protocol):
    """One client's connection."""

    __slots__ = ("_transport",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        match data[0]:
            case 0x10:  # CONNECT
                self._transport.write(CONNACK)
            case 0x82:  # SUBSCRIBE
                self._transport.write(b"\x90\x04%b\x00\x00" % data[2:4])
            case _:  # DISCONNECT
                self._transport.close()


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answering, HOST, port, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
