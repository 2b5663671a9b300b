"""Sockets that listen."""

from __future__ import annotations

import errno
import socket
from typing import Final

from tocsin.errors import AddressElsewhere, PortTaken

BACKLOG: Final = 1_024  # connections that wait to be accepted; the kernel's somaxconn bounds it as well


def listen_on(host: str, port: int, whose: str, setting: str, *, shared: bool = False) -> socket.socket:
    """A bound socket that listens; ``PortTaken`` if another process has the port, ``AddressElsewhere`` if this machine
    does not have the address.

    ``shared``: other processes of this user may listen on the same port, and the kernel hands each connection to one.
    Its protocol is named (IPPROTO_TCP), because asyncio switches Nagle's delay off only on sockets that say so.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise AddressElsewhere(host, port, whose) from None
        raise PortTaken(host, port, whose, setting) from None
    listening.setblocking(False)
    return listening
