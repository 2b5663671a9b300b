"""The order in which retained messages are written."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.retained.write_order import RetainLines, WriteBarrier, WriteTurn


def test_a_message_waits_for_the_one_before_it() -> None:
    lines: RetainLines[str] = RetainLines()
    first, second = lines.enter("a"), lines.enter("a")
    lines.settle(second, "second")
    assert lines.start("a") == []
    lines.settle(first, "first")
    assert lines.start("a") == ["first", "second"], "written as one"


def test_each_topic_has_one_write_at_a_time_and_blocks_no_other() -> None:
    lines: RetainLines[str] = RetainLines()
    lines.settle(lines.enter("a"), "one")
    assert lines.start("a") == ["one"]
    lines.settle(lines.enter("a"), "two")
    lines.settle(lines.enter("b"), "other")
    assert lines.start("a") == []
    assert lines.start("b") == ["other"]
    lines.finish("a")
    assert lines.start("a") == ["two"]


def test_a_place_whose_turn_has_come_holds_its_item_no_longer() -> None:
    lines: RetainLines[str] = RetainLines()
    place = lines.enter("a")
    lines.settle(place, "one")
    assert lines.start("a") == ["one"] and place.item is None


def test_who_withdraws_holds_nobody_up_and_nothing_is_left() -> None:
    lines: RetainLines[str] = RetainLines()
    first, second = lines.enter("a"), lines.enter("a")
    lines.settle(second, "second")
    lines.settle(first, None)
    assert lines.start("a") == ["second"]
    lines.finish("a")
    lines.settle(lines.enter("a"), None)
    assert lines.start("a") == []
    assert len(lines) == 0


def test_writes_of_one_topic_never_go_back_to_a_smaller_position() -> None:
    lines: RetainLines[str] = RetainLines()
    lines.settle(lines.enter("a"), "one")
    assert lines.start("a") == ["one"] and lines.position("a", 7) == 7
    lines.settle(lines.enter("a"), "two")
    lines.finish("a")
    assert lines.start("a") == ["two"] and lines.position("a", 5) == 7
    lines.finish("a")
    lines.settle(lines.enter("a"), "three")
    assert lines.start("a") == ["three"] and lines.position("a", 6) == 6, "the line before it is over"


@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "settle", "withdraw", "start", "finish"]), st.integers(0, 9)),
        max_size=60,
    )
)
def test_messages_are_written_in_the_order_in_which_they_came(steps: list[tuple[str, int]]) -> None:
    lines: RetainLines[int] = RetainLines()
    waiting: list[tuple[int, WriteTurn[int]]] = []
    came: list[int] = []
    withdrawn: set[int] = set()
    written: list[int] = []
    busy = False
    for step, pick in steps:
        if step == "enter":
            waiting.append((len(came), lines.enter("a")))
            came.append(len(came))
        elif step in ("settle", "withdraw") and waiting:
            number, place = waiting.pop(pick % len(waiting))
            lines.settle(place, number if step == "settle" else None)
            if step == "withdraw":
                withdrawn.add(number)
        elif step == "start" and (items := lines.start("a")):
            assert not busy
            busy = True
            written += items
        elif step == "finish" and busy:
            lines.finish("a")
            busy = False
    for number, place in waiting:
        lines.settle(place, number)
    if busy:
        lines.finish("a")
    if items := lines.start("a"):
        written += items
        lines.finish("a")
    assert written == [number for number in came if number not in withdrawn]
    assert len(lines) == 0


# ── subscribers wait for what came before them ───────────────────────────────────────────────────────────────


def test_without_writes_nobody_waits() -> None:
    barrier: WriteBarrier[str] = WriteBarrier()
    assert not barrier.wait("a")
    assert barrier.end(barrier.begin()) == [] and not len(barrier)


@given(st.lists(st.integers(0, 9)))
def test_an_item_passes_when_the_writes_before_it_have_ended(steps: list[int]) -> None:
    barrier: WriteBarrier[int] = WriteBarrier()
    under_way: list[int] = []
    waiting: dict[int, set[int]] = {}  # item → the writes before it that are under way
    for item, step in enumerate(steps):
        if step < 4:
            under_way.append(barrier.begin())
        elif step < 7:
            if barrier.wait(item):
                waiting[item] = set(under_way)
            else:
                assert not under_way
        elif under_way:
            ended = under_way.pop(step % len(under_way))
            for before in waiting.values():
                before.discard(ended)
            passed = barrier.end(ended)
            assert passed == list(takewhile(lambda each: not waiting[each], waiting))
            for each in passed:
                del waiting[each]
    assert len(barrier) == len(waiting)


def test_an_item_that_comes_again_waits_for_all_before_its_second_coming() -> None:
    barrier: WriteBarrier[str] = WriteBarrier()
    first = barrier.begin()
    assert barrier.wait("a")
    second = barrier.begin()
    assert barrier.wait("a")
    assert barrier.end(first) == [] and len(barrier) == 1
    assert barrier.end(second) == ["a"]


def test_an_item_may_go_before_the_writes_have_ended() -> None:
    barrier: WriteBarrier[str] = WriteBarrier()
    number = barrier.begin()
    assert barrier.wait("a")
    assert barrier.skip("a") and not barrier.skip("a")
    assert barrier.end(number) == []
