"""Bytes reach a socket past its transport whole and in order, whatever the kernel takes of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket, TopicFilter

from tests.unit.broker.harness import DEADLINE_S, Door
from tocsin.broker.connection.connection import Connection
from tocsin.broker.forwarding.sockets import NOWHERE, write, write_each
from tocsin.config import Limits


def waiting_bytes(connection: Connection) -> int:
    assert connection._transport is not None
    return connection._transport.get_write_buffer_size()


class Held:
    """Keeps what is spilled."""

    def __init__(self) -> None:
        self.spilled = b""

    def spill(self, data: bytes) -> None:
        self.spilled += data


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Ours do not block, as those of a loop do not."""
    with contextlib.ExitStack() as stack:
        made = [socket.socketpair() for _ in range(3)]
        for ours, theirs in made:
            stack.enter_context(ours)
            stack.enter_context(theirs)
            ours.setblocking(False)
        yield made


def fill(ours: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            ours.send(b"." * 65_536)


def test_everybody_gets_the_same(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    spouts = {ours.fileno(): Held() for ours, _ in pairs}
    write_each(spouts, b"news")
    assert [theirs.recv(100) for _, theirs in pairs] == [b"news"] * 3
    assert [each.spilled for each in spouts.values()] == [b""] * 3


def test_a_full_or_closed_socket_gets_its_bytes_back_alone(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    (full, _), (gone, their_end), (well, theirs) = pairs
    fill(full)
    their_end.close()
    spouts = {each.fileno(): Held() for each in (full, gone, well)}
    write_each(spouts, b"news")
    assert [each.spilled for each in spouts.values()] == [b"news", b"news", b""]
    assert theirs.recv(100) == b"news"


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=20))
def test_what_is_taken_and_what_is_spilled_are_the_whole_for_each(takes: list[int | None]) -> None:
    data = b"12345"
    taken: dict[int, bytes] = {}

    def kernel(descriptor: int, offered: bytes) -> int:
        takes_now = takes[descriptor]
        if takes_now is None:
            raise BlockingIOError
        taken[descriptor] = offered[:takes_now]
        return takes_now

    many, one = {number: Held() for number in range(len(takes))}, Held()
    with mock.patch.object(os, "write", kernel):
        write_each(many, data)
        assert [taken.get(number, b"") + many[number].spilled for number in many] == [data] * len(takes)
        for number in many:
            one.spilled = b""
            write(number, one, data)
            assert taken.get(number, b"") + one.spilled == data


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_late_reader_gets_everything_in_order_and_direct_writes_resume(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(read_late())


async def read_late() -> None:
    limits = Limits(outbound_max_bytes=1 << 26)
    async with Door(limits) as door:
        late, prompt, publisher = await door.peer("late"), await door.peer("prompt"), await door.peer("p")
        for each in (late, prompt):
            await each.subscribe(TopicFilter("news"))
        (connection,) = [each for each in door.listener._connections if each.client_id == "late"]
        assert connection.outlet.descriptor != NOWHERE
        late.stop_reading()
        payload = b"." * 60_000
        count = 0
        async with asyncio.timeout(DEADLINE_S):
            while connection.outlet.descriptor != NOWHERE:  # until the kernel takes no more
                publisher.send(PublishPacket("news", b"%06d" % count + payload))
                count += 1
                await prompt.receive(PublishPacket)
                assert connection.outlet.descriptor == NOWHERE or not waiting_bytes(connection)
        assert waiting_bytes(connection)
        for number in range(count, count + 3):  # these find others waiting before them
            publisher.send(PublishPacket("news", b"%06d" % number))
            await prompt.receive(PublishPacket)
        late.resume_reading()
        heard = [(await late.receive(PublishPacket)).payload[:6] for _ in range(count + 3)]
        assert heard == [b"%06d" % number for number in range(count + 3)]
        async with asyncio.timeout(DEADLINE_S):
            while connection.outlet.descriptor == NOWHERE:
                await asyncio.sleep(0.01)
        publisher.send(PublishPacket("news", b"again"))
        assert (await late.receive(PublishPacket)).payload == b"again"


async def test_a_client_that_is_gone_leaves_no_descriptor_behind() -> None:
    async with Door(Limits()) as door:
        peer = await door.peer("goes")
        (connection,) = door.listener._connections
        peer.close()
        async with asyncio.timeout(DEADLINE_S):
            while door.listener.clients:
                await asyncio.sleep(0.01)
        assert connection.outlet.descriptor == NOWHERE
