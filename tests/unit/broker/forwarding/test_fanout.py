"""Frames reach every outlet, in order, in one write a tick."""

from __future__ import annotations

import socket
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tocsin.broker.forwarding import fanout
from tocsin.broker.forwarding.fanout import FLUSH_BYTES, Outbox, OutletSet
from tocsin.broker.forwarding.sockets import NOWHERE


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
