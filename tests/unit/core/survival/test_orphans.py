"""Which sessions a broker releases that name it and that it does not serve, and when."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.survival import orphans as module
from tocsin.core.survival.orphans import GRACE_US, Orphan, OrphanedSessions

SERVED = StoredSession("me", uid="u", expiry_s=60, epoch=3, broker="north-1")
FOUND = ("me", Orphan("u", 3, 100, None))


def seen(*, borrowed: bool = False) -> OrphanedSessions:
    """A scan found the session of an earlier run at 100."""
    sessions = OrphanedSessions("north-1", borrowed=borrowed)
    sessions.saw(SERVED, 100)
    return sessions


def test_nothing_is_released_before_a_leader_counts_on_this_process() -> None:
    sessions = seen()
    assert sessions.due(10 * GRACE_US) == [], "a standby may have this broker's name, and the client"
    sessions.count(True, 10 * GRACE_US)
    assert sessions.due(11 * GRACE_US - 1) == [], "the standby has still to hear of it"
    assert sessions.due(11 * GRACE_US) == [FOUND]


def test_clients_have_time_to_come_back() -> None:
    sessions = seen()
    sessions.count(True, 0)
    assert sessions.due(GRACE_US + 99) == []
    assert sessions.due(GRACE_US + 100) == [FOUND]


def test_time_begins_anew_when_a_leader_counts_on_it_again() -> None:
    sessions = seen()
    sessions.count(True, 0)
    sessions.count(False, 200)
    assert sessions.due(2 * GRACE_US) == []
    sessions.count(True, 2 * GRACE_US)
    assert sessions.due(3 * GRACE_US - 1) == []
    assert sessions.due(3 * GRACE_US) == [FOUND]


def test_a_session_that_this_process_served_need_not_wait() -> None:
    sessions = OrphanedSessions("north-1")
    sessions.left("me", "u", 3, 5, 100)
    assert sessions.due(100) == [("me", Orphan("u", 3, 100, 5))]


def test_a_borrowed_name_and_others_sessions_release_nothing() -> None:
    borrowed = seen(borrowed=True)
    borrowed.count(True, 0)
    other = OrphanedSessions("south-1")
    other.saw(SERVED, 100)
    other.count(True, 0)
    assert borrowed.due(2 * GRACE_US) == other.due(2 * GRACE_US) == []


def test_a_newer_connection_is_waited_for_anew_and_an_older_one_ignored() -> None:
    sessions = seen()
    sessions.count(True, 0)
    sessions.saw(msgspec.structs.replace(SERVED, epoch=4), 200)
    sessions.saw(SERVED, 300)
    assert sessions.due(GRACE_US + 200) == [("me", Orphan("u", 4, 200, None))]


def test_what_is_settled_is_forgotten_unless_it_is_another_by_now() -> None:
    sessions = seen()
    (_, orphan) = FOUND
    sessions.left("me", "u", 4, 0, 200)
    sessions.settled("me", orphan)
    ((client, newer),) = sessions.due(200)
    sessions.settled(client, newer)
    assert sessions.due(200) == []


@pytest.mark.parametrize(
    "changed", [{"epoch": 4, "broker": "south-1"}, {"uid": "v"}, {"broker": ""}, {"epoch": 4}], ids=str
)
def test_a_session_that_somebody_has_had_since_is_not_ours(changed: dict[str, object]) -> None:
    (_, orphan) = FOUND
    assert seen().released(msgspec.structs.replace(SERVED, **changed), orphan) is None


@pytest.mark.parametrize(("wanted_s", "expiry_s"), [(None, 60), (5, 5), (0, 0)])
def test_a_released_session_is_nobodys_and_expires_as_its_client_wants(
    wanted_s: int | None, expiry_s: int
) -> None:
    released = seen().released(SERVED, Orphan("u", 3, 100, wanted_s))
    assert released == msgspec.structs.replace(SERVED, broker="", expiry_s=expiry_s)


def test_no_more_than_a_number_of_sessions_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN_MAX", 1)
    sessions = seen()
    sessions.left("you", "w", 1, 5, 100)
    sessions.left("me", "u", 3, 5, 100)
    assert [client for client, _ in sessions.due(100)] == ["me"]
