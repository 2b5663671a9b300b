"""The traffic of this machine's TCP sockets, as its kernel counts it (netlink, ``sock_diag``).

``read`` asks the kernel, ``parse`` reads what it answers. Counters are those of the socket's whole life. Only IPv4:
the networks of experiments are on 127.0.0.1.

On a wire every segment has headers as well: 14 bytes of Ethernet, 20 of IP and 32 of TCP with time stamps. With these
a byte count is what a network interface would have counted.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from tocsin.errors import OperatorError

SEGMENT_BYTES: Final = 66
SOCK_DIAG: Final = 4  # NETLINK_SOCK_DIAG
BY_FAMILY: Final = 20  # SOCK_DIAG_BY_FAMILY
DONE, ERROR = 3, 2  # kinds of netlink messages
DUMP: Final = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
INFO: Final = 2  # INET_DIAG_INFO: the attribute with the counters
# Established, and those whose one side has closed: they have counters.
STATES: Final = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8
HEADER: Final = struct.Struct("=IHHII")
REQUEST: Final = struct.Struct("=BBBBI48x")
SOCKET: Final = struct.Struct("=4x2s2s4s12x4s12x4xQ4x4x4x4xI")  # inet_diag_msg
ATTRIBUTE: Final = struct.Struct("=HH")
COUNTERS: Final = struct.Struct("=128xQII56xQ")  # of tcp_info: received, segments out and in, sent
READ_BYTES: Final = 1 << 20
DEADLINE_S: Final = 5.0

Address = tuple[bytes, bytes]  # IP address and port, as they are on the wire


class Socket(msgspec.Struct, frozen=True, gc=False):
    """One socket, and what it has carried."""

    cookie: int  # its name, never used again
    inode: int  # by which processes know it; 0: no process has it any more
    local: Address
    remote: Address
    sent_bytes: int
    received_bytes: int
    sent_segments: int
    received_segments: int


def read() -> list[Socket]:
    """All TCP sockets there are now. ``OperatorError`` if the kernel does not say."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as line:
            line.settimeout(DEADLINE_S)
            body = REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << (INFO - 1), 0, STATES)
            line.sendto(HEADER.pack(HEADER.size + len(body), BY_FAMILY, DUMP, 1, 0) + body, (0, 0))
            found: list[Socket] = []
            done = False
            while not done:
                part, done = parse(line.recv(READ_BYTES))
                found += part
            return found
    except (OSError, ValueError, AttributeError) as error:
        problem = f"this system does not say what its sockets carry ({error})"
        raise OperatorError(problem, "Run it on Linux 4.19 or newer, as a user who may use netlink") from None


def parse(data: bytes) -> tuple[list[Socket], bool]:
    """The sockets of one answer, and whether it was the last. Raises ``ValueError`` for anything else."""
    found: list[Socket] = []
    at = 0
    while at < len(data):
        if len(data) - at < HEADER.size:
            raise ValueError("a netlink message is cut short")
        length, kind, *_ = HEADER.unpack_from(data, at)
        if not HEADER.size <= length <= len(data) - at:
            raise ValueError(f"a netlink message of {length} bytes in {len(data) - at}")
        if kind == DONE:
            return found, True
        if kind == ERROR:
            raise ValueError("the kernel refuses")
        counted = _socket(data[at + HEADER.size : at + length])
        if counted is not None:
            found.append(counted)
        at += _aligned(length)
    return found, False


def _socket(body: bytes) -> Socket | None:
    """None if it has no counters."""
    if len(body) < SOCKET.size:
        raise ValueError("a socket is cut short")
    local_port, remote_port, local, remote, cookie, inode = SOCKET.unpack_from(body)
    for kind, value in _attributes(body[SOCKET.size :]):
        if kind == INFO and len(value) >= COUNTERS.size:
            received, out, into, sent = COUNTERS.unpack_from(value)
            ends = (local, local_port), (remote, remote_port)
            return Socket(cookie, inode, *ends, sent, received, out, into)
    return None


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while len(data) - at >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if not ATTRIBUTE.size <= length <= len(data) - at:
            raise ValueError("an attribute is cut short")
        yield kind, data[at + ATTRIBUTE.size : at + length]
        at += _aligned(length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def inodes_of(pid: int) -> list[int]:
    """The sockets that a process has open, by their inodes; none if it is gone."""
    found: list[int] = []
    directory = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(directory):
            try:
                target = os.readlink(f"{directory}/{name}")
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                found.append(int(target[8:-1]))
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found
