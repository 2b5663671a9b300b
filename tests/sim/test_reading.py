"""Reading the log by interest misses nothing, whatever the seeds invent; and without any one precaution it does."""

from __future__ import annotations

import pytest

from tests.sim import reading_bugs as bugs
from tests.sim.reading_bugs import Bug
from tests.sim.search import seeds_from
from tocsin.sim.runs.runner import run
from tocsin.sim.runs.scenario import find

SEEDS = 60

BUGS: tuple[Bug, ...] = (
    bugs.begins_before_it_reads,
    bugs.counts_more_than_was_told,
    bugs.drops_interest_too_soon,
    bugs.takes_coarse_for_exact,
)
# A seed that shows a bug which the first ones do not.
SHOWN_BY: dict[Bug, int] = {bugs.begins_before_it_reads: 42}


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    scenario = find("durable")
    order = seeds_from(SHOWN_BY.get(bug, 0), SEEDS)
    found = next((broken for seed in order if (broken := run(scenario, seed).broken)), None)
    assert found is not None, f"{SEEDS} seeds did not find {bug.__name__}"
