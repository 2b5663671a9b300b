"""What is to be done once something has happened."""

from __future__ import annotations

import pytest

from tocsin.runtime.machines.callbacks import PendingCallbacks


def test_what_tickets_stand_for_is_done_in_their_order_and_once() -> None:
    tickets, done = PendingCallbacks(), list[str]()
    first = tickets.give(lambda: done.append("first"))
    second = tickets.give(lambda: done.append("second"))
    assert not done
    tickets.redeem((second, first))
    assert done == ["second", "first"]
    with pytest.raises(KeyError):
        tickets.redeem((first,))
    assert done == ["second", "first"]


def test_what_is_done_may_ask_for_more() -> None:
    tickets, given = PendingCallbacks(), list[int]()
    given.append(tickets.give(lambda: given.append(tickets.give(lambda: given.clear()))))
    tickets.redeem(tuple(given))
    assert len(given) == 2 and given[0] != given[1]
    tickets.redeem(given[1:])
    assert not given
