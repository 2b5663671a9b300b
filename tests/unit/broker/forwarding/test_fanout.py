"""Frames reach every outlet, in order, in one write a tick."""

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
from tocsin.broker.forwarding import fanout
from tocsin.broker.forwarding.fanout import FLUSH_BYTES, NOWHERE, Outbox, OutletSet, write, write_each
from tocsin.config import Limits


class Sink:
    send_max_bytes = 1 << 28
    descriptor = NOWHERE

    def __init__(self) -> None:
        self.group = OutletSet(self)
        self.writes: list[tuple[bytes, int]] = []

    def aliased(self, frame: bytes) -> bytes:
        return frame

    def deliver(self, data: bytes, messages: int) -> None:
        self.writes.append((data, messages))

    def spill(self, data: bytes) -> None:
        self.writes.append((data, 0))


class Tick:
    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.outbox = Outbox(self.waiting.append)

    def send(self, group: OutletSet, frame: bytes) -> None:
        self.outbox.begin()
        self.outbox.add(group, frame)
        self.end()

    def end(self) -> None:
        waiting, self.waiting[:] = list(self.waiting), []
        for act in waiting:
            act()


def test_a_burst_to_one_group_is_one_write_for_each_member() -> None:
    tick, sinks = Tick(), [Sink(), Sink()]
    group = OutletSet(*sinks)
    for frame in (b"a", b"b", b"c"):
        tick.outbox.begin()
        tick.outbox.add(group, frame)
    assert sinks[0].writes == [], "nothing before the tick ends"
    tick.end()
    assert [sink.writes for sink in sinks] == [[(b"abc", 3)]] * 2
    assert sinks[0].writes[0][0] is sinks[1].writes[0][0], "joined once for all"


def test_messages_to_different_groups_keep_their_order_at_each_outlet() -> None:
    tick, one, two = Tick(), Sink(), Sink()
    both = OutletSet(one, two)
    for group, frame in ((both, b"1"), (one.group, b"2"), (both, b"3"), (two.group, b"4")):
        tick.outbox.begin()
        tick.outbox.add(group, frame)
    tick.end()
    assert one.writes == [(b"123", 3)]
    assert two.writes == [(b"134", 3)]


def test_a_second_tick_starts_empty() -> None:
    tick, sink = Tick(), Sink()
    for frame in (b"a", b"b"):
        tick.outbox.begin()
        tick.outbox.add(sink.group, frame)
        tick.end()
    assert sink.writes == [(b"a", 1), (b"b", 1)]


def test_much_data_does_not_wait_for_the_tick_to_end() -> None:
    tick, sink = Tick(), Sink()
    for _ in range(3):
        tick.outbox.begin()
        tick.outbox.add(sink.group, b"x" * FLUSH_BYTES)
    assert sum(messages for _, messages in sink.writes) >= 1
    tick.end()
    assert sum(messages for _, messages in sink.writes) == 3


@given(
    st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40),
)
def test_every_outlet_gets_exactly_what_a_plain_loop_would_send_it(
    groups_of: list[set[int]], story: list[tuple[int, bool]]
) -> None:
    tick, sinks = Tick(), [Sink() for _ in range(6)]
    groups = [OutletSet(*(sinks[member] for member in sorted(members))) for members in groups_of]
    plain: list[bytes] = [b""] * 6
    for number, (choice, ends) in enumerate(story):
        index = choice % len(groups)
        frame = b"<%d>" % number
        tick.outbox.begin()
        tick.outbox.add(groups[index], frame)
        for member in groups_of[index]:
            plain[member] += frame
        if ends:
            tick.end()
    tick.end()
    assert [b"".join(data for data, _ in sink.writes) for sink in sinks] == plain


def test_more_combinations_than_are_kept_are_still_right() -> None:
    tick = Tick()
    sinks = [Sink() for _ in range(fanout.SHARED_MAX * 2)]
    everybody = OutletSet(*sinks)
    tick.outbox.begin()
    tick.outbox.add(everybody, b"all")
    for number, sink in enumerate(sinks):
        tick.outbox.begin()
        tick.outbox.add(sink.group, b"%d" % number)
    tick.end()
    assert [sink.writes for sink in sinks] == [[(b"all%d" % number, 2)] for number in range(len(sinks))]


def test_a_member_with_a_descriptor_is_written_to_there_until_that_changes() -> None:
    tick, plain, direct = Tick(), Sink(), Sink()
    group = OutletSet(plain, direct)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        direct.descriptor = ours.fileno()
        tick.outbox.outlet_changed()
        tick.send(group, b"one")
        assert (theirs.recv(100), direct.writes) == (b"one", [])
        direct.descriptor = NOWHERE
        tick.outbox.outlet_changed()
        tick.send(group, b"two")
        ours.close()
        assert (theirs.recv(100), direct.writes) == (b"", [(b"two", 1)])
    assert plain.writes == [(b"one", 1), (b"two", 1)]


def test_a_member_that_leaves_within_the_tick_is_not_written_to() -> None:
    tick, stays, goes = Tick(), Sink(), Sink()
    group = OutletSet(stays, goes)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        goes.descriptor = ours.fileno()
        tick.outbox.outlet_changed()
        tick.send(group, b"before")
        tick.outbox.begin()
        tick.outbox.add(group, b"after")
        goes.descriptor = NOWHERE  # and the number is somebody else's from now on
        tick.outbox.outlet_changed()
        tick.end()
        ours.close()
        assert theirs.recv(100) == b"before"


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
