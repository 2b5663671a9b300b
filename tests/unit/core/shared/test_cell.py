"""A group's cell beside others who write it: what is known, and when."""

from __future__ import annotations

import pytest

from tests.unit.core.delivery.attended import one
from tocsin.core.machine import DeleteKey, Effect, GetKey, PutKey, Say, SetTimer, Stored, StoreFailed
from tocsin.core.shared.cell import GET, PUT, GroupCell
from tocsin.core.shared.signals import SharingTimer
from tocsin.core.shared.stored_group import Member, StoredGroup, encode_group, group_key
from tocsin.errors import Conflict, OutcomeUnknown, StoreUnavailable, TocsinError
from tocsin.ports import Cell, Change

NAME = "$share/g/a"
KEY = group_key(NAME)
TTL_US = 60_000_000
CONFLICT = Conflict("put", 7, 9)
FAILURES = (StoreUnavailable("put", "no leader"), OutcomeUnknown("put", 5.0))


def group(next_: int) -> StoredGroup:
    return StoredGroup(NAME, next_, {"c": Member("s", 1, "b.1", 0)})


def cell_of(next_: int, revision: int) -> Cell:
    return Cell(KEY, encode_group(group(next_)), revision)


def put(next_: int, revision: int) -> Change:
    return Change("put", KEY, encode_group(group(next_)), revision)


def known_at(revision: int = 7) -> GroupCell:
    cell = GroupCell(NAME)
    cell.look()
    cell.stored(Stored(request=GET, value=cell_of(1, revision) if revision else None))
    return cell


def known_group(cell: GroupCell) -> StoredGroup | None:
    return cell.group


def failed(cell: GroupCell, error: TocsinError, request: str = PUT) -> list[Effect]:
    return cell.failed(StoreFailed(request=request, error=error))


def test_it_is_known_when_it_was_read() -> None:
    cell = GroupCell(NAME)
    assert not cell.known
    (asked,) = cell.look()
    assert isinstance(asked, GetKey) and asked.fresh, "an older one has claims that are settled"
    assert cell.look() == [], "one request at a time"
    assert cell.stored(Stored(request=GET, value=cell_of(1, 7))) == (True, [])
    assert (cell.known, cell.busy, cell.group) == (True, False, group(1))


def test_a_write_expects_the_known_revision_and_becomes_known() -> None:
    cell = known_at(7)
    asked = cell.write(group(2), TTL_US)
    assert isinstance(asked, PutKey)
    assert (asked.revision, asked.ttl_us, asked.value) == (7, TTL_US, encode_group(group(2)))
    assert cell.stored(Stored(request=PUT, value=8)) == (True, [])
    assert known_group(cell) == group(2)
    again = cell.write(group(3), None)
    assert isinstance(again, PutKey)
    assert again.revision == 8


def test_what_is_absent_is_made_and_what_has_nobody_is_removed() -> None:
    cell = known_at(0)
    made = cell.write(group(2), TTL_US)
    assert isinstance(made, PutKey)
    assert made.revision == 0
    cell.stored(Stored(request=PUT, value=3))
    removed = cell.write(None, None)
    assert isinstance(removed, DeleteKey)
    assert removed.revision == 3
    assert cell.stored(Stored(request=PUT)) == (True, [])
    assert known_group(cell) is None


def test_after_a_conflict_it_is_read_and_what_is_there_counts() -> None:
    cell = known_at(7)
    cell.write(group(2), TTL_US)
    assert isinstance(one(failed(cell, CONFLICT), GetKey), GetKey)
    assert cell.stored(Stored(request=GET, value=cell_of(5, 9))) == (True, [])
    assert known_group(cell) == group(5)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_failed_write_is_looked_up_and_repeated_with_the_same_bytes(
    error: TocsinError,
) -> None:
    cell = known_at(7)
    first = cell.write(group(2), TTL_US)
    effects = failed(cell, error)
    assert one(effects, SetTimer).name == SharingTimer.CELL_AGAIN
    assert one(effects, Say).level == "warning"
    assert cell.busy
    one(cell.again(), GetKey)
    known, repeated = cell.stored(Stored(request=GET, value=cell_of(1, 7), cause="c"))
    assert (known, repeated) == (False, [first])
    assert failed(cell, CONFLICT) != [], "the first one came late"
    assert cell.stored(Stored(request=GET, value=cell_of(2, 8))) == (True, [])
    assert known_group(cell) == group(2)


def test_a_removal_that_took_effect_unheard_is_seen() -> None:
    cell = known_at(7)
    cell.write(None, None)
    failed(cell, FAILURES[1])
    cell.again()
    assert cell.stored(Stored(request=GET, value=None)) == (True, [])
    assert known_group(cell) is None


def test_the_watch_tells_what_others_wrote() -> None:
    cell = known_at(7)
    assert cell.watched(put(1, 7)) == (False, []), "that is known"
    assert cell.watched(put(4, 9)) == (True, [])
    assert known_group(cell) == group(4)
    assert cell.watched(put(2, 8)) == (False, []), "that is the past"
    assert cell.watched(Change("delete", KEY, b"", 10)) == (True, [])
    assert known_group(cell) is None
    assert cell.watched(put(4, 9)) == (False, [])


def test_nothing_is_known_from_the_watch_before_it_was_read() -> None:
    cell = GroupCell(NAME)
    cell.look()
    assert cell.watched(put(4, 9)) == (False, [])
    assert not cell.known


def test_what_the_watch_tells_during_a_write_counts_when_that_is_answered() -> None:
    cell = known_at(7)
    cell.write(group(2), TTL_US)
    assert cell.watched(put(2, 8)) == (False, []), "it may be our own"
    assert cell.watched(put(3, 9)) == (False, [])
    assert cell.stored(Stored(request=PUT, value=8)) == (True, [])
    assert known_group(cell) == group(3)


def test_a_late_word_of_the_watch_does_not_undo_our_own_write() -> None:
    cell = known_at(7)
    cell.write(group(2), TTL_US)
    cell.watched(put(2, 8))
    cell.stored(Stored(request=PUT, value=8))
    assert known_group(cell) == group(2)
    assert cell.watched(put(2, 8)) == (False, [])


def test_an_answer_to_a_request_that_was_given_up_means_nothing() -> None:
    cell = known_at(7)
    assert cell.stored(Stored(request=PUT, value=9)) == (False, [])
    assert failed(cell, CONFLICT) == []
    assert cell.again() == []


@pytest.mark.parametrize("value", [b"\xff", b"\x02" + encode_group(group(1))[1:]])
def test_an_unreadable_cell_is_left_alone_and_read_again(value: bytes) -> None:
    cell = GroupCell(NAME)
    cell.look()
    known, effects = cell.stored(Stored(request=GET, value=Cell(KEY, value, 7)))
    assert not known and not cell.known and cell.busy, "so that nobody writes it"
    assert one(effects, Say).level == "error" and cell.problem
    assert one(effects, SetTimer).name == SharingTimer.CELL_AGAIN
    (asked,) = cell.again()
    assert isinstance(asked, GetKey)
    assert cell.stored(Stored(request=GET, value=cell_of(1, 8))) == (True, [])
    assert not cell.problem and known_group(cell) == group(1)
