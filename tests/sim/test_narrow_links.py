"""Links that are offered more than they can carry stay up and carry nothing old; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.search import seeds_from
from tocsin.core.links.backlog import LinkBacklog
from tocsin.core.links.dialler import Dialler, DiallerState
from tocsin.core.links.signals import FlowSeen
from tocsin.core.machine import Effect
from tocsin.runtime.machines.line import Line
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find

SEEDS = 20  # within which each planted bug has to be found
STAYS, FRESH = "a narrow link stays", "what arrives is fresh"


def test_some_seeds_of_narrow_links_break_nothing() -> None:
    assert [outcome for outcome in run_many("links-narrow", 0, 6) if outcome.broken] == []


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────

Plant = Callable[[pytest.MonkeyPatch], None]


def impatient(patch: pytest.MonkeyPatch) -> None:
    """An answer that is overdue is not looked into."""

    def leave(self: Dialler, event: FlowSeen, now_us: int) -> list[Effect]:
        return self._leave(now_us, "the peer no longer answers") if self._unanswered else []

    table: dict[Any, Any] = {**Dialler.table, (DiallerState.UP, FlowSeen): leave}
    patch.setattr(Dialler, "table", table)


def hoarder(patch: pytest.MonkeyPatch) -> None:
    """What waits for a link does not grow old."""
    patch.setattr(LinkBacklog, "expire", lambda self, now_us: None)


def greedy(patch: pytest.MonkeyPatch) -> None:
    """A link is never full: everything goes into it at once."""
    patch.setattr(Line, "filled", lambda self, call, full: None)


SHOWN_BY: dict[Plant, int] = {impatient: 14}  # seeds that show what the first ones do not


@pytest.mark.parametrize(
    ("plant", "expected"),
    [(impatient, STAYS), (hoarder, FRESH), (greedy, FRESH)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_planted_bug_of_narrow_links_is_found(
    plant: Plant, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in seeds_from(SHOWN_BY.get(plant, 0), SEEDS):
        broken = run(find("links-narrow"), seed).broken
        if broken is not None:
            assert broken.invariant == expected, broken
            return
    raise AssertionError(f"{plant.__name__} was not found within {SEEDS} seeds")
