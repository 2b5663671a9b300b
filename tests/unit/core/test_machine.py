"""The kernel: what a table allows, and whose story an effect belongs to."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import pytest

from tocsin.core.machine import (
    Effect,
    IllegalEvent,
    Say,
    Started,
    Table,
    TableMachine,
    TimerFired,
)


class WaiterState(StrEnum):
    NEW = "new"
    WAITING = "waiting"


class Waiter(TableMachine):
    """Says two things at once: one of its own story, and one that waited for it."""

    state: WaiterState = WaiterState.NEW

    def __init__(self) -> None:
        self._waited = ""

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self.state = WaiterState.WAITING
        self._waited = event.cause
        return [Say(text="starts")]

    def _fired(self, event: TimerFired, now_us: int) -> list[Effect]:
        return [Say(text="fires"), Say(text="was waited for", cause=self._waited)]

    table: ClassVar[Table] = {
        (WaiterState.NEW, Started): _start,
        ("*", TimerFired): _fired,
    }


def test_an_effect_has_its_events_cause_unless_it_names_another() -> None:
    machine = Waiter()
    assert machine.handle(Started(incarnation=1, cause="a"), 0) == [Say(text="starts", cause="a")]
    assert machine.handle(TimerFired(name="t", cause="b"), 0) == [
        Say(text="fires", cause="b"),
        Say(text="was waited for", cause="a"),
    ]


def test_an_event_that_the_state_does_not_allow_raises_and_changes_nothing() -> None:
    machine = Waiter()
    machine.handle(Started(incarnation=1), 0)
    with pytest.raises(IllegalEvent, match="Waiter in state 'waiting' cannot take Started"):
        machine.handle(Started(incarnation=2), 0)
    assert machine.state == "waiting"
