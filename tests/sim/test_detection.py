"""Suspicion may be wrong, and what follows from it never; who is gone is missed soon; slow observers accuse nobody."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from tests.sim.search import seeds_from
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.leader.broker_watch import Attention
from tocsin.core.coordination.leader.leader import Leader
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.coordination.participant.heartbeat import Heartbeat
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.machine import Effect
from tocsin.core.survival.detection import Detector, Hints
from tocsin.model.network import BrokerInfo, Message
from tocsin.sim.faults.kinds import BadWeather, Crash, Fault, Partition, Pause, StoreTrouble, unleash
from tocsin.sim.network import Weather
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios import detection
from tocsin.sim.scenarios.coordination import COORDINATORS, PLACES
from tocsin.sim.store import StoreWeather
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Lost, decode_batch
from tocsin.wire.internal.control import Links

SECOND = 1_000_000
SEEDS = 200  # within which each planted bug has to be found


def losses(plan: list[Fault], seed: int = 0, until_us: int = 25 * SECOND) -> list[tuple[int, str]]:
    """Who is lost, and when, in a world in which just this happens."""
    world, found = World(seed), list[tuple[int, str]]()
    world.check(*detection.build(world))
    world.observers.on_entry(
        PLACES.commands.name,
        lambda entry: found.extend(
            (world.now_us, command.broker)
            for command in (
                decode_batch(entry.payload).commands if entry.subject == PLACES.commands_subject else ()
            )
            if isinstance(command, Lost)
        ),
    )
    unleash(world, plan)
    world.run_until(until_us)
    return found


def test_sixty_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("detection", 0, 60) if outcome.broken] == []


# Seeds that broke something, and what they found.
FOUND: dict[int, str] = {
    902: "a coordinator that had recorded a snapshot, and got no answer, removed its pieces: nobody led ever after",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_broke_something_breaks_nothing(seed: int) -> None:
    assert run(find("detection"), seed).broken is None


def test_a_broker_that_is_gone_is_missed_by_its_links() -> None:
    for seed in range(20):
        crash = Crash(at_us=10 * SECOND, for_us=10 * SECOND, node="broker/south-1")
        ((at_us, broker),) = losses([crash], seed)
        assert broker == "south-1" and at_us - crash.at_us < 3 * SECOND // 10


def test_a_broker_that_is_cut_off_is_missed_by_its_silence() -> None:
    for seed in range(20):
        cut = Partition(at_us=10 * SECOND, for_us=10 * SECOND, side=("broker/south-1",))
        found = losses([cut], seed)
        assert [broker for _, broker in found] == ["south-1"]
        assert found[0][0] - cut.at_us < SECOND


def test_two_that_go_together_are_missed_as_soon_as_one() -> None:
    for seed in range(20):
        plan = [
            Crash(at_us=10 * SECOND, for_us=10 * SECOND, node=f"broker/north-{number}") for number in (1, 2)
        ]
        found = losses([*plan], seed)
        assert sorted(broker for _, broker in found) == ["north-1", "north-2"]
        assert max(at_us for at_us, _ in found) < 11 * SECOND


def test_without_a_fault_nobody_is_ever_lost() -> None:
    assert losses([], until_us=600 * SECOND) == []


@pytest.mark.parametrize("for_us", [SECOND // 2, SECOND, 3 * SECOND])
def test_a_slow_observer_accuses_nobody(for_us: int) -> None:
    for seed in range(5):
        plan: list[Fault] = [
            Pause(at_us=at * SECOND, for_us=for_us, node=node)
            for at in range(3, 24, 4)
            for node in COORDINATORS
        ]
        assert losses(plan, seed) == []


def test_a_slow_store_accuses_nobody() -> None:
    for seed in range(5):
        slow = StoreWeather(slow_us=2 * SECOND)
        assert losses([StoreTrouble(at_us=3 * SECOND, for_us=20 * SECOND, weather=slow)], seed) == []


def test_a_network_that_loses_a_twentieth_makes_few_suspects() -> None:
    lossy = BadWeather(at_us=10 * SECOND, for_us=600 * SECOND, weather=Weather(loss_ppm=50_000))
    assert len(losses([lossy], until_us=600 * SECOND)) <= 2, "while that is news"


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────


class SelfAssured(Detector):
    """Bug: the observer never doubts itself, and holds against brokers that it did not listen."""

    def patience_us(self, broker: str, *, crowd: bool = False) -> int:
        self.doubt = 0
        return super().patience_us(broker)

    def _wake(self, now_us: int) -> None:
        pass


class SelfAssuredCoordinator(Coordinator):
    class leading(Leader):
        class attending(Attention):
            detecting = SelfAssured


class Unaware(Heartbeat):
    """Bug: who is not heard does not mind."""

    def _orphan(self, *, told: bool) -> list[Effect]:
        return []


class UnawareParticipant(Participant):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._heartbeat = Unaware(self._info, detection.HEARTBEAT_US, detection.MOST_US, detection.MOST_US)


def self_assured(name: str, places: StoreNames, _options: Options) -> Coordinator:
    return SelfAssuredCoordinator(name, places, detection.OPTIONS)


class Hasty(Leader):
    """Bug: a closed link alone condemns."""

    def hear(self, message: Message, now_us: int) -> list[Effect]:
        for peer in message.closed if isinstance(message, Links) else ():
            if peer in self.state.members:
                self.attention.detector.look((peer,), now_us + detection.MOST_US)
                self._waiting.append(Lost(peer, self.state.members[peer].incarnation))
        return [*super().hear(message, now_us), *self.pump(now_us)]


class HastyCoordinator(Coordinator):
    leading = Hasty


class Trusting(Hints):
    """Bug: what the bus says is enough, if anybody says anything."""

    def _enough(self, fresh: dict[str, int]) -> bool:
        return True


class TrustingCoordinator(Coordinator):
    class leading(Leader):
        class attending(Attention):
            class detecting(Detector):
                weighing = Trusting


def hasty(name: str, places: StoreNames, _options: Options) -> Coordinator:
    return HastyCoordinator(name, places, detection.OPTIONS)


def trusting(name: str, places: StoreNames, _options: Options) -> Coordinator:
    return TrustingCoordinator(name, places, detection.OPTIONS)


# What ails observers alone: they are deaf to everybody.
DEAF = Partition(at_us=5 * SECOND, for_us=10 * SECOND, side=COORDINATORS, direction="in")


def test_a_cut_off_observer_is_no_reason_to_lose_a_broker() -> None:
    """One that does not doubt itself then is found out; one that does accuses nobody."""
    assured = msgspec.structs.replace(
        find("detection"), build=partial(detection.build, coordinator=self_assured)
    )
    for seed in range(5):
        found = run(assured, seed, plan=[DEAF]).broken
        assert found is not None and found.invariant == "nobody is lost without a reason"
        assert run(find("detection"), seed, plan=[DEAF]).broken is None


def unaware(info: BrokerInfo, places: StoreNames, _heartbeat_us: int) -> Participant:
    return UnawareParticipant(info, places, detection.HEARTBEAT_US, detection.MOST_US)


@pytest.mark.parametrize(
    ("role", "make", "invariant", "shown_by"),
    [
        ("coordinator", self_assured, "nobody is lost without a reason", 0),
        ("coordinator", hasty, "nobody is lost without a reason", 0),
        ("coordinator", trusting, "nobody is lost without a reason", 0),
        ("participant", unaware, "a broker that is lost knows it", 0),
    ],
)
def test_a_planted_bug_is_found(role: str, make: Any, invariant: str, shown_by: int) -> None:
    scenario = msgspec.structs.replace(find("detection"), build=partial(detection.build, **{role: make}))
    seeds = seeds_from(shown_by, SEEDS)
    found = next((broken for seed in seeds if (broken := run(scenario, seed).broken)), None)
    assert found is not None and found.invariant == invariant, found
