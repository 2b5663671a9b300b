"""Clusters that are cut off keep what they promise, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, cast

import msgspec
import pytest

from tocsin.broker.survival import provisional
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.machine import Effect
from tocsin.core.survival.landmark import Landmark
from tocsin.core.survival.landmark_signals import MeanwhileOut, Restored, WantsChanged
from tocsin.core.survival.provisional import Record
from tocsin.sim.faults.kinds import Crash, Fault, Partition
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios import cluster
from tocsin.sim.scenarios.cluster import NORTH, SIDES
from tocsin.sim.scenarios.cluster.guests import Guest
from tocsin.sim.scenarios.cluster.promises import OneOwner, Standing
from tocsin.sim.world import World
from tocsin.wire.internal.cluster_messages import ClusterMessage

SECOND = 1_000_000
SEEDS = 6  # within which each planted bug has to be found
RECOVERY = Standing.name
OWNER = OneOwner.name


def cut_and_kill(gone: str = NORTH[0]) -> list[Fault]:
    """A cluster is cut off, and then one of its brokers dies, for the rest of it and a little longer."""
    return [
        Partition(at_us=10 * SECOND, for_us=35 * SECOND, side=SIDES[0]),
        Crash(at_us=18 * SECOND, for_us=30 * SECOND, node=gone),
    ]


def sever_and_restart(broker: str = NORTH[0]) -> list[Fault]:
    """Nobody leads for a while, and a broker is restarted when somebody does again, before the others know better."""
    return [
        Crash(at_us=10 * SECOND, for_us=8 * SECOND, node="coordinator-1"),
        Crash(at_us=18 * SECOND, for_us=SECOND // 4, node=broker),
    ]


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("cluster", 0, 12) if outcome.broken] == []


@pytest.mark.parametrize("gone", NORTH)
def test_a_broker_that_dies_in_a_cut_off_cluster_is_replaced(gone: str) -> None:
    looked, _, provisional = watched(0, cut_and_kill(gone))
    assert looked.checked > 10 and looked.wanted > 0, "the checker looked"
    assert provisional, "clients were served meanwhile"


def test_provisional_sessions_are_settled() -> None:
    assert sum(watched(seed, cut_and_kill())[1].settled for seed in range(3)) > 0


def watched(seed: int, plan: list[Fault]) -> tuple[Standing, OneOwner, int]:
    """Run a plan: nothing breaks; the checkers, and how often a client was served provisionally."""
    kept: list[Invariant] = []
    guests: list[Guest] = []

    class Count(Invariant):
        name = "guests are counted"

        def finish(self, world: World) -> None:
            guests.extend(each for node in world.addresses if isinstance(each := world.machine(node), Guest))

    def build(world: World) -> list[Invariant]:
        kept.extend(cluster.build(world))
        return [*kept, Count()]

    assert run(msgspec.structs.replace(find("cluster"), build=build), seed, plan=[*plan]).broken is None
    standing, owner, *_ = kept
    assert isinstance(standing, Standing) and isinstance(owner, OneOwner)
    return standing, owner, sum(each.provisional for each in guests)


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────

Plant = Callable[[pytest.MonkeyPatch], None]
TRANSITIONS = cast(dict[Any, Any], Landmark.table)


def vain(patch: pytest.MonkeyPatch) -> None:
    """A broker takes itself for the landmark, whoever else is there."""
    patch.setattr(Landmark, "group", lambda self: (self._own,))


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """A broker goes on standing in when a leader is heard again."""
    restore = TRANSITIONS["severed", Restored]

    def keep_standing(self: Landmark, event: Restored, now_us: int) -> list[Effect]:
        return [each for each in restore(self, event, now_us) if not isinstance(each, MeanwhileOut)]

    patch.setitem(TRANSITIONS, ("severed", Restored), keep_standing)


def idle(patch: pytest.MonkeyPatch) -> None:
    """Nobody is ever gone."""
    patch.setattr(Landmark, "_missing", lambda self, *arguments: {})


def clinging(patch: pytest.MonkeyPatch) -> None:
    """A broker that hears a leader does not forget what others tell it that hear one too."""
    answer = Landmark._answer

    def cling(self: Landmark, known: Any, word: ClusterMessage, now_us: int) -> list[Effect]:
        if self.severed or word.severed:
            return answer(self, known, word, now_us)
        return self._link(now_us)

    patch.setattr(Landmark, "_answer", cling)


def taciturn(patch: pytest.MonkeyPatch) -> None:
    """A broker does not say what came to be wanted later."""
    patch.setitem(TRANSITIONS, ("*", WantsChanged), lambda self, event, now_us: [])


def greedy(patch: pytest.MonkeyPatch) -> None:
    """Provisional sessions are written whoever has taken them since."""

    def settle(record: Record, stored: StoredSession | None, **options: Any) -> StoredSession | str:
        if stored is None:
            return "let go"
        return msgspec.structs.replace(
            stored, epoch=stored.epoch + 1, broker="", subscriptions=record.subscriptions
        )

    patch.setattr(provisional, "settle", settle)


@pytest.mark.parametrize(
    ("plant", "invariant"),
    [
        (vain, RECOVERY),
        (forgetful, RECOVERY),
        (idle, RECOVERY),
        (clinging, RECOVERY),
        (taciturn, RECOVERY),
        (greedy, OWNER),
    ],
    ids=["vain", "forgetful", "idle", "clinging", "taciturn", "greedy"],
)
def test_a_planted_bug_is_found(plant: Plant, invariant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    plans: list[list[Fault] | None] = [cut_and_kill(), sever_and_restart(), None]
    for seed, plan in product(range(SEEDS), plans):
        outcome = run(find("cluster"), seed, plan=plan)
        if outcome.broken is not None:
            assert outcome.broken.invariant == invariant, outcome.broken
            return
    raise AssertionError(f"{plant.__name__} breaks nothing within {SEEDS} seeds")
