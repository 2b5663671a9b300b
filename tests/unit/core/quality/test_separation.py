"""Never two messages within a period, and always the last one after it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality.separation import PERIOD_BYTES, Separation, key_of

PERIOD = 1_000
A = key_of("1", "separation=1ms", "a")


class Room:
    """The bytes of one subscriber."""

    def __init__(self, most: int = 1 << 20) -> None:
        self.used = 0
        self.most = most

    def take(self, client: str, size: int) -> bool:
        if self.used + size > self.most:
            return False
        self.used += size
        return True

    def give(self, client: str, size: int) -> None:
        self.used -= size
        assert self.used >= 0


def separation(room: Room) -> Separation[int]:
    return Separation(room.take, room.give)


def test_the_first_goes_out_at_once_and_the_last_at_the_end() -> None:
    room = Room()
    subject = separation(room)
    assert subject.passes("1", A, 1, 10, PERIOD, 0)
    assert not subject.passes("1", A, 2, 10, PERIOD, 10)
    assert not subject.passes("1", A, 3, 20, PERIOD, 20)
    assert subject.next_us == PERIOD and room.used == PERIOD_BYTES + len(A) + 20
    assert subject.due(PERIOD) == [(A, 3)] and subject.left_out == 1
    assert subject.due(2 * PERIOD) == [] and len(subject) == 0 and room.used == 0
    assert subject.passes("1", A, 4, 10, PERIOD, 2 * PERIOD)


def test_topics_and_requests_have_periods_of_their_own() -> None:
    subject = separation(Room())
    assert subject.passes("1", A, 1, 10, PERIOD, 0)
    assert subject.passes("1", key_of("1", "separation=1ms", "b"), 1, 10, PERIOD, 0)
    assert subject.passes("2", key_of("2", "separation=1ms", "a"), 1, 10, PERIOD, 0)
    subject.forget("1")
    assert len(subject) == 1 and subject.passes("1", A, 2, 10, PERIOD, 1)


def test_who_has_no_room_is_left_out() -> None:
    room = Room(PERIOD_BYTES + len(A) + 5)
    subject = separation(room)
    assert subject.passes("1", A, 1, 10, PERIOD, 0)
    assert not subject.passes("1", A, 2, 10, PERIOD, 1)  # and not kept either
    assert not subject.passes("1", key_of("1", "separation=1ms", "b"), 3, 1, PERIOD, 1)
    assert subject.due(PERIOD) == [] and subject.left_out == 2 and room.used == 0


@given(st.lists(st.tuples(st.integers(0, 700), st.sampled_from("ab")), max_size=60))
def test_a_subscriber_is_never_told_sooner_and_misses_no_last_value(steps: list[tuple[int, str]]) -> None:
    room = Room()
    subject = separation(room)
    now, sent, newest = 0, {"a": [], "b": []}, {}  # type: ignore[var-annotated]

    def pump(until: int) -> None:
        while (due := subject.next_us) is not None and due <= until:
            for key, item in subject.due(due):
                sent[key.split("\0")[2]].append((due, item))

    for number, (wait, topic) in enumerate(steps):
        now += wait
        pump(now)
        newest[topic] = number
        if subject.passes("1", key_of("1", "r", topic), number, 1, PERIOD, now):
            sent[topic].append((now, number))
    pump(now + 10 * PERIOD)
    for topic, told in sent.items():
        assert all(later - earlier >= PERIOD for (earlier, _), (later, _) in pairwise(told))
        assert [number for _, number in told] == sorted({number for _, number in told})
        assert topic not in newest or told[-1][1] == newest[topic]
    assert room.used == 0 and len(subject) == 0
