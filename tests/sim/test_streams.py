"""Who asks a query hears joined, messages and left in this order, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from tocsin.core.coordination.participant import Participant
from tocsin.core.gate import Action, Gate
from tocsin.core.listing import Listing
from tocsin.core.machine import Effect
from tocsin.model.stream import Diff, Metadata
from tocsin.sim.runner import run, run_many
from tocsin.sim.scenario import Scenario, find
from tocsin.sim.scenarios import streams
from tocsin.sim.scenarios.streams.brokers import Go

SEEDS = 200  # within which each planted bug has to be found

IN_TURN = "messages come between joined and left"
COMPLETE = "no message of a stream is missing"


def test_sixty_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("streams", 0, 60) if outcome.broken] == []


def test_where_nothing_fails_nothing_is_missing() -> None:
    scenario = find("streams")
    for seed in range(60):
        assert run(scenario, seed, plan=[]).broken is None


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_ten_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("streams", 0, 10_000, jobs=2) if outcome.broken] == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_where_nothing_fails_nothing_is_missing_in_two_thousand_seeds() -> None:
    scenario = find("streams")
    assert [seed for seed in range(2_000) if run(scenario, seed, plan=[]).broken] == []


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────


class Hasty(Gate[Go]):
    """Bug: messages do not wait until others know of their stream."""

    def take(
        self, item: Go, *, topic: str | None, diff: Diff | None = None, size: int, commits: bool
    ) -> list[Action[Go]]:
        actions = super().take(item, topic=topic, diff=diff, size=size, commits=commits)
        return [*actions, *self.clear(1 << 40)]


class Impatient(Gate[Go]):
    """Bug: a stream is changed before its messages are in the log."""

    def _declare(self, held: Any, topic: str, diff: Diff | None, **rest: Any) -> list[Action[Go]]:
        under_way, self._under_way = self._under_way, 0
        declared = super()._declare(held, topic, diff, **rest)
        self._under_way = under_way
        return declared


class Blurts(Listing):
    """Bug: who is behind is told at once that a stream left."""

    def left(self, topic: str, metadata: Metadata, *, behind: bool) -> bool:
        return super().left(topic, metadata, behind=False)


class ClearsFirst(Participant):
    """Bug: messages go on when everybody else knows, before what follows was applied here."""

    def _clear_known(self, cause: str) -> list[Effect]:
        return self._clear(cause, self._clearing.up_to(self._clear_to))

    def _acknowledge(self, cause: str, notice: Any, now_us: int) -> list[Effect]:
        return [*self._clear_known(cause), *super()._acknowledge(cause, notice, now_us)]


PLANTED: dict[tuple[str, type], tuple[str, ...]] = {
    ("gate", Hasty): (COMPLETE,),
    ("gate", Impatient): (COMPLETE, IN_TURN),
    ("listing", Blurts): (IN_TURN,),
    ("participant", ClearsFirst): (COMPLETE,),
}


def with_bug(role: str, bug: type) -> Scenario:
    return msgspec.structs.replace(
        find("streams"),
        build=partial(streams.build, **{role: bug}),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("role", "bug"), PLANTED, ids=lambda each: getattr(each, "__name__", each))
def test_a_planted_bug_is_found(role: str, bug: type) -> None:
    scenario = with_bug(role, bug)
    found = next((broken for seed in range(SEEDS) if (broken := run(scenario, seed, plan=[]).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find {bug.__name__}"
    assert found.invariant in PLANTED[role, bug], found
