"""Results by subscription: the same as looking through the files, and read once."""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.results import Notice, ResultFile
from tocsin.results.index import ASKED, NOTICES_MAX, ROWS_MAX, ResultIndex
from tocsin.results.reader import Result


def results(*ks: str, size: int = 1) -> list[Result]:
    return [Result(ordinal, "Near", 3, k, 0, b"x" * size) for ordinal, k in enumerate(ks)]


def notice(tick: int = 7, rows: int = 3) -> Notice:
    return Notice(tick, 0, (), (ResultFile("e1", "f", rows),), 0, rows)


class Asking:
    """Asks an index, and counts how often everything was read."""

    def __init__(self, *ks: str, index: ResultIndex | None = None, size: int = 1) -> None:
        self.index = index or ResultIndex()
        self.results = results(*ks, size=size)
        self.reads = 0

    def read(self) -> list[Result]:
        self.reads += 1
        return self.results

    def ask(self, ks: Collection[str], start: int = 0, of: Notice | None = None) -> list[Result] | None:
        return self.index.find(of or notice(), ks, start, self.read)


@given(
    st.lists(st.sampled_from("abcd"), max_size=12),
    st.lists(st.tuples(st.sets(st.sampled_from("abcde")), st.integers(0, 13)), max_size=8),
)
def test_an_answer_is_what_looking_through_everything_finds(
    ks: list[str], questions: list[tuple[set[str], int]]
) -> None:
    asking = Asking(*ks)
    for number, (wanted, start) in enumerate(questions, 1):
        model = [each for each in asking.results if each.k in wanted and each.ordinal >= start]
        found = asking.ask(wanted, start)
        assert found == (None if number < ASKED else model)
    assert asking.reads == (len(questions) >= ASKED)


def test_who_catches_up_alone_has_nothing_read_as_a_whole() -> None:
    asking = Asking("a", "b")
    for tick in range(20):
        assert asking.ask(["a"], of=notice(tick)) is None  # critical results
        assert asking.ask(["a"], of=notice(tick)) is None  # the others
    assert asking.reads == 0


def test_a_large_notice_is_never_read_as_a_whole() -> None:
    asking = Asking("a")
    large = notice(rows=ROWS_MAX + 1)
    assert [asking.ask(["a"], of=large) for _ in range(10)] == [None] * 10


def test_what_is_kept_has_a_bound_and_the_oldest_goes_first() -> None:
    asking = Asking("a", index=ResultIndex(bytes_max=3_000), size=1_000)  # two notices fit
    for tick in (1, 2, 3):
        for _ in range(ASKED):
            asking.ask(["a"], of=notice(tick))
    assert asking.reads == 3
    assert asking.ask(["a"], of=notice(3)) == asking.results and asking.reads == 3
    assert asking.ask(["a"], of=notice(1)) == asking.results and asking.reads == 4


def test_one_that_is_too_large_to_be_kept_is_still_answered() -> None:
    asking = Asking("a", index=ResultIndex(bytes_max=10))
    for _ in range(ASKED):
        found = asking.ask(["a"])
    assert found == asking.results
    assert asking.index.bytes == 0 and not asking.index._kept


def test_how_often_was_asked_is_forgotten_of_many_notices() -> None:
    asking = Asking("a")
    for _ in range(ASKED):
        for tick in range(NOTICES_MAX + 1):
            asking.ask(["a"], of=notice(tick))
    assert asking.reads == 0 and len(asking.index._asked) == NOTICES_MAX


def test_what_cannot_be_read_is_said_and_read_again_the_next_time() -> None:
    index, asking = ResultIndex(), Asking("a")

    def fail() -> list[Result]:
        raise FileNotFoundError

    for _ in range(ASKED - 1):
        assert index.find(notice(), ["a"], 0, fail) is None
    with pytest.raises(FileNotFoundError):
        index.find(notice(), ["a"], 0, fail)
    assert index.find(notice(), ["a"], 0, asking.read) == asking.results


def test_many_threads_read_it_once() -> None:
    asking = Asking("a", "b")
    for _ in range(ASKED):
        asking.ask(["a"], of=notice(1))
    asking.reads = 0
    for _ in range(ASKED - 1):
        asking.ask(["a"])
    found: list[list[Result] | None] = []
    begin = threading.Barrier(8)

    def ask() -> None:
        begin.wait()
        found.append(asking.ask(["b"]))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [asking.results[1:]] * 8 and asking.reads == 1
