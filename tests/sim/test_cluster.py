"""Clusters that are cut off keep what they promise, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any, ClassVar

import msgspec
import pytest

from tocsin.core.landmark import Landmark, MeanwhileOut, Restored, WantsChanged
from tocsin.core.machine import Effect, Event, Handler
from tocsin.core.provisional import Record
from tocsin.core.stored_session import StoredSession
from tocsin.model.network import BrokerInfo
from tocsin.sim.faults import Crash, Fault, Partition, Pause
from tocsin.sim.invariants import Invariant
from tocsin.sim.runner import run, run_many
from tocsin.sim.scenario import Scenario, find
from tocsin.sim.scenarios import cluster
from tocsin.sim.scenarios.cluster.broker import ClusterBroker
from tocsin.sim.scenarios.cluster.promises import OneOwner, Standing
from tocsin.sim.world import World
from tocsin.wire.words import Word

SECOND = 1_000_000
SEEDS = 30  # within which each planted bug has to be found
SEEDS_THAT_BROKE = (70_016, 70_054)  # one was told routes after a restart, and kept them for ever
NORTH = cluster.ADDRESSES[0]
RECOVERY = Standing.name
OWNER = OneOwner.name


def cut_and_kill(gone: str = NORTH[0]) -> list[Fault]:
    """A cluster is cut off, and then one of its brokers dies, for the rest of it and a little longer."""
    return [
        Partition(at_us=10 * SECOND, for_us=40 * SECOND, side=NORTH),
        Crash(at_us=20 * SECOND, for_us=35 * SECOND, node=gone),
    ]


def pause_and_restart(broker: str = NORTH[0]) -> list[Fault]:
    """A broker is frozen, so that it hears no leader for a moment, and restarted before the others know better."""
    return [
        Pause(at_us=10 * SECOND, for_us=10 * SECOND, node=broker),
        Crash(at_us=22 * SECOND, for_us=2 * SECOND, node=broker),
    ]


def test_fifteen_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("cluster", 0, 15) if outcome.broken] == []


@pytest.mark.parametrize("seed", SEEDS_THAT_BROKE)
def test_a_seed_that_broke_something_once_breaks_nothing(seed: int) -> None:
    assert run(find("cluster"), seed).broken is None


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_five_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("cluster", 0, 5_000, jobs=2) if outcome.broken] == []


@pytest.mark.parametrize("gone", NORTH)
def test_whoever_dies_in_a_cluster_that_is_cut_off_is_stood_in_for(gone: str) -> None:
    for seed in range(3):
        looked, owner = watched(seed, cut_and_kill(gone))
        assert looked.checked > 10 and looked.wanted > 10, "the checker looked"
        assert owner.provisional, "clients were served meanwhile"


def test_provisional_sessions_are_settled() -> None:
    assert sum(watched(seed, cut_and_kill())[1].settled for seed in range(5)) > 0


def watched(seed: int, plan: list[Fault]) -> tuple[Standing, OneOwner]:
    """Run a plan: nothing breaks; the checkers."""
    kept: list[Invariant] = []

    def build(world: World) -> list[Invariant]:
        kept.extend(cluster.build(world))
        return kept

    assert run(msgspec.structs.replace(find("cluster"), build=build), seed, plan=[*plan]).broken is None
    standing, owner, *_ = kept
    assert isinstance(standing, Standing) and isinstance(owner, OneOwner)
    return standing, owner


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


class Vain(Landmark):
    """Takes itself for the landmark, whoever else is there."""

    def group(self) -> tuple[str, ...]:
        return (self._own,)


class Forgetful(Landmark):
    """Goes on standing in when a leader is heard again."""

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        effects = super().handle(event, now_us)
        if isinstance(event, Restored):
            return [each for each in effects if not isinstance(each, MeanwhileOut)]
        return effects


class Idle(Landmark):
    """Nobody is ever gone."""

    def _missing(self, *arguments: Any) -> dict[str, str]:
        return {}


class Clinging(Landmark):
    """Hears a leader, takes words of others that hear one too, and does not look whether to forget them."""

    def _answer(self, cause: str, known: Any, word: Word, now_us: int) -> list[Effect]:
        if self.severed or word.severed:
            return super()._answer(cause, known, word, now_us)
        return self._link(cause, now_us)


class Taciturn(Landmark):
    """Does not say what came to be wanted later."""

    def _on_wants(self, event: WantsChanged, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Mapping[tuple[str, type[Event]], Handler]] = {
        **Landmark.table,
        ("*", WantsChanged): _on_wants,
    }


def settle_anyway(record: Record, stored: StoredSession | None, **options: Any) -> StoredSession | str:
    """Writes what it knew, whoever has taken the session since."""
    if stored is None:
        return "let go"
    return msgspec.structs.replace(
        stored, epoch=stored.epoch + 1, broker="", subscriptions=record.subscriptions
    )


class VainBroker(ClusterBroker):
    landmarks = Vain


class ForgetfulBroker(ClusterBroker):
    landmarks = Forgetful


class IdleBroker(ClusterBroker):
    landmarks = Idle


class ClingingBroker(ClusterBroker):
    landmarks = Clinging


class TaciturnBroker(ClusterBroker):
    landmarks = Taciturn


class GreedyBroker(ClusterBroker):
    settling = staticmethod(settle_anyway)


def planted(kind: type[ClusterBroker]) -> Scenario:
    def make(info: BrokerInfo) -> ClusterBroker:
        return cluster.make_broker(info, kind)

    return msgspec.structs.replace(find("cluster"), build=partial(cluster.build, make=make))


@pytest.mark.parametrize(
    ("kind", "invariant"),
    [
        (VainBroker, RECOVERY),
        (ForgetfulBroker, RECOVERY),
        (IdleBroker, RECOVERY),
        (ClingingBroker, RECOVERY),
        (TaciturnBroker, RECOVERY),
        (GreedyBroker, OWNER),
    ],
)
def test_a_planted_bug_is_found(kind: type[ClusterBroker], invariant: str) -> None:
    plans: list[list[Fault] | None] = [cut_and_kill(), pause_and_restart(), None]
    for seed, plan in product(range(SEEDS), plans):
        outcome = run(planted(kind), seed, plan=plan)
        if outcome.broken is not None:
            assert outcome.broken.invariant == invariant
            return
    raise AssertionError(f"{kind.__name__} breaks nothing within {SEEDS} seeds")
