"""Who asks a query hears joined, messages and left in this order, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.sim.search import seeds_from
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.machine import Effect
from tocsin.core.streams import demand
from tocsin.core.streams.demand import Demand, anybody
from tocsin.core.streams.listing import Listing
from tocsin.core.streams.publish_gate import Action, PublishGate
from tocsin.model.stream import Diff, Metadata
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios import streams
from tocsin.sim.scenarios.streams.promises import Complete
from tocsin.sim.world import World

SEEDS = 60  # within which each planted bug has to be found

IN_TURN = "messages come between joined and left"
COMPLETE = "no message of a stream is missing"
TRUTHFUL = "askers know whether they are wanted"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("streams", 0, 20) if outcome.broken] == []


def test_where_nothing_fails_nothing_is_missing() -> None:
    kept: list[Complete] = []

    def build(world: World) -> list[Invariant]:
        invariants = streams.build(world)
        kept.extend(each for each in invariants if isinstance(each, Complete))
        return invariants

    scenario = msgspec.structs.replace(find("streams"), build=build)
    for seed in range(12):
        assert run(scenario, seed, plan=[]).broken is None
    assert all(complete.looked > 50 for complete in kept), "the checker looked"


@pytest.mark.parametrize("seed", [26, 149])
def test_a_session_remembers_what_its_client_says_of_a_stream(seed: int) -> None:
    """A client comes again, describes a stream or forgets it, and publishes on it later: its session said what was
    true before."""
    assert run(find("streams"), seed, plan=[]).broken is None


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_where_nothing_fails_many_seeds_miss_nothing() -> None:
    scenario = find("streams")
    assert [seed for seed in range(200) if run(scenario, seed, plan=[]).broken] == []


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────

Plant = Callable[[pytest.MonkeyPatch], None]


def hasty(patch: pytest.MonkeyPatch) -> None:
    """Messages do not wait until others know of their stream."""
    take = PublishGate.take

    def at_once(self: PublishGate[Any], item: Any, **rest: Any) -> list[Action[Any]]:
        return [*take(self, item, **rest), *self.clear(1 << 40)]

    patch.setattr(PublishGate, "take", at_once)


def impatient(patch: pytest.MonkeyPatch) -> None:
    """A stream is changed before its messages are in the log."""
    declare = PublishGate._declare

    def too_early(
        self: PublishGate[Any], held: Any, topic: str, diff: Diff | None, **rest: Any
    ) -> list[Action[Any]]:
        under_way, self._under_way = self._under_way, 0
        declared = declare(self, held, topic, diff, **rest)
        self._under_way = under_way
        return declared

    patch.setattr(PublishGate, "_declare", too_early)


def blurts(patch: pytest.MonkeyPatch) -> None:
    """Who is behind is told at once that a stream left."""
    left = Listing.left

    def at_once(self: Listing, topic: str, metadata: Metadata, *, behind: bool) -> bool:
        return left(self, topic, metadata, behind=False)

    patch.setattr(Listing, "left", at_once)


def clears_first(patch: pytest.MonkeyPatch) -> None:
    """Messages go on when everybody else knows, before what follows was applied here."""
    acknowledge = Participant._acknowledge

    def clear_known(self: Participant) -> list[Effect]:
        return self._clear(self._clearing.up_to(self._clear_to))

    def clear_and_acknowledge(self: Participant, notice: Any, now_us: int) -> list[Effect]:
        return [*self._clear_known(), *acknowledge(self, notice, now_us)]

    patch.setattr(Participant, "_clear_known", clear_known)
    patch.setattr(Participant, "_acknowledge", clear_and_acknowledge)


def never_over(patch: pytest.MonkeyPatch) -> None:
    """What is not wanted any more counts still."""
    patch.setattr(Demand, "release", lambda self, who, names: None)


def counts_the_asker(patch: pytest.MonkeyPatch) -> None:
    """A source that wants topics itself counts as somebody else."""
    patch.setattr(
        Demand, "is_wanted", lambda self, topic_filter, but: anybody(self._counts[topic_filter], None)
    )


def looks_at_one(patch: pytest.MonkeyPatch) -> None:
    """It is told that somebody wants it, and not that somebody else does, too."""
    patch.setattr(demand, "_some", lambda count: frozenset(list(count)[:1]))


# Each with a seed that shows it.
PLANTED: list[tuple[Plant, tuple[str, ...], int]] = [
    (hasty, (COMPLETE, IN_TURN), 0),
    (impatient, (COMPLETE, IN_TURN), 10),
    (blurts, (IN_TURN,), 0),
    (clears_first, (COMPLETE, IN_TURN), 26),
    (never_over, (TRUTHFUL,), 13),
    (counts_the_asker, (TRUTHFUL,), 13),
    (looks_at_one, (TRUTHFUL,), 2),
]


@pytest.mark.parametrize(
    ("plant", "expected", "shown_by"), PLANTED, ids=[plant.__name__ for plant, *_ in PLANTED]
)
def test_a_planted_bug_is_found(
    plant: Plant, expected: tuple[str, ...], shown_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    scenario = find("streams")
    seeds = seeds_from(shown_by, SEEDS)
    found = next((broken for seed in seeds if (broken := run(scenario, seed, plan=[]).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find {plant.__name__}"
    assert found.invariant in expected, found
