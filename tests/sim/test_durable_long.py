"""Outages that outlast what the store remembers, sessions and ids; and what is lost or doubled without care."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.core import stored_session
from tocsin.core.commit import CommitQueue
from tocsin.core.custody import Custody, Outcome
from tocsin.core.machine import Effect, StoreFailed
from tocsin.core.stored_session import StoredSession
from tocsin.errors import Conflict
from tocsin.ports import Cell
from tocsin.sim.runner import Broken, run, run_many
from tocsin.sim.scenario import find
from tocsin.sim.scenarios.durable.service import Service

QUICK = 40  # seeds: some ten seconds
# 0: what an ended connection could not write, because the cell was missing, was tried for ever.
# 273: a client that had not got its CONNACK took the next session for the one that it had.
# 697: a new session's messages from before it are not the old one's once more.
# 1706: a message waited in the queue of a broker that was cut off; its client repeated it elsewhere meanwhile.
# 4269: whether the day of a cell was over was asked of the session that had replaced it.
# 5018: a client said goodbye on a connection that it had not been told of.
ONCE_FAILED = (0, 273, 697, 1706, 4269, 5018)

ONCE_IN_THE_LOG = "a message at QoS 2 is in the log once"
SESSIONS_LAST = "sessions last"
GIVEN_UP = "a client is given up only to another connection"
TAKEN = "subscribers get everything, in order, at QoS 2 once"


def first_broken(seeds: int) -> Broken | None:
    """What the first seed breaks that breaks anything, from 0 on."""
    found = (run(find("durable-long"), seed).broken for seed in range(seeds))
    return next((broken for broken in found if broken), None)


def test_forty_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("durable-long", 0, QUICK) if outcome.broken] == []


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_ten_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("durable-long", 0, 10_000, jobs=2) if outcome.broken] == []


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert run(find("durable-long"), seed).broken is None


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


def test_sessions_that_expire_while_their_clients_are_connected_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: a served session is kept for its expiry and half a minute, and a missing cell is somebody else's."""
    monkeypatch.setattr(stored_session, "SERVED_S", 30)
    checked, failed = Custody._checked, Custody.failed

    def taken_for_lost(
        self: Custody, cell: Cell | None, now_us: int, cause: str
    ) -> tuple[Outcome, list[Effect]]:
        return ("lost", []) if cell is None else checked(self, cell, now_us, cause)

    def lost(self: Custody, event: StoreFailed, now_us: int) -> tuple[Outcome, list[Effect]]:
        outcome, effects = failed(self, event, now_us)
        return ("lost", []) if self.missing and isinstance(event.error, Conflict) else (outcome, effects)

    monkeypatch.setattr(Custody, "_checked", taken_for_lost)
    monkeypatch.setattr(Custody, "failed", lost)
    found = first_broken(QUICK)
    assert found is not None and found.invariant in (SESSIONS_LAST, GIVEN_UP, TAKEN)


def test_appends_that_are_repeated_without_a_look_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the log is trusted to remember the ids of an append for as long as it stays unanswered."""
    monkeypatch.setattr(CommitQueue, "doubted", None)
    found = first_broken(QUICK)
    assert found is not None and found.invariant == ONCE_IN_THE_LOG


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_session_that_its_client_does_not_know_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a session counts as known when it is made, though its CONNACK may be lost."""
    encode = Service._on_cell.__globals__["encode_session"]

    def confirmed(session: StoredSession) -> bytes:
        return encode(msgspec.structs.replace(session, confirmed=True))  # type: ignore[no-any-return]

    monkeypatch.setitem(Service._on_cell.__globals__, "encode_session", confirmed)
    found = first_broken(1_000)
    assert found is not None and found.invariant in (ONCE_IN_THE_LOG, TAKEN)
