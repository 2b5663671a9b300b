"""Places: network namespaces with one TUN device each, so that all that a place says to others passes one process.

``make`` builds a place and returns what its packets are read from and written to (``router``). A place lasts as long as
somebody has it open; others enter it by a path below ``/proc`` (``path``). ``within`` is for sockets: they stay in the
place in which they were made, so one process may have sockets in many. A program is started in a place by this file as
a script, which enters it and becomes the program::

    python -I -S places.py PATH PROGRAM ARGUMENT…

Without arguments it makes a place, and says why if it cannot. It imports nothing beyond the standard library, so that
it starts quickly.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

CLONE_NEWNET = 0x40000000  # linux/sched.h
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
SIOCSIFADDR, SIOCSIFNETMASK, SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8916, 0x891C, 0x8913, 0x8914
SIOCSIFMTU, SIOCSIFTXQLEN = 0x8922, 0x8943
IFF_UP = 0x1
NAME, DEVICE = b"wan0", "/dev/net/tun"
MTU = 1_400
QUEUE = 5_000  # packets; with 500 a burst loses some
MASK = "255.255.0.0"
OWN = "/proc/self/ns/net"
WORDS_MAX = 200  # of what a failed try said
libc = ctypes.CDLL(None, use_errno=True)


class Place(NamedTuple):
    """A place that exists while both are open."""

    space: int  # a descriptor of its namespace
    tun: int  # IP packets come out of this descriptor, and go in


def address(number: int) -> str:
    """The address of one place."""
    return f"10.77.{number >> 8}.{number & 0xFF}"


def path(pid: int, space: int) -> str:
    """By which others find a place that a process has open."""
    return f"/proc/{pid}/fd/{space}"


def command(place: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command that starts ``argv``, an absolute path and its arguments, in a place."""
    return (sys.executable, "-I", "-S", __file__, place, *argv)


def _call(name: str, *arguments: int) -> None:
    if getattr(libc, name)(*arguments):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)


def enter(place: str) -> None:
    """Have this thread, and what it starts from now on, be in that place."""
    space = os.open(place, os.O_RDONLY)
    try:
        _call("setns", space, CLONE_NEWNET)
    finally:
        os.close(space)


@contextmanager
def within(place: str) -> Iterator[None]:
    """This thread is in that place while the context lasts; an empty path is where it is anyway."""
    if not place:
        yield
        return
    back = os.open(OWN, os.O_RDONLY)
    try:
        enter(place)
        yield
    finally:
        try:
            _call("setns", back, CLONE_NEWNET)
        finally:
            os.close(back)


def make(number: int) -> Place:
    """A new place with that number's address. Leaves this thread in it. Raises ``OSError``."""
    _call("unshare", CLONE_NEWNET)
    tun = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", NAME, IFF_TUN | IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, words in ((SIOCSIFADDR, address(number)), (SIOCSIFNETMASK, MASK)):
            sockaddr = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(words))
            fcntl.ioctl(control, request, struct.pack("16s16s8x", NAME, sockaddr))
        for request, value in ((SIOCSIFMTU, MTU), (SIOCSIFTXQLEN, QUEUE)):
            fcntl.ioctl(control, request, struct.pack("16si20x", NAME, value))
        for name in (NAME, b"lo"):
            _bring_up(control, name)
    return Place(os.open(OWN, os.O_RDONLY | os.O_CLOEXEC), tun)


def _bring_up(control: socket.socket, name: bytes) -> None:
    found = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16s24x", name))
    (flags,) = struct.unpack_from("=H", found, 16)
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", name, flags | IFF_UP))


def problem() -> str:
    """Why places cannot be had here; empty if they can. It tries, in a process of its own."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    tried = subprocess.run(
        (sys.executable, "-I", "-S", __file__), capture_output=True, text=True, check=False
    )
    return tried.stdout.strip() or (tried.stderr.strip()[-WORDS_MAX:] if tried.returncode else "")


def _try() -> None:
    try:
        make(1)
    except OSError as error:
        print(f"{error.strerror} ({error.filename or DEVICE})")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        _try()
    else:
        enter(sys.argv[1])
        os.execv(sys.argv[2], sys.argv[2:])
