"""How the bytes of a connection flow, as the kernel tells, and how few of them wait in it."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, NamedTuple

from tocsin.core.links.signals import Flow

INFO_BYTES: Final = 160  # of Linux's struct tcp_info: as far as it is read here
_ACKED = struct.Struct("=Q")
_ACKED_AT: Final = 120  # bytes, in all
_UNSENT = struct.Struct("=I")
_UNSENT_AT: Final = 144  # bytes, that the kernel holds until the peer's has room, or the way has
_AFTER = struct.Struct("=I")
_AFTER_AT: Final = 8  # microseconds of silence after which the kernel sends a segment again
_REPEATED_AT: Final = 100  # segments sent again, in all
_SENT_AT: Final = 156  # segments with data that were sent, in all
UNSENT_LOWAT: Final = 25  # the option TCP_NOTSENT_LOWAT


class Repeats(NamedTuple):
    """How often the kernel had to send something again on one connection."""

    sent: int  # segments with data, in all
    repeated: int  # of them, again
    after_us: int  # of silence


def keep_short(transport: asyncio.Transport, most: int) -> None:
    """Have the writer asked to pause when so much waits, and so much again in the kernel, unsent."""
    transport.set_write_buffer_limits(most, most // 4)
    connected = transport.get_extra_info("socket")
    if connected is not None:
        connected.setsockopt(socket.IPPROTO_TCP, UNSENT_LOWAT, most)


def flow_of(transport: asyncio.Transport) -> Flow | None:
    """What has become of the bytes that were written; None if the kernel does not tell."""
    info = _info(transport)
    if info is None:
        return None
    (taken,), (unsent,) = _ACKED.unpack_from(info, _ACKED_AT), _UNSENT.unpack_from(info, _UNSENT_AT)
    return Flow(taken, waits=bool(unsent or transport.get_write_buffer_size()))


def repeats_of(transport: asyncio.Transport) -> Repeats | None:
    """How often something was sent again; None if the kernel does not tell."""
    info = _info(transport)
    if info is None:
        return None
    sent, repeated, after_us = (
        int(_AFTER.unpack_from(info, at)[0]) for at in (_SENT_AT, _REPEATED_AT, _AFTER_AT)
    )
    return Repeats(sent, repeated, after_us) if sent else None


def _info(transport: asyncio.Transport) -> bytes | None:
    connected = transport.get_extra_info("socket")
    if connected is None:
        return None
    try:
        info: bytes = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
    except OSError:  # the connection has ended
        return None
    return info if len(info) >= INFO_BYTES else None
