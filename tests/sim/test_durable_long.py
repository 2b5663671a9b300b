"""Outages that outlast what the store remembers, sessions and ids; and what is lost or doubled without care."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from tests.sim.search import seeds_from
from tocsin.broker.connection.subscribe import ClientSubscriber
from tocsin.core.cells import CellWriter, Step
from tocsin.core.delivery import stored_session, taking
from tocsin.core.delivery.group_commit import CommitQueue
from tocsin.core.delivery.session_cell import SESSIONS, Outcome, SessionCell
from tocsin.core.delivery.stored_session import StoredSession, encode_session
from tocsin.core.machine import Effect, GetKey
from tocsin.ports import Page
from tocsin.sim.faults.kinds import Fault, OldNews, Partition, StoreClock, StoreTrouble
from tocsin.sim.process.store import SimulatedLog
from tocsin.sim.runs.runner import Broken, run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios.durable.population import BROKERS, PUBLISHERS, SUBSCRIBERS
from tocsin.sim.store import StoreWeather

QUICK = 10  # seeds

ONCE_IN_THE_LOG = "a message at QoS 2 is in the log once"
SESSIONS_LAST = "sessions last"
GIVEN_UP = "a client is given up only to another connection"
TAKEN = "subscribers get everything, in order, at QoS 2 once"
CRITICAL_FIRST = "critical messages come first"


SECOND = 1_000_000
CLIENTS = (*PUBLISHERS, *(name for name, _, _ in SUBSCRIBERS))
OFTEN = range(60, 540)  # seconds of a run
# Three answers in ten are lost, and the store's clock jumps beyond what the log remembers of ids.
FORGETFUL: list[Fault] = [
    StoreTrouble(at_us=60 * SECOND, for_us=480 * SECOND, weather=StoreWeather(mute_ppm=300_000)),
    *(StoreClock(at_us=at * SECOND, for_us=0, ahead_us=121 * SECOND) for at in OFTEN[::4]),
]
# The same with leaders of the store that stood still, and answer with old news when they go on.
OLD_NEWS: list[Fault] = [
    *FORGETFUL,
    *(OldNews(at_us=at * SECOND, for_us=2 * SECOND, nodes=BROKERS, old_us=11 * SECOND) for at in OFTEN[::14]),
]


# No client hears a broker for longer than connections last, and who is away meanwhile is away for too long.
DEAF: list[Fault] = []
for second in range(30, 840, 40):
    cut = Partition(at_us=second * SECOND, for_us=25 * SECOND, side=BROKERS, others=CLIENTS, direction="out")
    DEAF += (cut, StoreClock(at_us=second * SECOND, for_us=0, ahead_us=620 * SECOND))

# Two requests in three are refused or not answered, and who is away for a moment has no session any more: clients
# begin anew at brokers that are cut off for a moment, and stay there when all is well again.
BEGIN_ANEW: list[Fault] = [
    StoreTrouble(
        at_us=60 * SECOND,
        for_us=840 * SECOND,
        weather=StoreWeather(refuse_ppm=300_000, mute_ppm=490_000),
    ),
    *(StoreClock(at_us=at * SECOND, for_us=0, ahead_us=620 * SECOND) for at in range(60, 890, 20)),
]


def first_broken(seeds: int, plan: list[Fault] | None = None, *, shown_by: int = 0) -> Broken | None:
    """What the first seed breaks that breaks anything, of so many, from one on that is known to show it."""
    found = (run(find("durable-long"), seed, plan=plan).broken for seed in seeds_from(shown_by, seeds))
    return next((broken for broken in found if broken), None)


def test_old_bytes_of_a_client_that_has_gone_bring_no_session_back() -> None:
    """A broker sleeps for longer than the session lasts, wakes, and reads what the client sent before it went."""
    assert run(find("durable-long"), 333).broken is None


def test_a_session_is_left_for_the_next_connection_that_waits_for_it() -> None:
    """The store takes five seconds for an answer, the session lasts four, and its client gives up and comes again."""
    assert run(find("durable-long"), 107_546).broken is None


def test_ten_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("durable-long", 0, QUICK) if outcome.broken] == []


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


def test_sessions_that_expire_while_their_clients_are_connected_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: a served session is kept for its expiry and half a minute, and a missing cell is somebody else's."""
    monkeypatch.setattr(stored_session, "SERVED_S", 30)
    take = SessionCell._take

    def lost(self: SessionCell, step: Step, now_us: int) -> tuple[Outcome, list[Effect]]:
        return ("lost", []) if step.kind == "missing" else take(self, step, now_us)

    monkeypatch.setattr(SessionCell, "_take", lost)
    found = first_broken(QUICK)
    assert found is not None and found.invariant in (SESSIONS_LAST, GIVEN_UP, TAKEN)


def test_appends_that_are_repeated_without_a_look_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the log is trusted to remember the ids of an append for as long as it stays unanswered."""
    monkeypatch.setattr(CommitQueue, "doubted", None)
    found = first_broken(QUICK, plan=FORGETFUL)
    assert found is not None and found.invariant == ONCE_IN_THE_LOG


def test_a_session_that_its_client_does_not_know_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a session counts as known when it is made, though its CONNACK may be lost."""

    def confirmed(session: StoredSession) -> bytes:
        return encode_session(msgspec.structs.replace(session, confirmed=True))

    monkeypatch.setattr(taking, "encode_session", confirmed)
    found = first_broken(QUICK, plan=DEAF, shown_by=7)
    assert found is not None and found.invariant in (ONCE_IN_THE_LOG, SESSIONS_LAST, TAKEN)


def test_provisional_subscriptions_are_stored_when_the_store_returns() -> None:
    assert first_broken(3, plan=BEGIN_ANEW) is None


def test_a_subscription_for_now_that_is_not_stored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: what waits to be stored when a broker is cut off is answered, and then forgotten."""
    release_waits = ClientSubscriber.release_waits

    def forget(self: ClientSubscriber) -> None:
        delivery, tail = self._client.delivery, self._durable.message_log.tail
        new = [name for name, subscription in delivery.subscriptions.items() if subscription.since == tail]
        for name in new if self._unsure else ():
            delivery.unsubscribed(name)
        release_waits(self)

    monkeypatch.setattr(ClientSubscriber, "release_waits", forget)
    found = first_broken(41, plan=BEGIN_ANEW, shown_by=40)
    # A client without its subscription misses a message; if that is a critical one, its place is noticed first.
    assert found is not None and found.invariant in (TAKEN, CRITICAL_FIRST)


# ── plain reads where fresh ones are needed ──────────────────────────────────────────────────────────────────


def test_what_the_plans_do_breaks_nothing() -> None:
    assert first_broken(1, plan=FORGETFUL) is None
    assert first_broken(1, plan=OLD_NEWS) is None
    assert first_broken(1, plan=DEAF) is None


def test_a_client_that_is_given_up_because_of_old_news_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: what has become of a write is looked at with a plain read."""
    ask = CellWriter._ask

    def plain(self: CellWriter, what: Literal["put", "delete", "read"]) -> Effect:
        asked = ask(self, what)
        is_check = isinstance(asked, GetKey) and asked.table == SESSIONS
        return msgspec.structs.replace(asked, fresh=False) if is_check else asked

    monkeypatch.setattr(CellWriter, "_ask", plain)
    found = first_broken(QUICK, plan=OLD_NEWS)
    assert found is not None and found.invariant == GIVEN_UP


def test_an_append_that_is_repeated_because_of_old_news_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: what the log has already is looked for with a plain read."""
    read = SimulatedLog.read

    async def plain(self: SimulatedLog, subject: str, start: int, **options: Any) -> Page:
        return await read(self, subject, start, **{**options, "fresh": False})

    monkeypatch.setattr(SimulatedLog, "read", plain)
    found = first_broken(QUICK, plan=OLD_NEWS)
    assert found is not None and found.invariant == ONCE_IN_THE_LOG
