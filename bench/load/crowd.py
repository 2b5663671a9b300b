"""Many clients of one broker on raw sockets.

    with Crowd(address, dialect, 1_000) as subscribers:
        subscribers.subscribe(lambda number: ["news"])
        subscribers.collect(bytes_wanted)

What arrives is counted, not read: deliveries have a known size, and one round of every load is compared byte by byte
(``expect``) before anything is measured. So a delivery costs the generator one system call and a subtraction, and
the broker is what is busy.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from bench.load.dialect import NO_END, Dialect, LoadError

Address = tuple[str, int]

# Connections under way at once: mosquitto's backlog is 100, and beyond it a SYN waits a second.
AT_ONCE: Final = 64
DEADLINE_S: Final = 30.0  # for an answer; for deliveries of one round
BUFFER_BYTES: Final = 1 << 20
RESET: Final = struct.pack(
    "ii", 1, 0
)  # closing leaves no port in TIME_WAIT, and is sudden, as a power cut is


class Crowd:
    """Connected clients, numbered from 0."""

    def __init__(self, address: Address, dialect: Dialect, count: int, name: str = "c") -> None:
        self.dialect = dialect
        self.sockets: list[socket.socket] = []
        self.welcome = b""  # the broker's answer to the last of them
        self._buffer = bytearray(BUFFER_BYTES)
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[bytearray], int]] = {}
        self._by_fd: dict[int, socket.socket] = {}
        try:
            for first in range(0, count, AT_ONCE):
                self._connect(address, [f"{name}{n}" for n in range(first, min(first + AT_ONCE, count))])
        except OSError as error:
            self.close()
            raise LoadError(f"connection {len(self.sockets) + 1} to {address}: {error}") from None
        except LoadError:
            self.close()
            raise

    def _connect(self, address: Address, names: Sequence[str]) -> None:
        fresh = []
        for name in names:
            each = socket.create_connection(address, DEADLINE_S)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.sockets.append(each)
            fresh.append(each)
            each.sendall(self.dialect.hello(name))
        for each in fresh:
            self.welcome = self._answer(each)
            each.setblocking(False)
            self._epoll.register(each, select.EPOLLIN)
            self._readers[each.fileno()] = each.recv_into
            self._by_fd[each.fileno()] = each

    def _answer(self, each: socket.socket) -> bytes:
        """The broker's bytes up to the end of its answer."""
        received = b""
        while True:
            more = each.recv(65_536)
            if not more:
                raise LoadError(f"the broker closed the connection after {received[:80]!r}")
            received += more
            end = self.dialect.answer_end(received)
            if end != NO_END:
                return received[:end]

    def ask(self, number: int, question: bytes) -> bytes:
        """Send something that is answered; the answer."""
        each = self.sockets[number]
        each.settimeout(DEADLINE_S)
        each.sendall(question)
        answer = self._answer(each)
        each.setblocking(False)
        return answer

    def subscribe(self, filters_of: Callable[[int], Sequence[str]]) -> None:
        """Subscribe every client to its filters, many at once."""
        for first in range(0, len(self.sockets), AT_ONCE):
            some = list(enumerate(self.sockets[first : first + AT_ONCE], first))
            for number, each in some:
                each.settimeout(DEADLINE_S)
                each.sendall(self.dialect.subscribe(*filters_of(number)))
            for _, each in some:
                self._answer(each)
                each.setblocking(False)

    def settle(self) -> None:
        """Wait until each has got what the server sends of its own accord, if it does, and answer that."""
        silent = set(self._by_fd) if self.dialect.settle_s else set()
        deadline = time.monotonic() + self.dialect.settle_s
        while silent and time.monotonic() < deadline:
            for each in self.ready(0.1):
                each.sendall(self.dialect.reply_to(each.recv(65_536)))
                silent.discard(each.fileno())

    def send(self, number: int, data: bytes) -> None:
        """Send all of it; the broker reads, or the generator waits."""
        each = self.sockets[number]
        try:
            sent = each.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise LoadError(f"the broker closed the connection of client {number}: {error}") from None
        if sent < len(data):
            each.settimeout(DEADLINE_S)
            each.sendall(data[sent:])
            each.setblocking(False)

    def collect(self, wanted: int) -> None:
        """Read until so many bytes have come to all of them together.

        It never sleeps: waking it would be the broker's work, on this machine only, for each delivery.
        """
        poll, readers, buffer = self._epoll.poll, self._readers, self._buffer
        count = max(1, len(self.sockets))
        deadline = 0.0
        while wanted > 0:
            ready = poll(0, count)
            if not ready:
                if not deadline:
                    deadline = time.monotonic() + DEADLINE_S
                elif time.monotonic() > deadline:
                    raise LoadError(f"{wanted} bytes did not come within {DEADLINE_S:g} s")
                continue
            deadline = 0.0
            try:
                for fd, _ in ready:
                    got = readers[fd](buffer)
                    if not got:
                        raise LoadError("the broker closed a connection under load")
                    wanted -= got
            except OSError as error:
                raise LoadError(f"a connection broke under load: {error}") from None
        if wanted:
            raise LoadError(f"{-wanted} bytes more came than were expected")

    def expect(self, wanted: Callable[[int], bytes]) -> None:
        """Read, and compare what came to each client with what should have."""
        for number, each in enumerate(self.sockets):
            right = wanted(number)
            each.settimeout(DEADLINE_S)
            received = b""
            while len(received) < len(right):
                more = each.recv(len(right) - len(received))
                if not more:
                    raise LoadError("the broker closed a connection")
                received += more
            each.setblocking(False)
            if received != right:
                raise LoadError(f"client {number} got {received[:80]!r} and not {right[:80]!r}")

    def ready(self, timeout_s: float = 0.0) -> list[socket.socket]:
        """The clients to whom something has come."""
        return [self._by_fd[fd] for fd, _ in self._epoll.poll(timeout_s, max(1, len(self.sockets)))]

    def close(self) -> None:
        """End all connections at once, without a word."""
        for each in self.sockets:
            each.close()
        self.sockets.clear()
        self._readers.clear()
        self._by_fd.clear()
        self._epoll.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
