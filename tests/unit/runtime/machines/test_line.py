"""One outgoing connection on real sockets: what becomes of its last bytes."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tocsin.runtime.machines.line import Endpoint, _Call

DEADLINE_S = 10.0
LARGE = 4 << 20  # more than the kernels on both sides hold


class Owner:
    """The line that a call belongs to."""

    ahead_max_bytes = None

    def filled(self, call: _Call, full: bool) -> None:
        """It may be as full as it likes."""

    def __init__(self) -> None:
        self.up = asyncio.Event()

    def dialled(self, call: _Call) -> None:
        self.up.set()

    def lost(self, call: _Call, *reason: Any) -> None:
        raise AssertionError(reason)


def read_to_end(peer: socket.socket) -> str:
    """How a connection ends for a peer that begins to read late."""
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionResetError:
        return "reset"
    return "closed"


@pytest.mark.parametrize(("abrupt", "end"), [(True, "reset"), (False, "closed")])
async def test_a_connection_that_is_given_up_sends_nothing_more(abrupt: bool, end: str) -> None:
    """The kernel would send what it holds whenever the peer is reached again: behind newer messages."""
    owner: Any = Owner()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        call = _Call(owner, 1_000)
        call.dial(Endpoint("127.0.0.1", listening.getsockname()[1]))
        async with asyncio.timeout(DEADLINE_S):
            await owner.up.wait()
        peer, _ = listening.accept()
        with peer:
            peer.settimeout(DEADLINE_S)
            assert call.transport is not None
            call.transport.write(bytes(LARGE))
            assert call.transport.get_write_buffer_size(), "the kernel is full"
            call.hang_up(abrupt=abrupt)
            assert await asyncio.to_thread(read_to_end, peer) == end
            async with asyncio.timeout(DEADLINE_S):
                await call.gone.wait()


async def test_the_kernel_tells_how_many_segments_were_sent_and_sent_again() -> None:
    owner: Any = Owner()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        call = _Call(owner, 1_000)
        assert call.repeats() is None, "there is no connection yet"
        call.dial(Endpoint("127.0.0.1", listening.getsockname()[1]))
        async with asyncio.timeout(DEADLINE_S):
            await owner.up.wait()
        peer, _ = listening.accept()
        with peer:
            peer.settimeout(DEADLINE_S)
            assert call.transport is not None
            for _ in range(3):
                call.transport.write(b"x")
                assert peer.recv(1) == b"x"
            found = call.repeats()
            assert found is not None
            assert found.sent >= 3 and 0 <= found.repeated <= found.sent
            assert found.after_us >= 1_000  # the kernel's least is far more
            call.hang_up()
