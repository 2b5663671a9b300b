"""Changes that wait for a coordinator are numbered, and bounded by number and bytes."""

from __future__ import annotations

import pytest

from tocsin.core.streams import tickets as module
from tocsin.core.streams.tickets import CHANGE_BYTES, Tickets


def test_tickets_grow_and_what_is_settled_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSETTLED_MAX", 2)
    tickets = Tickets()
    assert [tickets.next(), tickets.room, tickets.next(), tickets.room] == [1, True, 2, False]
    tickets.settle(1)
    assert tickets.room
    tickets.settle(0)
    assert tickets.settled == 1, "a late word changes nothing"


def test_the_bytes_of_what_waits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSETTLED_MAX_BYTES", 2 * CHANGE_BYTES)
    tickets = Tickets()
    found = []
    for diff in (None, {"kind": "x" * CHANGE_BYTES}):
        tickets.declared(tickets.next(), "a", diff)
        found.append(tickets.room)
    for ticket in (1, 2):
        tickets.settle(ticket)
        found.append(tickets.room)
    assert found == [True, False, False, True], "the second alone is too much"
