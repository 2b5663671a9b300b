"""Durable messages keep their promises, whatever the seeds invent; and without any one precaution they do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from tests.sim.plans import crashes_in_turn, freezes_and_late_writes
from tocsin.core.attendance import Attendance, Began
from tocsin.core.catching_up import CatchingUp
from tocsin.core.custody import Custody
from tocsin.core.delivery import MESSAGES, Delivery, Progress
from tocsin.core.machine import Effect, Event
from tocsin.core.stored_session import StoredSession
from tocsin.model.publication import Publication
from tocsin.sim.runner import run, run_many
from tocsin.sim.scenario import Scenario, find
from tocsin.sim.scenarios import durable
from tocsin.sim.scenarios.durable.broker import Broker
from tocsin.sim.scenarios.durable.service import RECEIVE_MAX, Service
from tocsin.sim.scenarios.durable.wire import Packet, Subscribe

SEEDS = 1_000
# 252: what a client repeats is mixed with its releases, which changed the record ids of the repeats to come.
# 452: the repeat of what matches no more, because its client subscribed anew, was never settled.
# (Both in a scenario in which nothing was critical.)
ONCE_FAILED = (252, 452)

ONCE_IN_THE_LOG = "a message at QoS 2 is in the log once"
ACKNOWLEDGED = "what is acknowledged is in the log"
TAKEN = "subscribers get everything, in order, at QoS 2 once"
CRITICAL_FIRST = "critical messages come first"
SETTLED = "everything is settled in the end"


def test_three_hundred_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("durable", 0, 300) if outcome.broken] == []


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_ten_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("durable", 0, 10_000, jobs=2) if outcome.broken] == []


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert run(find("durable"), seed).broken is None


def test_brokers_crash_in_turn_between_any_two_effects() -> None:
    for seed in range(20):
        assert run(find("durable"), seed, plan=crashes_in_turn(seed, brokers=2)).broken is None


def test_writes_are_applied_late_while_brokers_freeze_and_clients_move() -> None:
    for seed in range(20):
        assert run(find("durable"), seed, plan=freezes_and_late_writes(second_s=4)).broken is None


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


class AcknowledgesEarly(Service):
    """Bug: a message is acknowledged when its append is asked for."""

    def commit(self, publication: Publication, packet_id: int, record_id: str) -> None:
        self._broker.commit(publication, record_id, lambda: None)
        self._on_committed(packet_id)


class AppendsBeforeTheIdIsStored(Service):
    """Bug: a message at QoS 2 goes into the log under an id that nobody knows after a crash."""

    def commit_once(self, publication: Publication, packet_id: int, record_id: str) -> None:
        self.commit(publication, packet_id, record_id)


class ForgetsUnknownReleases(Service):
    """Bug: PUBREL of an id that is not known to be in the log is answered, but the id's record stays stored."""

    def release(self, packet_id: int, known: bool, released: Callable[[], None]) -> None:
        if known:
            super().release(packet_id, known, released)
        else:
            released()


class CompletesEarly(Service):
    """Bug: PUBCOMP goes out before it is stored that the packet id is free."""

    def release(self, packet_id: int, known: bool, released: Callable[[], None]) -> None:
        super().release(packet_id, known, lambda: None)
        released()


class TrustsEveryId(Service):
    """Bug: a message whose id is stored is taken for one that is in the log."""

    class attendance(Attendance):
        @property
        def inbound_ids(self) -> tuple[int, ...]:
            return tuple(self._record_ids.inbound)


class ReleasesEarly(Service):
    """Bug: PUBREL does not wait for the write that has the PUBREC."""

    class attendance(Attendance):
        def handle(self, event: Event, now_us: int) -> list[Effect]:
            effects = super().handle(event, now_us)
            for each in self.messages.deliveries:
                each._durable = False
            return effects


class SettlesAtSending(Service):
    """Bug: what was sent counts as settled."""

    class attendance(Attendance):
        def _current(self, custody: Custody) -> StoredSession:
            current = super()._current(custody)
            progress = Progress(current.progress.next, (), current.progress.releasing)
            return msgspec.structs.replace(current, progress=progress)


class CountingDelivery(Delivery):
    count = 0

    def offer(self, position: int, qos: int) -> int:
        identifier = super().offer(position, qos)
        if identifier <= 0:
            return identifier
        self.count += 1
        self._window[self.count] = self._window.pop(identifier)
        return self.count


class CountsPacketIds(Service):
    """Bug: packet ids come from a counter in memory."""

    class attendance(Attendance):
        def handle(self, event: Event, now_us: int) -> list[Effect]:
            effects = super().handle(event, now_us)
            if isinstance(event, Began) and event.session is not None:
                others = self.messages.others
                assert others is not None
                counting = CountingDelivery(event.session.progress, receive_max=RECEIVE_MAX, durable=True)
                counting.live, counting.first = others.delivery.live, others.delivery.first
                reading = others.catching_up.reading
                self.messages.delivery = others.delivery = counting
                others.catching_up = CatchingUp(counting)
                others.catching_up.reading = reading
                self.messages.link()
            return effects


class SubscribesAnew(Service):
    """Bug: a client that subscribes again, as most do when they come back, loses what it has not got yet."""

    def on_packet(self, packet: Packet) -> None:
        if isinstance(packet, Subscribe):
            self.machine.subscriptions.pop(packet.topic_filter, None)
        super().on_packet(packet)


class ForgetsHowFarCriticalOnesAre(Service):
    """Bug: the session is stored with one position, as if critical messages were among the others."""

    class attendance(Attendance):
        def _current(self, custody: Custody) -> StoredSession:
            return msgspec.structs.replace(super()._current(custody), critical_messages=None)


class SettlesCriticalOnesWithTheOthers(Service):
    """Bug: critical messages count as settled up to where the others are."""

    class attendance(Attendance):
        def _current(self, custody: Custody) -> StoredSession:
            current = super()._current(custody)
            return msgspec.structs.replace(current, critical_messages=Progress(current.progress.next))


class KnowsOfNoCriticalOnes(Service):
    """Bug: who was away is not looked for among the critical messages of that time."""

    @property
    def critical_tail(self) -> int:
        return 0


class ReadsBothAtOnce(Service):
    """Bug: who is behind with critical messages gets others meanwhile."""

    class attendance(Attendance):
        def handle(self, event: Event, now_us: int) -> list[Effect]:
            for each in self.messages.deliveries:
                each.first = None
            return super().handle(event, now_us)


class UsesTheSamePacketIds(Service):
    """Bug: critical messages have the packet ids of the others."""

    class attendance(Attendance):
        def handle(self, event: Event, now_us: int) -> list[Effect]:
            if self.messages.critical is not None:
                self.messages.critical.delivery._ids = MESSAGES
            return super().handle(event, now_us)


# What is lost may be missed first as a critical message that others overtook.
PLANTED: dict[type[Service], tuple[str, ...]] = {
    AcknowledgesEarly: (ACKNOWLEDGED,),
    AppendsBeforeTheIdIsStored: (ONCE_IN_THE_LOG,),
    CompletesEarly: (ACKNOWLEDGED, SETTLED),
    CountsPacketIds: (TAKEN,),
    ForgetsHowFarCriticalOnesAre: (TAKEN,),
    ForgetsUnknownReleases: (ACKNOWLEDGED, SETTLED),
    KnowsOfNoCriticalOnes: (CRITICAL_FIRST, TAKEN),
    ReadsBothAtOnce: (CRITICAL_FIRST,),
    ReleasesEarly: (TAKEN,),
    SettlesAtSending: (TAKEN,),
    SettlesCriticalOnesWithTheOthers: (TAKEN,),
    SubscribesAnew: (CRITICAL_FIRST, TAKEN),
    TrustsEveryId: (ACKNOWLEDGED,),
    UsesTheSamePacketIds: (TAKEN,),
}


def with_bug(bug: type[Service]) -> Scenario:
    class BuggyBroker(Broker):
        service = bug

    return msgspec.structs.replace(find("durable"), build=partial(durable.build, broker=BuggyBroker))


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: type[Service]) -> None:
    scenario = with_bug(bug)
    found = next((broken for seed in range(SEEDS) if (broken := run(scenario, seed).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find {bug.__name__}"
    assert found.invariant in PLANTED[bug]
