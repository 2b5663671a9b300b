"""Latency budgets are kept once and in order, and within bounds, whatever the seeds invent; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.search import seeds_from
from tocsin.broker.forwarding.exchange import Exchange
from tocsin.broker.quality import flows
from tocsin.broker.quality.budget_news import BudgetNews
from tocsin.broker.quality.copies import Copies, Room
from tocsin.config import Deadline
from tocsin.core.quality.arrival_window import ArrivalWindow
from tocsin.core.quality.ways import Planner
from tocsin.model.publication import Publication
from tocsin.model.quality import Flow
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios.budgets.cases import measure

SEEDS = 12  # within which each planted bug has to be found
ORDER = "messages with a budget come once and in order"
PLAIN = "copies are for those with a budget"
BOUNDS = "copies stay within their bounds"
MISSES = "every missed budget is told, and no other"
HEARD = "a publisher that comes back is heard"
TOLD = "the more urgent topics get the room, and the others are told"


def test_some_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("budgets", 0, 3) if outcome.broken] == []


@pytest.mark.parametrize(
    ("case", "ways"), [("AAB", ("straight",)), ("BAA", ()), ("BBB", ("straight", "twin"))]
)
def test_copies_take_the_ways_that_the_case_needs(case: str, ways: tuple[str, ...]) -> None:
    budget_ms = {"AAB": 60, "BAA": 100, "BBB": 280}[case]
    found = measure(case, budget_ms, 200, Deadline())
    assert found.ways == ways
    assert found.missed < 0.15


def test_switched_off_nothing_is_copied_and_budgets_are_missed() -> None:
    off, on = (measure("AAB", 60, 200, Deadline(ways_max=ways)) for ways in (1, 3))
    assert off.ways == () and off.missed > 0.9
    assert on.missed < 0.05 and on.mean_us * 3 < off.mean_us


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────

Plant = Callable[[pytest.MonkeyPatch], None]


def reuses_the_window(patch: pytest.MonkeyPatch) -> None:
    """What a publisher says after its broker's restart is taken for the flow of before."""
    patch.setattr(flows, "Flow", lambda topic, client, epoch, broker: Flow(topic, client, 1, broker))


def passes_copies_on(patch: pytest.MonkeyPatch) -> None:
    """A copy is taken for a message, which routes are for."""

    def take(self: Exchange, topic: str, packet: Any) -> None:
        self.relay("nowhere", topic, Publication.of(packet, topic, "").packet())

    patch.setattr(Exchange, "_take_copy", take)


def drops_no_repeats(patch: pytest.MonkeyPatch) -> None:
    """The window passes on whatever comes, as it comes."""
    patch.setattr(ArrivalWindow, "take", lambda self, number, item, **rest: (True, [item]))


def admits_all(patch: pytest.MonkeyPatch) -> None:
    """The planner forgets what it has given already."""
    fit = Planner._fit
    patch.setattr(Planner, "_fit", lambda self, each, room, links, flows: fit(self, each, room, set(), 0))


def bounds_no_bytes(patch: pytest.MonkeyPatch) -> None:
    """The bound in bytes is the planner's alone, which learns of a rate only afterwards."""
    patch.setattr(Room, "take", lambda self, size, now_us: True)
    patch.setattr(Planner, "_has_room", lambda self, want, ways, room: True)


def tells_one_end(patch: pytest.MonkeyPatch) -> None:
    """Publishers are not told what was missed."""
    patch.setattr(BudgetNews, "seen", lambda self, row, broker: None)


def tells_no_gaps(patch: pytest.MonkeyPatch) -> None:
    """What is passed over counts as if it had never been."""
    patch.setattr(BudgetNews, "gave_up", lambda self, topic, count: None)


def leaves_out_in_silence(patch: pytest.MonkeyPatch) -> None:
    """Publishers are not told that a topic gets no ways."""
    patch.setattr(BudgetNews, "gives", lambda self, row, broker: None)


def forgets_priorities(patch: pytest.MonkeyPatch) -> None:
    """All topics are as urgent."""
    send = Copies.send

    def alike(self: Copies, copied: Any, packet: Any, stamp: Any) -> None:
        send(self, copied, packet, stamp)
        copied.priority = 0

    patch.setattr(Copies, "send", alike)


# Each with a seed that shows it, and the promise that is broken.
PLANTED: list[tuple[Plant, int, str]] = [
    (reuses_the_window, 1, HEARD),
    (passes_copies_on, 0, PLAIN),
    (drops_no_repeats, 0, ORDER),
    (admits_all, 0, BOUNDS),
    (bounds_no_bytes, 3, BOUNDS),
    (tells_one_end, 0, MISSES),
    (tells_no_gaps, 0, MISSES),
    (leaves_out_in_silence, 0, TOLD),
    (forgets_priorities, 0, TOLD),
]


@pytest.mark.parametrize(
    ("plant", "shown_by", "promise"), PLANTED, ids=[each[0].__name__ for each in PLANTED]
)
def test_a_planted_bug_is_found(
    plant: Plant, shown_by: int, promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    scenario = find("budgets")
    seeds = seeds_from(shown_by, SEEDS)
    found = next(((seed, broken) for seed in seeds if (broken := run(scenario, seed).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find {plant.__name__}"
    assert found[1].invariant == promise, found
