"""One cell, one writer: each answer that a store can give, to each request."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.core.delivery.session_cell import (
    CHECK,
    FORGET,
    OLD_BYTES_US,
    SAVE,
    SAVE_AFTER_US,
    SessionCell,
)
from tocsin.core.delivery.signals import DeliveryTimer
from tocsin.core.delivery.stored_session import FOREVER_S, SERVED_S, StoredSession, encode_session
from tocsin.core.machine import DeleteKey, GetKey, PutKey, SetTimer, Stored, StoreFailed
from tocsin.errors import Conflict, OutcomeUnknown, Refused, StoreFull, StoreUnavailable, TocsinError
from tocsin.ports import Cell

HEARD_US = 101 + OLD_BYTES_US  # of a client whose cell was missed at 100
BEFORE = StoredSession("me", uid="u", expiry_s=FOREVER_S)
AFTER = StoredSession("me", uid="u", expiry_s=60, broker="here")
OURS = encode_session(AFTER)
RELEASED = encode_session(msgspec.structs.replace(AFTER, broker=""))
THEIRS = encode_session(msgspec.structs.replace(AFTER, epoch=2, broker="there"))
UNKNOWN = OutcomeUnknown("put", 5.0)
CONFLICT = Conflict("put", 7, 8)


def writing() -> SessionCell:
    custody = SessionCell(BEFORE, 7)
    custody.wait(1)
    custody.write(AFTER)
    return custody


def failed(error: TocsinError, request: str = SAVE) -> StoreFailed:
    return StoreFailed(request=request, error=error)


def test_a_write_expects_the_last_revision_and_sets_the_sessions_expiry() -> None:
    put = SessionCell(BEFORE, 7).write(AFTER)
    assert isinstance(put, PutKey)
    assert (put.value, put.revision, put.ttl_us) == (
        OURS,
        7,
        60_000_000 + SERVED_S * 1_000_000,
    )
    forever = SessionCell(BEFORE, 7).write(BEFORE)
    assert isinstance(forever, PutKey)
    assert forever.ttl_us is None


def test_a_write_that_happened_frees_the_way_and_its_tickets() -> None:
    custody = writing()
    custody.wait(2)
    assert custody.stored(Stored(request=SAVE, value=8), 0) == ("written", [])
    assert (custody.busy, custody.session) == (False, AFTER)
    assert custody.take_tickets() == (1,)
    assert custody.take_tickets() == ()
    assert custody.awaited, "the second waits for the next"


def test_a_change_that_nobody_awaits_is_due_later_and_once() -> None:
    custody = SessionCell(AFTER, 7)
    assert custody.soon() == [SetTimer(name=DeliveryTimer.SAVE_SOON, delay_us=SAVE_AFTER_US)]
    assert custody.soon() == []
    assert custody.due()
    assert not custody.awaited
    assert custody.soon() != [], "the next change"


def test_what_is_due_during_a_write_is_overdue_until_the_next_begins() -> None:
    custody = writing()
    custody.soon()
    assert not custody.due()
    custody.stored(Stored(request=SAVE, value=8), 0)
    assert custody.awaited
    custody.write(BEFORE)
    assert not custody.awaited


def test_a_cell_that_expires_is_refreshed_in_time() -> None:
    for expiry_s, after_s in ((0, 60), (60, 60), (180, 60), (600, 200), (7 * 86_400, (8 * 86_400) // 3)):
        session = StoredSession("me", uid="u", expiry_s=expiry_s, broker="here")
        (timer,) = SessionCell(session, 7).refresh_later()
        assert timer == SetTimer(
            name=DeliveryTimer.REFRESH, delay_us=min(after_s, max(60, expiry_s // 3)) * 1_000_000
        )
    assert SessionCell(BEFORE, 7).refresh_later() == [], "it is kept for ever"


def test_two_writes_at_a_time_are_a_mistake() -> None:
    with pytest.raises(AssertionError):
        writing().write(BEFORE)
    with pytest.raises(AssertionError):
        writing().forget()


@pytest.mark.parametrize(
    "error", [StoreUnavailable("put", "x"), StoreFull("put", "x"), Refused("put", "x"), UNKNOWN], ids=str
)
def test_a_failure_is_told_and_tried_again_later(error: TocsinError) -> None:
    outcome, effects = writing().failed(failed(error), 0)
    assert outcome == "failed"
    assert [each.name for each in effects if isinstance(each, SetTimer)] == [DeliveryTimer.SAVE_AGAIN]


def test_a_retry_puts_the_same_bytes_or_reads_first_if_unsure() -> None:
    custody = writing()
    custody.failed(failed(StoreUnavailable("put", "x")), 0)
    (again,) = custody.again(0)
    assert isinstance(again, PutKey)
    assert again.value == OURS
    custody.failed(failed(UNKNOWN), 0)
    (look,) = custody.again(0)
    assert isinstance(look, GetKey) and look.fresh, "an older cell would look like another's"
    assert SessionCell(BEFORE, 7).again(0) == []


@pytest.mark.parametrize(
    ("cell", "outcome"),
    [
        (Cell("k", OURS, 8), "written"),
        (Cell("k", OURS, 7), "under way"),  # the same bytes as before: this write has not happened
        (Cell("k", b"old", 7), "under way"),
        (Cell("k", b"a rival's", 8), "lost"),
    ],
)
def test_a_look_tells_whose_the_cell_is(cell: Cell, outcome: str) -> None:
    custody = writing()
    custody.failed(failed(UNKNOWN), 0)
    custody.again(0)
    found, effects = custody.stored(Stored(request=CHECK, value=cell), 0)
    assert found == outcome
    assert [type(each) for each in effects] == ([PutKey] if outcome == "under way" else [])


def missing(*, unsure: bool = False) -> SessionCell:
    """A write under way that found no cell, at 100."""
    custody = writing()
    if unsure:
        custody.failed(failed(UNKNOWN), 50)
        custody.again(50)
        outcome, effects = custody.stored(Stored(request=CHECK, value=None), 100)
    else:
        outcome, effects = custody.failed(failed(Conflict("put", 7, 0)), 100)
    assert (outcome, [type(each) for each in effects]) == ("under way", [SetTimer])
    assert custody.missing
    return custody


@pytest.mark.parametrize("unsure", [False, True])
def test_a_missing_cell_is_rewritten_once_its_client_was_heard(unsure: bool) -> None:
    custody = missing(unsure=unsure)
    (wait,) = custody.again(100)
    assert isinstance(wait, SetTimer), "it may have gone elsewhere, and ended its session"
    (wait,) = custody.again(100 + OLD_BYTES_US)
    assert isinstance(wait, SetTimer), "the kernel may have kept these bytes while the process stood still"
    _, put = custody.again(HEARD_US)
    assert isinstance(put, PutKey)
    assert (put.value, put.revision, custody.missing) == (OURS, 0, False)
    assert custody.stored(Stored(request=SAVE, value=9), 102) == ("written", [])


def test_a_cell_that_is_written_anew_twice_is_there_once() -> None:
    custody = missing()
    custody.again(HEARD_US)
    custody.failed(failed(UNKNOWN), 102)
    custody.again(103)
    outcome, (put,) = custody.stored(Stored(request=CHECK, value=None), 103)
    assert (outcome, type(put)) == ("under way", PutKey), "still none there"
    assert custody.failed(failed(Conflict("put", 0, 9)), 104)[0] == "under way"
    assert custody.stored(Stored(request=CHECK, value=Cell("k", OURS, 9)), 105)[0] == "written"


def test_a_cell_that_somebody_else_makes_meanwhile_is_theirs() -> None:
    custody = missing()
    custody.again(HEARD_US)
    assert custody.failed(failed(Conflict("put", 0, 9)), 102)[0] == "under way"
    assert custody.stored(Stored(request=CHECK, value=Cell("k", THEIRS, 9)), 103) == ("lost", [])


@pytest.mark.parametrize("unsure", [False, True])
def test_after_a_conflict_the_cell_says_whose_it_is(unsure: bool) -> None:
    custody = writing()
    if unsure:
        custody.failed(failed(UNKNOWN), 0)
    outcome, (look,) = custody.failed(failed(CONFLICT), 0)
    assert outcome == "under way"
    assert isinstance(look, GetKey) and look.fresh
    assert custody.stored(Stored(request=CHECK, value=Cell("k", THEIRS, 8)), 0) == ("lost", [])


@pytest.mark.parametrize("last", [False, True])
def test_a_session_that_was_released_under_a_live_connection_is_taken_back(last: bool) -> None:
    """Another process of this broker's name held the connection's session for one of its own past."""
    session = msgspec.structs.replace(AFTER, broker="", expiry_s=5) if last else AFTER
    custody = SessionCell(BEFORE, 7)
    custody.write(session)
    custody.failed(failed(CONFLICT), 0)
    outcome, (put,) = custody.stored(Stored(request=CHECK, value=Cell("k", RELEASED, 8)), 0)
    assert (outcome, type(put)) == ("under way", PutKey)
    assert isinstance(put, PutKey)
    assert (put.value, put.revision) == (encode_session(session), 8)
    assert custody.stored(Stored(request=SAVE, value=9), 0) == ("written", [])
    assert custody.session == session


def test_a_session_that_was_released_meanwhile_is_forgotten_all_the_same() -> None:
    custody = SessionCell(BEFORE, 7)
    custody.forget()
    custody.failed(failed(CONFLICT, FORGET), 0)
    outcome, (delete,) = custody.stored(Stored(request=CHECK, value=Cell("k", RELEASED, 8)), 0)
    assert outcome == "under way"
    assert isinstance(delete, DeleteKey) and delete.revision == 8
    assert custody.stored(Stored(request=FORGET), 0) == ("forgotten", [])


@pytest.mark.parametrize(
    "changed", [{"epoch": 2}, {"uid": "v"}, {"broker": "there"}, {"epoch": 2, "broker": "there"}], ids=str
)
def test_a_session_that_somebody_has_had_since_is_lost(changed: dict[str, object]) -> None:
    custody = writing()
    custody.failed(failed(CONFLICT), 0)
    theirs = encode_session(msgspec.structs.replace(AFTER, **{"broker": "", **changed}))
    assert custody.stored(Stored(request=CHECK, value=Cell("k", theirs, 8)), 0) == ("lost", [])


def test_a_write_stays_unsure_until_it_is_seen_in_the_cell() -> None:
    custody = writing()
    custody.failed(failed(UNKNOWN), 0)
    custody.again(0)
    custody.stored(Stored(request=CHECK, value=Cell("k", b"old", 7)), 0)
    assert custody.failed(failed(CONFLICT), 0)[0] == "under way"
    custody.stored(Stored(request=CHECK, value=Cell("k", OURS, 8)), 0)
    custody.write(BEFORE)
    custody.failed(failed(CONFLICT), 0)
    assert custody.stored(Stored(request=CHECK, value=Cell("k", THEIRS, 9)), 0)[0] == "lost"


def test_forgetting_is_done_when_the_cell_is_gone_or_anothers() -> None:
    custody = SessionCell(BEFORE, 7)
    delete = custody.forget()
    assert isinstance(delete, DeleteKey)
    assert (delete.request, delete.revision) == (FORGET, 7)
    assert custody.busy
    assert custody.failed(failed(UNKNOWN, FORGET), 0)[0] == "failed"
    assert custody.again(0) == [delete]
    assert custody.failed(failed(CONFLICT, FORGET), 0)[0] == "under way"
    assert custody.stored(Stored(request=CHECK, value=Cell("k", THEIRS, 8)), 0) == ("forgotten", [])
    vanished = SessionCell(BEFORE, 7)
    vanished.forget()
    assert vanished.failed(failed(Conflict("delete", 7, 0), FORGET), 0) == ("forgotten", [])
    quicker = SessionCell(BEFORE, 7)
    quicker.forget()
    assert quicker.stored(Stored(request=FORGET), 0) == ("forgotten", [])


def test_an_answer_that_nobody_waits_for_is_nothing() -> None:
    custody = SessionCell(BEFORE, 7)
    assert custody.stored(Stored(request=SAVE, value=9), 0) == ("under way", [])
    assert custody.failed(failed(CONFLICT), 0) == ("under way", [])


def test_who_does_not_need_a_write_waits_for_its_failure_at_most() -> None:
    custody = writing()
    custody.wait(2, needed=False)
    assert custody.awaited
    assert [custody.take_wishes(), custody.take_wishes()] == [(2,), ()]
    custody.wait(3, needed=False)
    custody.stored(Stored(request=SAVE, value=8), 0)
    custody.take_tickets()
    custody.write(AFTER)
    assert not custody.waited_for
    custody.stored(Stored(request=SAVE, value=9), 0)
    assert custody.take_tickets() == (3,)
