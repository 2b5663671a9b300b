"""Bounds of visitors that wait at a coordinator's door."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.door.waiting import Waiting


def test_oldest_goes_when_there_are_too_many() -> None:
    waiting = Waiting[str](2, 100)
    assert [waiting.came(each) for each in "abcd"] == [[], [], ["a"], ["b"]]
    assert len(waiting) == 2


def test_those_that_are_passed_on_are_not_counted_but_their_bytes_are() -> None:
    waiting = Waiting[str](1, 100)
    waiting.came("a")
    waiting.said("a", 60)
    waiting.passed("a")
    assert waiting.came("b") == []
    assert waiting.said("b", 60) == ["a"]
    assert waiting.held_bytes == 60


def test_oldest_holder_goes_until_there_is_room() -> None:
    waiting = Waiting[str](10, 100)
    for each in "abc":
        waiting.came(each)
        waiting.said(each, 30)
    assert waiting.said("c", 50) == ["a", "b"]
    assert waiting.said("c", 50) == ["c"]
    assert (waiting.held_bytes, len(waiting)) == (0, 0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["came", "said", "passed", "done"]), st.integers(0, 9), st.integers(1, 60))
)


@given(STEPS)
def test_bounds_hold_whatever_visitors_do(steps: list[tuple[str, int, int]]) -> None:
    waiting = Waiting[int](3, 100)
    there: dict[int, int] = {}  # what each said, of those that are not done
    for what, visitor, size in steps:
        gone: list[int] = []
        if what == "came" and visitor not in there:
            there[visitor] = 0
            gone = waiting.came(visitor)
        elif what == "said" and visitor in there:
            there[visitor] += size
            gone = waiting.said(visitor, size)
        elif what == "passed":
            waiting.passed(visitor)
        elif what == "done":
            waiting.done(visitor)
            there.pop(visitor, None)
        for each in gone:
            del there[each]
        assert len(waiting) <= 3
        assert waiting.held_bytes == sum(there.values()) <= 100
