"""Three coordinators and their brokers keep what they promise, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, ClassVar

import msgspec
import pytest

from tests.sim.search import seeds_from
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.leader.election import Election
from tocsin.core.coordination.leader.leader import Leader
from tocsin.core.coordination.leader.snapshot_writer import Archivist
from tocsin.core.coordination.participant.network_view import Inbox
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import ChangesKnown, ClientsChanged, StandDown
from tocsin.core.coordination.participant.submission import Outgoing
from tocsin.core.coordination.state.backups import Backups, Survival
from tocsin.core.coordination.state.state import Outcome, State
from tocsin.core.machine import Effect, Event, Received, Table
from tocsin.model.network import BrokerInfo
from tocsin.ports import Entry
from tocsin.sim.faults.kinds import Crash, Fault, LeaderLoss, Pause, StoreTrouble
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import Scenario, find
from tocsin.sim.scenarios import coordination
from tocsin.sim.store import StoreWeather
from tocsin.wire.internal.commands import BrokerCommand, decode_batch
from tocsin.wire.internal.control import Submit, Unknown
from tocsin.wire.internal.notices import Notice

SECOND = 1_000_000
# A snapshot was read under the name of its successor; chance made an incarnation 0, which meant none.
ONCE_FAILED = (126, 10_957)
SEEDS = 400  # within which each planted bug has to be found

HISTORY = "the log is one history"
SETTLED = "what is acknowledged is in the log"
AGREEMENT = "everybody agrees in the end"
ARRIVAL = "no message is lost while a stream joins"
RAISED = "machines do not raise"
TURNS = "joined and left take turns"
STANDING = "one stands in for another, and all know who"


def test_sixty_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("coordination", 0, 60) if outcome.broken] == []


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert run(find("coordination"), seed).broken is None


def test_where_nothing_fails_no_message_is_lost_while_a_stream_joins() -> None:
    scenario = find("coordination")
    for seed in range(20):
        assert run(scenario, seed, plan=[]).broken is None


def test_leaders_are_frozen_past_their_leases_again_and_again() -> None:
    plan = [
        Pause(at_us=at * SECOND, for_us=3 * SECOND, node=f"coordinator/{1 + at // 2 % 3}")
        for at in range(1, 25, 2)
    ]
    for seed in range(10):
        assert run(find("coordination"), seed, plan=[*plan]).broken is None


def test_appends_are_applied_late_while_leaders_come_and_go() -> None:
    slow = StoreWeather(slow_us=8 * SECOND)
    plan = [
        StoreTrouble(at_us=3 * SECOND, for_us=12 * SECOND, weather=slow),
        LeaderLoss(at_us=8 * SECOND, for_us=SECOND),
        *(
            Crash(at_us=at * SECOND, for_us=SECOND, node=f"coordinator/{1 + at % 3}", after_effects=1)
            for at in range(5, 20, 3)
        ),
    ]
    for seed in range(10):
        assert run(find("coordination"), seed, plan=[*plan]).broken is None


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────


class Unfenced(Coordinator):
    """Bug: the lease is trusted, and appends do not say which position they expect."""

    class leading(Leader):
        def _expected(self) -> int | None:
            return None

    class electing(Election):
        def _expected(self) -> int | None:
            return None


class KeepsItsState(Coordinator):
    """Bug: who stops leading goes on with a state that may be ahead of the log."""

    def _restore(self) -> list[Effect]:
        if self.state != "leading":
            return super()._restore()
        self.leader = None
        return self._restored(self.replica, self.position)


class Repeats(Coordinator):
    """Bug: nobody looks whether a command was applied before."""

    class leading(Leader):
        def _submitted(self, message: Submit, now_us: int) -> list[Effect]:
            self.first = message.first
            return super()._submitted(message, now_us)

        def _next(self, broker: str, incarnation: int) -> int | None:
            expected = super()._next(broker, incarnation)
            return expected if expected is None else max(min(expected, 2), min(expected, self.first))

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.replica = Unwary()

    def _restored(self, replica: State, position: int) -> list[Effect]:
        replica.__class__ = Unwary
        return super()._restored(replica, position)


class Unwary(State):
    def _is_next(self, broker: str, incarnation: int, number: int, command: BrokerCommand) -> bool:
        member = self.members.get(broker)
        if member is not None and member.incarnation == incarnation and 1 < number <= member.applied:
            return True
        return super()._is_next(broker, incarnation, number, command)

    def _apply_said(
        self, outcome: Outcome, broker: str, incarnation: int, number: int, command: BrokerCommand
    ) -> None:
        before = self.members.get(broker)
        applied = before.applied if before is not None and before.incarnation == incarnation else 0
        super()._apply_said(outcome, broker, incarnation, number, command)
        if broker in self.members:
            self.members[broker].applied = max(applied, number)


class OverlooksGaps(Coordinator):
    """Bug: a replica that missed some batches goes on with the next."""

    def _apply(self, entry: Entry) -> list[Effect]:
        if entry.position > self.position:
            self.position = decode_batch(entry.payload).previous
        return super()._apply(entry)


class TrimsUnrecorded(Coordinator):
    """Bug: the log forgets what a snapshot covers that nobody can find."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._archivist.__class__ = SkipsTheManifest


class SkipsTheManifest(Archivist):
    def _ask(self) -> list[Effect]:
        if self._step == "recording":
            self._step = "trimming commands"
        return super()._ask()


class ForgetsFilters(Coordinator):
    """Bug: snapshots lack the filters of brokers."""

    def _restored(self, replica: State, position: int) -> list[Effect]:
        for broker, member in replica.members.items():
            replica.interest.release(broker, member.filters)
            member.filters.clear()
        replica.interest.settle()
        return super()._restored(replica, position)


class ForgetsPlaces(Coordinator):
    """Bug: snapshots lack who stands in for whom."""

    def _restored(self, replica: State, position: int) -> list[Effect]:
        replica.survival.vacancies.clear()
        return super()._restored(replica, position)


class OneEpoch(Coordinator):
    """Bug: who stands in for a broker has the epoch of who did before."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.replica.survival.__class__ = NeverGrows

    def _restored(self, replica: State, position: int) -> list[Effect]:
        replica.survival.__class__ = NeverGrows
        return super()._restored(replica, position)


class NeverGrows(Survival):
    def _take(self, info: BrokerInfo, members: Collection[str]) -> None:
        self.epoch = 0
        super()._take(info, members)


class TakesTheAbsent(Coordinator):
    """Bug: the local backup stands in, also if it is gone itself."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.replica.survival.__class__ = LooksAtThePlanOnly

    def _restored(self, replica: State, position: int) -> list[Effect]:
        replica.survival.__class__ = LooksAtThePlanOnly
        return super()._restored(replica, position)


class LooksAtThePlanOnly(Survival):
    def _take(self, info: BrokerInfo, members: Collection[str]) -> None:
        super()._take(info, {*members, self.plan.get(info.id, Backups()).local or ""})


class StandsOn(Participant):
    """Bug: a broker goes on standing in for one that is back."""

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        return [each for each in super().handle(event, now_us) if not isinstance(each, StandDown)]


class Credulous(Participant):
    """Bug: notices are applied whether or not some are missing between."""

    class receiving(Inbox):
        def _follows_on(self, notice: Notice) -> bool:
            return True


class Stubborn(Participant):
    """Bug: a broker that was counted as lost does not join again."""

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        return [] if isinstance(event.message, Unknown) else super()._on_message(event, now_us)

    table: ClassVar[Table] = {
        **Participant.table,
        ("*", Received): _on_message,
    }


class Forgetful(Participant):
    """Bug: what was not acknowledged is not said again after joining anew."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._submission._outgoing.__class__ = DropsThePending


class DropsThePending(Outgoing):
    def begin(self, incarnation: int, commands: Iterable[BrokerCommand]) -> None:
        self._pending.clear()
        super().begin(incarnation, commands)


class Hasty(Participant):
    """Bug: messages do not wait until those whom they are for know of their stream."""

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        effects = super().handle(event, now_us)
        if isinstance(event, ClientsChanged):
            effects.append(ChangesKnown(ticket=event.ticket))
        return effects


PLANTED: dict[type[Coordinator] | type[Participant], tuple[str, ...]] = {
    Unfenced: (HISTORY,),
    KeepsItsState: (SETTLED, AGREEMENT),
    Repeats: (AGREEMENT,),
    OverlooksGaps: (AGREEMENT, RAISED, HISTORY),
    TrimsUnrecorded: (AGREEMENT,),
    ForgetsFilters: (AGREEMENT,),
    ForgetsPlaces: (STANDING,),
    OneEpoch: (STANDING,),
    TakesTheAbsent: (STANDING,),
    StandsOn: (STANDING,),
    Credulous: (AGREEMENT, TURNS, STANDING),
    Stubborn: (AGREEMENT, STANDING),
    Forgetful: (SETTLED, AGREEMENT, STANDING),
    Hasty: (ARRIVAL,),
}


# Seeds that show bugs which the first ones do not.
SHOWN_BY: dict[type[Coordinator] | type[Participant], int] = {
    Unfenced: 32,
    Repeats: 28,
    OverlooksGaps: 32,
    ForgetsPlaces: 174,
    OneEpoch: 25,
    Credulous: 19,
}


def with_bug(bug: type[Coordinator] | type[Participant]) -> Scenario:
    role = "coordinator" if issubclass(bug, Coordinator) else "participant"
    return msgspec.structs.replace(
        find("coordination"),
        build=partial(coordination.build, **{role: bug}),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: type[Coordinator] | type[Participant]) -> None:
    scenario = with_bug(bug)
    plan: list[Fault] | None = (
        [] if bug is Hasty else None
    )  # what is lost without a fault, only runs without faults can show
    seeds = seeds_from(SHOWN_BY.get(bug, 0), SEEDS)
    found = next((broken for seed in seeds if (broken := run(scenario, seed, plan=plan).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find {bug.__name__}"
    assert found.invariant in PLANTED[bug], found
