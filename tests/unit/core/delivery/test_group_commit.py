"""Group commit: every message once, in order, and no acknowledgement before its time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.group_commit import BATCH_MAX_BYTES, LONG_US, RETRY_MAX_US, CommitQueue
from tocsin.errors import OutcomeUnknown, Refused, StoreFull, StoreUnavailable
from tocsin.ports import BATCH_MAX, Record


def record(number: int, size: int = 1) -> Record:
    return Record("m.a", b"x" * size, str(number))


def doubted(queue: CommitQueue[str] | CommitQueue[int]) -> tuple[list[str], int] | None:
    """The ids that are to be looked for, and behind which position."""
    found = queue.doubted
    return None if found is None else ([each.id for each in found[0]], found[1])


def test_what_comes_during_an_append_is_the_next_one() -> None:
    queue: CommitQueue[int] = CommitQueue(100)
    queue.add(record(1), 1, 0)
    assert [each.id for each in queue.start(0, 0)] == ["1"]
    queue.add(record(2), 2, 0)
    queue.add(record(3), 3, 0)
    assert queue.start(0, 0) == (), "one at a time"
    assert queue.succeeded(0) == [1]
    assert [each.id for each in queue.start(0, 0)] == ["2", "3"]
    assert queue.succeeded(0) == [2, 3]
    assert queue.start(0, 0) == ()


def test_a_batch_is_bounded_in_records_and_bytes() -> None:
    queue: CommitQueue[int] = CommitQueue(10_000)
    for number in range(BATCH_MAX + 5):
        queue.add(record(number), number, 0)
    assert len(queue.start(0, 0)) == BATCH_MAX
    queue.succeeded(0)
    assert len(queue.start(0, 0)) == 5
    queue.succeeded(0)
    for number in range(3):
        queue.add(record(number, BATCH_MAX_BYTES // 2 + 1), number, 0)
    assert len(queue.start(0, 0)) == 1
    assert queue.succeeded(0) == [0]


def test_a_transient_failure_is_retried_with_the_same_records_and_backoff() -> None:
    queue: CommitQueue[int] = CommitQueue(100)
    queue.add(record(1), 1, 0)
    first = queue.start(0, 0)
    delays = [queue.failed(OutcomeUnknown("append", 5.0), 0)[0] for _ in range(12)]
    assert queue.again() == first
    assert delays == sorted(delays)
    assert delays[-1] == RETRY_MAX_US
    assert queue.failed(StoreUnavailable("append", "no leader"), 0) == (RETRY_MAX_US, [])
    assert queue.succeeded(0) == [1]


def test_an_unanswered_append_is_looked_up_before_the_next_try() -> None:
    queue: CommitQueue[str] = CommitQueue(100)
    for number in range(3):
        queue.add(record(number), f"ticket {number}", 0)
    queue.start(41, 0)
    queue.failed(StoreUnavailable("append", "no leader"), 0)
    assert doubted(queue) is None, "it did not happen"
    queue.failed(OutcomeUnknown("append", 5.0), 0)
    assert doubted(queue) == (["0", "1", "2"], 41)
    queue.failed(StoreUnavailable("read", "no leader"), 0)
    assert doubted(queue) == (["0", "1", "2"], 41), "the look failed"
    assert queue.found({"0": 42, "2": 44}, 50, 0) == [("ticket 0", 42), ("ticket 2", 44)]
    assert doubted(queue) is None
    assert [each.id for each in queue.again()] == ["1"]
    queue.failed(OutcomeUnknown("append", 5.0), 0)
    assert doubted(queue) == (["1"], 50), "up to there it was looked at"
    assert queue.found({"1": 51}, 51, 0) == [("ticket 1", 51)]
    assert queue.again() == []
    assert queue.start(51, 0) == (), "nothing is left"


def test_records_that_another_broker_may_have_appended_are_looked_up_first() -> None:
    queue: CommitQueue[int] = CommitQueue(100)
    queue.add(record(1), 1, 0)
    queue.add(record(2), 2, 0, behind=7)
    queue.start(41, 0)
    assert doubted(queue) == (["2"], 7)
    assert queue.found({}, 41, 0) == []
    assert [each.id for each in queue.again()] == ["1", "2"]
    assert queue.succeeded(0) == [1, 2]


def test_records_that_waited_long_are_looked_up_before_their_first_try() -> None:
    queue: CommitQueue[int] = CommitQueue(100)
    queue.add(record(1), 1, 40)
    queue.start(40, 0)
    queue.add(record(2), 2, 41)
    assert queue.succeeded(LONG_US) == [1]
    queue.start(50, LONG_US)
    assert doubted(queue) is None, "that was soon enough"
    queue.add(record(3), 3, 52)
    assert queue.succeeded(2 * LONG_US + 1) == [2]
    queue.start(60, 2 * LONG_US + 1)
    assert doubted(queue) == (["3"], 52)


def test_doubt_stays_with_what_is_taken_apart() -> None:
    queue: CommitQueue[int] = CommitQueue(100)
    for number in range(4):
        queue.add(record(number), number, 0)
    queue.start(5, 0)
    queue.failed(OutcomeUnknown("append", 5.0), 0)
    queue.failed(Refused("append", "too large"), 0)
    assert len(queue.start(9, 0)) == 2
    assert doubted(queue) == (["0", "1"], 5)


def test_a_final_failure_fails_its_messages_and_no_others() -> None:
    queue: CommitQueue[int] = CommitQueue(100)
    queue.add(record(1), 1, 0)
    queue.start(0, 0)
    queue.add(record(2), 2, 0)
    assert queue.failed(StoreFull("append", "disk"), 0) == (0, [1])
    assert [each.id for each in queue.start(0, 0)] == ["2"]


def test_a_message_that_the_store_refuses_fails_alone() -> None:
    queue: CommitQueue[int] = CommitQueue(100)
    for number in range(10):
        queue.add(record(number), number, 0)
    outcomes: dict[int, str] = {}
    for _ in range(20):
        batch = queue.start(0, 0)
        if "6" in [each.id for each in batch]:
            delay_us, failed = queue.failed(Refused("append", "too large"), 0)
            assert delay_us == 0
            outcomes.update(dict.fromkeys(failed, "failed"))
        elif batch:
            outcomes.update(dict.fromkeys(queue.succeeded(0), "durable"))
    assert outcomes == {number: "failed" if number == 6 else "durable" for number in range(10)}
    assert list(outcomes) == list(range(10)), "in order"
    for number in range(BATCH_MAX):
        queue.add(record(100 + number), number, 0)
    sizes = []
    while batch := queue.start(0, 0):
        sizes.append(len(batch))
        queue.succeeded(0)
    assert sizes[-2] > sizes[0], "batches grow again"


def test_publishers_pause_at_a_full_queue_and_resume_at_half() -> None:
    queue: CommitQueue[int] = CommitQueue(4)
    for number in range(4):
        queue.add(record(number), number, 0)
    assert queue.full
    queue.start(0, 0)
    assert queue.full, "what is under way counts"
    queue.succeeded(0)
    assert queue.drained


@given(st.lists(st.sampled_from(["add", "add", "start", "succeed", "retry", "full", "refuse"]), max_size=60))
def test_every_ticket_comes_back_once_and_in_order(story: list[str]) -> None:
    queue: CommitQueue[int] = CommitQueue(1_000)
    added, under_way = 0, False
    outcomes: list[int] = []
    for what in [*story, *["succeed", "start"] * 70, "succeed"]:
        if what == "add":
            queue.add(record(added), added, 0)
            added += 1
        elif what == "start":
            under_way = bool(queue.start(0, 0)) or under_way
        elif under_way and what == "retry":
            assert queue.failed(StoreUnavailable("append", "x"), 0)[1] == []
        elif under_way and what == "refuse":
            outcomes += queue.failed(Refused("append", "x"), 0)[1]
            under_way = False
        elif under_way:
            outcomes += (
                queue.succeeded(0) if what == "succeed" else queue.failed(StoreFull("append", "x"), 0)[1]
            )
            under_way = False
    assert outcomes == list(range(added))
    assert len(queue) == 0
