"""What a broker knows of the log for a group, against all that is in the log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.shared import backlog as module
from tocsin.core.shared.backlog import Backlog, cost_of
from tocsin.core.shared.signals import Matched, PartRead
from tocsin.model.publication import Publication
from tocsin.ports import Entry


def matched(position: int, size: int = 0) -> Matched:
    entry = Entry(position, "t.m.a", b"x" * size, str(position), 0)
    return Matched(entry, Publication("a", b"", 1, "p"))


class Kept:
    """Room for so many bytes."""

    def __init__(self, most: int = 1 << 40) -> None:
        self.most, self.used = most, 0

    def keep(self, size: int) -> bool:
        if self.used + size > self.most:
            return False
        self.used += size
        return True

    def let_go(self, size: int) -> None:
        self.used -= size


def based(next_: int = 1, tail: int = 0, room: Kept | None = None) -> Backlog:
    some = Backlog(room or Kept())
    some.rebase(next_, (), tail)
    return some


def positions(backlog: Backlog) -> list[int]:
    return [each.position for each in backlog]


def test_what_arrives_is_known_until_the_group_is_past_it() -> None:
    some = based()
    for position in (1, 3, 4):
        some.arrived(matched(position))
    assert positions(some) == [1, 3, 4]
    some.rebase(4, (3,), 4)
    assert positions(some) == [4]
    assert some.get(3) is not None, "it is wanted"
    assert some.get(1) is None


def test_what_was_before_is_read_until_it_is_live() -> None:
    some = based(next_=3, tail=6)
    assert not some.live
    some.arrived(matched(7))
    assert positions(some) == [], "what lies between is not known"
    (asked,) = some.ask(())
    assert asked.start == 3
    assert some.ask(()) == [], "one read at a time"
    some.take(PartRead(matched=[matched(3), matched(5)], next=6, tail=7))
    assert (positions(some), some.below, some.live) == ([3, 5], 6, False)
    (asked,) = some.ask(())
    assert asked.start == 6
    some.take(PartRead(matched=[matched(7)], next=8, tail=7))
    assert (positions(some), some.live) == ([3, 5, 7], True)
    assert some.ask(()) == []


def test_a_group_that_goes_back_is_read_anew() -> None:
    some = based(next_=5, tail=4)
    some.arrived(matched(6))
    some.rebase(3, (), 6)
    assert (positions(some), some.live) == ([], False)
    assert some.ask(())[0].start == 3


def test_an_answer_to_what_was_asked_before_that_does_not_count() -> None:
    some = based(next_=5, tail=8)
    assert some.ask(())
    some.rebase(3, (), 8)
    some.take(PartRead(matched=[matched(7)], next=9, tail=8))
    assert (positions(some), some.live) == ([], False)
    assert some.ask(())[0].start == 3


def test_others_may_be_further_than_we_know() -> None:
    some = based(next_=1, tail=0)
    some.arrived(matched(1))
    some.rebase(9, (), 4)
    assert (positions(some), some.below, some.live) == ([], 9, True)


@pytest.mark.parametrize("size", [0, 100])
def test_the_backlog_keeps_messages_up_to_its_bounds_and_reads_later(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 4)
    monkeypatch.setattr(module, "BYTES_MAX", 250)
    some = based()
    for position in range(1, 9):
        some.arrived(matched(position, size))
    kept = [1, 2, 3] if size else [1, 2, 3, 4]
    assert (positions(some), some.live) == (kept, False)
    assert some.ask(()) == [], "there is no room yet"
    some.rebase(kept[-1] + 1, (), 8)
    (asked,) = some.ask(())
    assert asked.start == kept[-1] + 1
    rest = [matched(each, size) for each in range(asked.start, 9)]
    some.take(PartRead(matched=rest, next=9, tail=8))
    assert len(some) <= 4


def test_wanted_positions_are_fetched_and_trimmed_ones_are_noticed() -> None:
    some = based(next_=10, tail=9)
    (asked,) = some.ask((3, 5, 7))
    assert asked.start == 3
    some.take(PartRead(matched=[matched(3), matched(4), matched(7)], next=9, tail=9))
    assert some.get(3) is not None
    assert some.get(4) is None, "nobody wanted it"
    assert some.gone == {5}
    assert some.ask((3, 5, 7)) == []
    some.rebase(10, (7,), 9)
    assert (some.get(3), some.gone) == (None, set())
    assert some.get(7) is not None


def test_fetches_are_bounded_in_bytes_and_the_oldest_come_first() -> None:
    some, size = based(next_=100, tail=99), module.BYTES_MAX // 4
    wanted = range(20, 40)
    some.ask(wanted)
    some.take(PartRead(matched=[matched(each, size) for each in wanted], next=99, tail=99))
    assert [each for each in wanted if some.get(each)] == [20, 21, 22, 23] and not some.gone
    assert some.ask(wanted) == [], "those go first"
    some.rebase(100, range(22, 40), 99)  # two are done with
    (asked,) = some.ask(range(22, 40))
    assert asked.start == 24
    some.take(PartRead(matched=[matched(each, size) for each in range(24, 40)], next=99, tail=99))
    (asked,) = some.ask((10, *range(22, 40)))  # one that is older was given back
    assert asked.start == 10
    some.take(PartRead(matched=[matched(10, size)], next=99, tail=99))
    assert [each for each in (10, *range(22, 40)) if some.get(each)] == [10, 22, 23, 24]


def test_what_was_trimmed_is_gone() -> None:
    some = based(next_=5, tail=9)
    some.ask((2,))
    assert some.trimmed(4)
    assert some.gone == {2}
    some.ask(())
    assert some.trimmed(7)
    assert some.below == 7
    some.ask(())
    some.failed()
    assert some.ask(())[0].start == 7


def test_without_room_nothing_is_taken_and_the_log_is_read_later() -> None:
    room = Kept(2 * cost_of(matched(1)))
    some = based(room=room)
    for position in (1, 2, 3, 4):
        some.arrived(matched(position))
    assert positions(some) == [1, 2] and not some.live
    some.rebase(3, (), 4)
    assert room.used == 0
    (asked,) = some.ask(())
    assert asked.start == 3
    some.take(PartRead(matched=[matched(3), matched(4), matched(5)], next=6, tail=5))
    assert positions(some) == [3, 4] and some.below == 5, "what had no room is read again"


def test_what_is_dropped_is_read_again() -> None:
    room = Kept()
    some = based(next_=10, tail=9, room=room)
    some.ask((3,))
    some.take(PartRead(matched=[matched(3)], next=4, tail=9))
    some.arrived(matched(10))
    some.passed(11)
    some.drop()
    assert room.used == 0 and positions(some) == [] and some.get(3) is None
    (asked,) = some.ask((3,))
    some.take(PartRead(matched=[matched(3)], next=4, tail=11))
    (after,) = some.ask((3,))
    assert (asked.start, after.start) == (3, 10)


def test_a_read_begun_before_everything_was_dropped_is_ignored() -> None:
    some = based(next_=1, tail=5)
    some.ask(())
    some.drop()
    some.take(PartRead(matched=[matched(1)], next=2, tail=5))
    assert positions(some) == [] and some.ask(())[0].start == 1


steps = st.lists(
    st.tuples(st.sampled_from(["log", "arrive", "claim", "back", "read", "drop"]), st.integers(1, 5)),
    max_size=80,
)


@settings(max_examples=200)
@given(steps, st.sets(st.integers(1, 60)), st.sampled_from((1, 3, 1_000)))
def test_everything_between_next_and_below_is_known_whatever_happens(
    story: list[tuple[str, int]], unmatched: set[int], most: int
) -> None:
    room = Kept(most * cost_of(matched(1)))
    some, end, tail, next_ = Backlog(room), 0, 0, 1
    some.rebase(next_, (), tail)
    for what, number in story:
        if what == "log":
            end += number
        elif what == "arrive" and tail < end:
            tail += 1
            if tail not in unmatched:
                some.arrived(matched(tail))
        elif what == "claim":
            next_ = min(next_ + number, end + 1)
            some.passed(tail)
            some.rebase(next_, (), tail)
        elif what == "back":
            next_ = max(1, next_ - number)
            some.rebase(next_, (), tail)
        elif what == "drop":
            some.drop()
        elif what == "read" and (asked := some.ask(())):
            stop = min(asked[0].start + number, end + 1)
            found = [matched(each) for each in range(asked[0].start, stop) if each not in unmatched]
            some.take(PartRead(matched=found, next=max(stop, asked[0].start), tail=tail))
        assert positions(some) == [each for each in range(next_, some.below) if each not in unmatched]
        assert room.used == sum(map(cost_of, some))


def test_a_read_waits_for_room_for_the_entry_that_had_none() -> None:
    room = Kept(cost_of(matched(1, 100)))
    some = based(room=room)
    some.arrived(matched(1, 100))
    some.arrived(matched(2, 80))
    (asked,) = some.ask(())
    assert (asked.start, asked.least) == (2, cost_of(matched(2, 80)))
    some.rebase(2, (), 2)
    some.take(PartRead(matched=[matched(2, 80)], next=3, tail=2))
    assert positions(some) == [2] and some.live
    some.rebase(3, (), 2)
    some.drop()
    assert some.ask(())[0].least == 0
