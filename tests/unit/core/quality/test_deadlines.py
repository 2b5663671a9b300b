"""Every period without a message is one miss, told soon and not too often."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.quality.deadlines import TELL_US, DeadlineWatch, Miss

MS = 1_000


def run(watch: DeadlineWatch, until_us: int) -> list[tuple[int, Miss]]:
    """All that is told up to then."""
    found = []
    while (due := watch.next_us) is not None and due <= until_us:
        found += [(due, miss) for miss in watch.due(due)]
    return found


def test_a_silent_publisher_is_told_at_once_and_then_each_second() -> None:
    watch = DeadlineWatch()
    watch.watch("a", 100 * MS, 0)
    told = run(watch, 2_500 * MS)
    assert told[0] == (100 * MS, Miss("a", 100 * MS, 1, 1))
    assert [at for at, _ in told] == [100 * MS, 1_100 * MS, 2_100 * MS]
    assert [miss.total for _, miss in told] == [1, 11, 21] and [miss.change for _, miss in told] == [
        1,
        10,
        10,
    ]


def test_messages_in_time_are_no_news() -> None:
    watch = DeadlineWatch()
    watch.watch("a", 100 * MS, 0)
    for number in range(1, 100):
        assert run(watch, number * 99 * MS) == []
        watch.arrived("a", number * 99 * MS)
    watch.drop("a")
    assert run(watch, 10**9) == [] and len(watch) == 0


def test_a_late_message_is_a_miss_though_nobody_looked() -> None:
    watch = DeadlineWatch()
    watch.watch("a", 100 * MS, 0)
    watch.arrived("a", 350 * MS)
    ((at, miss),) = run(watch, 449 * MS)
    assert (miss.total, miss.change) == (3, 3) and at <= 350 * MS
    watch.arrived("nobody", 0)


def test_another_deadline_counts_from_now_on() -> None:
    watch = DeadlineWatch()
    watch.watch("a", 100 * MS, 0)
    watch.watch("a", 100 * MS, 50 * MS)  # the same again changes nothing
    watch.watch("a", 1_000 * MS, 90 * MS)
    assert run(watch, 1_089 * MS) == []
    assert [miss.total for _, miss in run(watch, 1_090 * MS)] == [1]


@given(
    st.integers(1, 3_000),
    st.lists(st.tuples(st.integers(1, 5_000), st.sampled_from("mpd")), max_size=40),
)
def test_what_is_told_is_what_was_missed(deadline_ms: int, steps: list[tuple[int, str]]) -> None:
    """Steps: a message, nothing, or the end and a new beginning."""
    watch, deadline = DeadlineWatch(), deadline_ms * MS
    watch.watch("a", deadline, 0)
    now = last = missed = told = 0
    at: list[int] = []
    for wait, what in steps:
        now += wait * MS
        for when, miss in run(watch, now):
            told += miss.change
            assert miss.total == told
            at.append(when)
        assert told <= missed + (now - last) // deadline
        if what == "m":
            missed += (now - last) // deadline
            last = now
            watch.arrived("a", now)
        elif what == "d":
            watch.drop("a")
            watch.watch("a", deadline, now)
            last, missed, told, at = now, 0, 0, []
    for when, miss in run(watch, now + TELL_US):
        told += miss.change
        at.append(when)
    later = now + TELL_US
    assert missed <= told <= missed + (later - last) // deadline
    assert all(second - first >= TELL_US for first, second in pairwise(at))
