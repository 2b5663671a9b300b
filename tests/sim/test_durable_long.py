"""Outages that outlast what the store remembers, sessions and ids; and what is lost or doubled without care."""

from __future__ import annotations

import msgspec
import pytest

from tocsin.core import stored_session
from tocsin.core.commit import CommitQueue
from tocsin.core.custody import CHECK, Custody, Outcome
from tocsin.core.machine import Effect, GetKey, StoreFailed
from tocsin.core.stored_session import StoredSession
from tocsin.errors import Conflict
from tocsin.ports import Cell
from tocsin.sim.plan import Profile
from tocsin.sim.runner import Broken, run, run_many
from tocsin.sim.scenario import find
from tocsin.sim.scenarios.durable.broker import Broker
from tocsin.sim.scenarios.durable.long import LONG_FAULTS
from tocsin.sim.scenarios.durable.service import Service
from tocsin.sim.scenarios.durable.wire import SESSIONS

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


# Leaders of the store that stood still, and answer with old news when they go on.
OLD_NEWS = msgspec.structs.replace(
    LONG_FAULTS, kinds=(("old news", 6), ("store trouble", 2), ("store partition", 1)), most=10
)


def first_broken(seeds: int, faults: Profile = LONG_FAULTS) -> Broken | None:
    """What the first seed breaks that breaks anything, from 0 on."""
    scenario = msgspec.structs.replace(find("durable-long"), faults=faults)
    found = (run(scenario, seed).broken for seed in range(seeds))
    return next((broken for broken in found if broken), None)


def test_forty_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("durable-long", 0, QUICK) if outcome.broken] == []


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_ten_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("durable-long", 0, 10_000, jobs=2) if outcome.broken] == []


# Those faults from which the seeds that once failed drew their plans.
FORMER = msgspec.structs.replace(
    LONG_FAULTS, kinds=tuple(each for each in LONG_FAULTS.kinds if each[0] != "old news"), brokers=None
)


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert run(msgspec.structs.replace(find("durable-long"), faults=FORMER), seed).broken is None


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
    found = first_broken(QUICK, FORMER)
    assert found is not None and found.invariant in (SESSIONS_LAST, GIVEN_UP, TAKEN)


def test_appends_that_are_repeated_without_a_look_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the log is trusted to remember the ids of an append for as long as it stays unanswered."""
    monkeypatch.setattr(CommitQueue, "doubted", None)
    found = first_broken(QUICK, FORMER)
    assert found is not None and found.invariant == ONCE_IN_THE_LOG


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_session_that_its_client_does_not_know_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a session counts as known when it is made, though its CONNACK may be lost."""
    encode = Service._on_cell.__globals__["encode_session"]

    def confirmed(session: StoredSession) -> bytes:
        return encode(msgspec.structs.replace(session, confirmed=True))  # type: ignore[no-any-return]

    monkeypatch.setitem(Service._on_cell.__globals__, "encode_session", confirmed)
    found = first_broken(1_000, FORMER)
    assert found is not None and found.invariant in (ONCE_IN_THE_LOG, SESSIONS_LAST, TAKEN)


# ── plain reads where fresh ones are needed ──────────────────────────────────────────────────────────────────


def test_old_news_breaks_nothing() -> None:
    assert first_broken(QUICK // 2, OLD_NEWS) is None


def test_a_client_that_is_given_up_because_of_old_news_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: what has become of a write is looked at with a plain read."""

    def plain(self: Custody, cause: str) -> Effect:
        return GetKey(request=CHECK, table=SESSIONS.name, key=self._key, cause=cause)

    monkeypatch.setattr(Custody, "_check", plain)
    found = first_broken(QUICK // 2, OLD_NEWS)
    assert found is not None and found.invariant == GIVEN_UP


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_an_append_that_is_repeated_because_of_old_news_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: what the log has already is looked for with a plain read. Of some hundred seeds one shows it."""
    monkeypatch.setattr(Broker, "looks_fresh", False)
    found = first_broken(200, OLD_NEWS)
    assert found is not None and found.invariant == ONCE_IN_THE_LOG
