"""What waits for a link: the newest, in order, bounded in bytes and in age; the rest is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket

from tocsin.core.links.backlog import STALE_US, LinkBacklog
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5

SECOND_US = 1_000_000


class Counted:
    """A backlog, and how many messages it has dropped."""

    def __init__(self, bytes_max: int = 100) -> None:
        self.dropped = 0
        self.backlog = LinkBacklog(bytes_max, self._drop)

    def _drop(self, messages: int) -> None:
        self.dropped += messages


def test_the_oldest_go_where_there_is_no_room() -> None:
    counted = Counted(bytes_max=100)
    for number in range(5):
        counted.backlog.add(b"%d" % number * 40, 2, now_us=number)
    assert [data[:1] for data, _ in counted.backlog.take(5)] == [b"3", b"4"]
    assert counted.dropped == 6 and counted.backlog.late == 0 and counted.backlog.size == 0


def test_what_is_too_old_is_dropped_and_counted_as_late() -> None:
    counted = Counted()
    counted.backlog.add(b"old", 3, now_us=0)
    counted.backlog.add(b"new", 1, now_us=SECOND_US)
    assert list(counted.backlog.take(STALE_US + 1)) == [(b"new", 1)]
    assert counted.dropped == counted.backlog.late == 3


def test_a_message_that_is_larger_than_the_room_is_dropped_alone() -> None:
    counted = Counted(bytes_max=10)
    counted.backlog.add(bytes(11), 1, now_us=0)
    assert counted.dropped == 1 and not len(counted.backlog)


def test_a_mark_is_passed_when_all_before_it_has_gone() -> None:
    counted = Counted()
    assert counted.backlog.passed(counted.backlog.mark), "nothing waits"
    counted.backlog.add(b"a", 1, now_us=0)
    counted.backlog.add(b"b", 1, now_us=0)
    mark = counted.backlog.mark
    counted.backlog.add(b"c", 1, now_us=0)
    taken = counted.backlog.take(0)
    next(taken)
    assert not counted.backlog.passed(mark)
    next(taken)
    assert counted.backlog.passed(mark) and len(counted.backlog) == 1


def test_what_is_dropped_passes_its_mark_too() -> None:
    counted = Counted(bytes_max=10)
    counted.backlog.add(bytes(8), 1, now_us=0)
    mark = counted.backlog.mark
    counted.backlog.add(bytes(8), 1, now_us=0)
    assert counted.backlog.passed(mark)


def test_messages_that_are_wanted_elsewhere_leave_their_batch() -> None:
    counted = Counted(bytes_max=1_000)
    frames = {topic: encode(PublishPacket(topic, b"x"), V5) for topic in ("a", "b", "c")}
    counted.backlog.add(frames["a"] + frames["b"] + frames["c"], 3, now_us=0)
    assert list(counted.backlog.take_each(lambda topic: topic == "b")) == [("b", frames["b"])]
    assert list(counted.backlog.take(0)) == [(frames["a"] + frames["c"], 2)]


@given(st.lists(st.tuples(st.integers(0, 3 * SECOND_US), st.integers(0, 60), st.booleans()), max_size=60))
def test_every_message_is_taken_in_order_or_counted(steps: list[tuple[int, int, bool]]) -> None:
    """Against a list that forgets nothing."""
    counted, now_us, sent, taken = Counted(bytes_max=100), 0, 0, []
    came_us: list[int] = []
    for later_us, size, takes in steps:
        now_us += later_us
        if takes:
            for data, _ in counted.backlog.take(now_us):
                number = int.from_bytes(data[:4])
                assert came_us[number] >= now_us - STALE_US
                taken.append(number)
        else:
            counted.backlog.add(sent.to_bytes(4) + bytes(size), 1, now_us)
            came_us.append(now_us)
            sent += 1
        assert counted.backlog.size <= 100
    assert taken == sorted(set(taken))
    assert len(taken) + counted.dropped + len(counted.backlog) == sent
