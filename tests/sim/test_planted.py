"""The simulator finds bugs: each classic one, planted in the counter, within a thousand seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.sim.runs.runner import replay, run_many
from tocsin.sim.runs.scenario import load

PLANTED = Path(__file__).parent / "planted"
SEEDS = 1_000

EXPECTED = {
    "acknowledged_early": "what is acknowledged is durable",
    "committed_early": "every increment is told, in order",
    "counted_twice": "the log is one history",
    "missed_delete": "every client is served in the end",
    "not_fenced": "the log is one history",
}


def test_every_planted_bug_is_looked_for() -> None:
    assert sorted(path.stem for path in PLANTED.glob("*.py")) == sorted(EXPECTED)


@pytest.mark.parametrize("bug", sorted(EXPECTED))
def test_a_planted_bug_is_found(bug: str) -> None:
    source = PLANTED / f"{bug}.py"
    (scenario,) = load(source)
    outcomes = run_many(scenario.name, 0, SEEDS, source=source)
    found = next((outcome for outcome in outcomes if outcome.broken is not None), None)
    assert found is not None, f"{SEEDS} seeds did not find {bug}"
    assert found.broken is not None
    assert found.broken.invariant == EXPECTED[bug]
    story = replay(scenario, found.seed)
    assert story.outcome == found
    assert [line.text for line in story.transcript][-1].startswith("BROKEN")
