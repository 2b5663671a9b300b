"""Channels keep their promises, whatever the seeds invent; and without any one precaution they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.sim.plans import crashes_in_turn, freezes_and_late_writes
from tocsin.core.attendance import Attendance
from tocsin.core.custody import Custody
from tocsin.core.delivery import Progress
from tocsin.core.holdings import CellFound, Holdings, Looked, Scanned
from tocsin.core.machine import Effect, Event, Say
from tocsin.core.stored_session import StoredSession
from tocsin.model.results import SUBSCRIPTIONS
from tocsin.sim.invariants import Invariant
from tocsin.sim.runner import run, run_many
from tocsin.sim.scenario import Scenario, find
from tocsin.sim.scenarios import channels
from tocsin.sim.scenarios.channels.broker import ChannelBroker, Keeper
from tocsin.sim.scenarios.channels.service import ChannelService
from tocsin.sim.world import World

SEEDS = 1_000
ARRIVE = "subscribers get every result, in order, and none that they do not want"
HELD = "what is subscribed to is held"
TIDY = "in the end what is held is what is wanted, and everything is settled"


def test_a_hundred_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("channels", 0, 100) if outcome.broken] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_five_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("channels", 0, 5_000, jobs=2) if outcome.broken] == []


def test_a_run_has_results_moves_and_changes_of_mind() -> None:
    """Else the promises would promise nothing."""
    said: Counter[str] = Counter()
    brokers: set[str] = set()

    class Counting(Invariant):
        name = "it counts"

        def attach(self, world: World) -> None:
            for text in ("took", "subscribed", "unsubscribed"):
                world.observers.on_say(text, self._count)
            world.observers.on_change(SUBSCRIPTIONS, lambda change: brokers.add(change.key.split(".")[-1]))

        def _count(self, who: str, say: Say) -> None:
            said[say.text] += 1

    scenario = find("channels")
    counting = msgspec.structs.replace(scenario, build=lambda world: [*channels.build(world), Counting()])
    for seed in range(3):
        assert run(counting, seed).broken is None
    assert said["took"] > 200 and said["subscribed"] > 15 and said["unsubscribed"] > 5
    assert brokers == set(channels.BROKERS)


def test_brokers_crash_in_turn_between_any_two_effects() -> None:
    for seed in range(10):
        assert run(find("channels"), seed, plan=crashes_in_turn(seed, brokers=3)).broken is None


def test_writes_are_applied_late_while_brokers_freeze_and_clients_move() -> None:
    for seed in range(10):
        assert run(find("channels"), seed, plan=freezes_and_late_writes(second_s=4)).broken is None


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


class AcknowledgesEarly(ChannelBroker):
    """Bug: SUBACK does not wait until the backend subscription is stored."""

    class service(ChannelService):
        def hold(self, name: str, then: Callable[[], None]) -> None:
            super().hold(name, lambda: None)
            then()


class LetsGoOfWhoIsAway(ChannelBroker):
    """Bug: what a session holds is given up when its connection ends."""

    class service(ChannelService):
        def leave(self) -> None:
            if self._taking is not None:
                self._broker.keeping.leave(self._taking.uid, 0)


class TakesBeforeItHolds(ChannelBroker):
    """Bug: a session is taken, and its old home lets go, before the new one holds what it is subscribed to."""

    class keeper(Keeper):
        class holdings(Holdings):
            def handle(self, event: Event, now_us: int) -> list[Effect]:
                if isinstance(event, Looked):
                    event = msgspec.structs.replace(event, ready=True)
                return super().handle(event, now_us)

    class service(ChannelService):
        def prepare(self, before: StoredSession, names: tuple[str, ...], go: Callable[[], None]) -> None:
            super().prepare(before, names, lambda: None)
            go()


class DeletesBeforeTheScan(ChannelBroker):
    """Bug: after a start, cells are given up before the sessions were looked through."""

    class keeper(Keeper):
        class holdings(Holdings):
            def handle(self, event: Event, now_us: int) -> list[Effect]:
                effects = super().handle(event, now_us)
                if isinstance(event, CellFound):
                    effects += self._cells.scanned(event.cause)
                return effects


class ForgetsTheSessionsOfAScan(ChannelBroker):
    """Bug: a scan looks at cells only."""

    class keeper(Keeper):
        def _on_session(self, session: StoredSession) -> None:
            pass


class TellsNobody(ChannelBroker):
    """Bug: the old home is not told, and does not look for itself either."""

    class keeper(Keeper):
        class holdings(Holdings):
            def handle(self, event: Event, now_us: int) -> list[Effect]:
                if isinstance(event, Scanned):
                    for session in self._sessions.values():
                        session.touched = True
                return super().handle(event, now_us)

    class service(ChannelService):
        def moved(self, before: StoredSession) -> None:
            pass


class ReadsItsOwnFilesOnly(ChannelBroker):
    """Bug: of a tick that did not know what is held here, the others' files are not read."""

    def unseen(self, seen: int) -> set[str]:
        return set()


class BeginsInTheMiddle(ChannelBroker):
    """Bug: a client that begins while a notice is dispatched counts as live from there."""

    class service(ChannelService):
        def begin_at(self) -> int:
            return self._broker.results_done


class SettlesAtSending(ChannelBroker):
    """Bug: results that were sent count as settled."""

    class service(ChannelService):
        class attendance(Attendance):
            def _current(self, custody: Custody) -> StoredSession:
                current = super()._current(custody)
                if current.results is None:
                    return current
                return msgspec.structs.replace(current, results=Progress(current.results.next))


class TreatsAllAlike(ChannelBroker):
    """Bug: others do not wait until the client has the critical results."""

    class service(ChannelService):
        class attendance(Attendance):
            def _follow_results(self, *arguments: Any) -> list[Effect]:
                effects = super()._follow_results(*arguments)
                assert self.results.others is not None
                self.results.others.delivery.first = None
                return effects


class StoresOneProgress(ChannelBroker):
    """Bug: how far a client is with critical results is not stored, but taken to be as far as it is with others."""

    class service(ChannelService):
        class attendance(Attendance):
            def _current(self, custody: Custody) -> StoredSession:
                return msgspec.structs.replace(super()._current(custody), critical=None)


class KeepsWhatIsUnsubscribed(ChannelBroker):
    """Bug: an unsubscribed channel stays held."""

    class service(ChannelService):
        def release_channel(self, name: str) -> None:
            pass


PLANTED: dict[type[ChannelBroker], str] = {
    AcknowledgesEarly: HELD,
    BeginsInTheMiddle: ARRIVE,
    DeletesBeforeTheScan: HELD,
    ForgetsTheSessionsOfAScan: HELD,
    KeepsWhatIsUnsubscribed: TIDY,
    LetsGoOfWhoIsAway: HELD,
    ReadsItsOwnFilesOnly: ARRIVE,
    SettlesAtSending: ARRIVE,
    StoresOneProgress: ARRIVE,
    TakesBeforeItHolds: HELD,
    TellsNobody: TIDY,
    TreatsAllAlike: ARRIVE,
}


def with_bug(bug: type[ChannelBroker]) -> Scenario:
    return msgspec.structs.replace(find("channels"), build=partial(channels.build, broker=bug))


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: type[ChannelBroker]) -> None:
    scenario = with_bug(bug)
    found = next((broken for seed in range(SEEDS) if (broken := run(scenario, seed).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find {bug.__name__}"
    assert found.invariant == PLANTED[bug]
