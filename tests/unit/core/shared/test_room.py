"""A group's room in a broker's memory."""

from __future__ import annotations

from tocsin.core.budgets.budget import Bounds, Budget, Kind
from tocsin.core.shared.room import GroupRoom


def small() -> tuple[GroupRoom, Budget]:
    """A group that may have ten bytes."""
    budget = Budget([Bounds(client=10, user=25, broker=40)] * len(Kind))
    return GroupRoom(budget.account("alice")), budget


def used(budget: Budget) -> int:
    return budget.figures()[Kind.GROUPS].used


def test_entries_use_first_what_the_read_has_taken() -> None:
    room, budget = small()
    kept: list[bool] = []

    def tell() -> None:
        kept.extend([room.keep(3), room.keep(2)])

    room.before_read(6, lambda: room.after_read(6, tell), lambda: None)
    assert kept == [True, True] and used(budget) == 5


def test_an_entry_larger_than_the_read_takes_the_rest_as_well() -> None:
    room, budget = small()
    kept: list[bool] = []

    def tell() -> None:
        kept.extend([room.keep(50), room.keep(1)])

    room.before_read(4, lambda: room.after_read(4, tell), lambda: None)
    assert kept == [True, False], "the first counts as all the room of the group"
    assert used(budget) == 10
    room.let_go(50)
    assert used(budget) == 0
