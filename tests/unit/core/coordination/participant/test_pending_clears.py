"""Messages wait for their change to be known, but not for ever, and not twice."""

from __future__ import annotations

from tocsin.core.coordination.participant.pending_clears import CLEAR_US, PendingClears


def test_tickets_become_clear_with_the_numbers_of_their_commands() -> None:
    tested = PendingClears()
    for number, ticket in ((4, 1), (5, 2), (9, 3)):
        tested.wait(number, ticket, 0)
    assert [tested.up_to(3), tested.up_to(5), tested.up_to(5), tested.up_to(9)] == [0, 2, 0, 3]
    assert len(tested) == 0


def test_what_waits_for_too_long_goes_on_without() -> None:
    tested = PendingClears()
    tested.wait(1, 1, 0)
    tested.wait(2, 2, 300)
    assert tested.late(CLEAR_US - 1) == 0
    assert tested.late(CLEAR_US) == 1
    assert tested.patience_us(CLEAR_US) == 300


def test_nobody_is_waited_for_when_nobody_leads() -> None:
    tested = PendingClears()
    tested.wait(1, 1, 0)
    assert tested.all(2) == 2
    assert (tested.all(), tested.up_to(9), len(tested)) == (0, 0, 0)
