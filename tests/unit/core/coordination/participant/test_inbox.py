"""Notices count in order, complete, and not before the messages that come before them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.coordination.participant import network_view as module
from tocsin.core.coordination.participant.network_view import Complete, Inbox
from tocsin.wire.internal.notices import AnyItem, Left, Notice, Refused


def notice(
    number: int,
    *items: AnyItem,
    epoch: int = 1,
    fresh: bool = False,
    more: bool = False,
    ask: bool = False,
) -> Notice:
    return Notice(7, number, epoch, 0, 0, fresh, more, ask, items)


def numbers(inbox: Inbox) -> list[int]:
    """Take out what is ready."""
    found = []
    while isinstance(taken := inbox.next(), Complete):
        found.append(taken.number)
    return found


def test_parts_count_when_the_last_is_there() -> None:
    inbox = Inbox()
    one, two = Refused("a", "x"), Refused("b", "x")
    assert inbox.take("c", notice(1, one, fresh=True, more=True)) and inbox.next() is None
    assert inbox.take("c", notice(2, two, ask=True))
    assert inbox.next() == Complete("c", 2, [one, two], True, True, 0)


def test_after_a_gap_only_a_fresh_notice_counts() -> None:
    inbox = Inbox()
    assert inbox.take("", notice(1)) and not inbox.take("", notice(3))
    assert not inbox.take("", notice(4)) and not inbox.take("", notice(2))
    assert [inbox.gap, inbox.take("", notice(6, fresh=True)), inbox.gap] == [True, True, False]
    assert numbers(inbox) == [1, 6]


def test_a_part_that_is_left_alone_is_dropped_with_the_gap() -> None:
    inbox = Inbox()
    inbox.take("", notice(1, Refused("a", "x"), more=True))
    assert not inbox.take("", notice(3))
    inbox.take("", notice(4, fresh=True))
    taken = inbox.next()
    assert isinstance(taken, Complete) and taken.items == []


def test_numbers_and_epochs_only_grow() -> None:
    inbox = Inbox()
    inbox.take("", notice(2, fresh=True, epoch=3))
    assert not inbox.is_new(notice(2, epoch=3)) and not inbox.is_new(notice(1, epoch=4))
    assert not inbox.is_new(notice(3, epoch=2)) and inbox.is_new(notice(3, epoch=3))
    inbox.begin()
    assert inbox.is_new(notice(1, epoch=3)) and not inbox.is_new(notice(1, epoch=2))


def test_an_end_and_everything_after_it_wait_for_the_message_log() -> None:
    inbox = Inbox()
    inbox.take("", notice(1, Left("q", "a", {}, 5)))
    inbox.take("", notice(2))
    assert inbox.next() == 5
    inbox.dispatched(4)
    assert inbox.next() == 5
    inbox.dispatched(5)
    assert numbers(inbox) == [1, 2]


def test_an_end_does_not_wait_for_ever_but_the_next_one_does() -> None:
    inbox = Inbox()
    inbox.take("", notice(1, Left("q", "a", {}, 5)))
    inbox.take("", notice(2, Left("q", "b", {}, 4)))
    inbox.give_up()
    assert numbers(inbox) == [1] and inbox.next() == 4


def test_what_waits_is_bounded() -> None:
    inbox = Inbox()
    for number in range(1, module.HELD_MAX + 2):
        inbox.take("", notice(number, Left("q", "a", {}, 5)))
    assert numbers(inbox) == [1]


@given(st.lists(st.tuples(st.integers(1, 12), st.booleans(), st.booleans()), max_size=30))
def test_whatever_comes_numbers_grow_and_gaps_are_jumped_only_by_fresh_ones(
    drawn: list[tuple[int, bool, bool]],
) -> None:
    inbox, taken = Inbox(), [0]
    for number, fresh, more in drawn:
        given_notice = notice(number, fresh=fresh, more=more)
        if inbox.is_new(given_notice) and inbox.take("", given_notice):
            assert number > taken[-1]
            assert fresh or number == taken[-1] + 1
            taken.append(number)
    complete = numbers(inbox)
    assert complete == sorted(set(complete))
