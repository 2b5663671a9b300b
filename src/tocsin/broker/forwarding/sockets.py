"""Writing to many sockets past their transports.

A delivery is mostly the kernel's work; what a transport does around it is most of the rest. While nothing waits in a
transport, and it makes no other bytes of what it is given, the socket's **descriptor** may be written to as well: both
ways end in the same ``write``, at once, so that order is kept. Bytes that the kernel does not take, as its buffer is
full or the connection is broken, go to the transport, which finds out which of the two it is.

A descriptor is a number that the kernel reuses for the next socket. A holder must drop it before ``connection_lost``
returns: transports close their sockets after that, and not before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Final, Protocol

NOWHERE: Final = -1


class SocketSink(Protocol):
    """Something with a descriptor."""

    def spill(self, data: bytes) -> None:
        """Send these bytes, which the descriptor did not take, before any others. Never raises."""
        ...


def descriptor_of(transport: asyncio.BaseTransport) -> int:
    """Where bytes can be written as they are; NOWHERE if the transport makes others of them: TLS, WebSocket."""
    if transport.get_extra_info("ssl_object") is not None:
        return NOWHERE
    found = transport.get_extra_info("socket")
    return NOWHERE if found is None else int(found.fileno())


def write(descriptor: int, spout: SocketSink, data: bytes) -> None:
    """Write to one."""
    try:
        sent = os.write(descriptor, data)
    except OSError:
        sent = 0
    if sent < len(data):
        spout.spill(data[sent:])


def write_each(spouts: Mapping[int, SocketSink], data: bytes) -> None:
    """Write the same to all of them. The hot loop: nothing but the call and a comparison for each."""
    call, size, remaining = os.write, len(data), iter(spouts)
    while True:
        sent = 0
        try:
            for descriptor in remaining:
                sent = call(descriptor, data)
                if sent != size:
                    break
            else:
                return
        except OSError:
            sent = 0
        spouts[descriptor].spill(data[sent:])
