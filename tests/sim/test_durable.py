"""Durable messages keep their promises, whatever the seeds invent; and without any one precaution they do not."""

from __future__ import annotations

import pytest

from tests.sim import durable_bugs as bugs
from tests.sim.durable_bugs import Bug
from tests.sim.plans import crashes_in_turn, freezes_and_late_writes
from tests.sim.search import seeds_from
from tocsin.sim.runs.runner import run, run_many
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios.durable.population import BROKERS

SEEDS = 20  # within which the bugs that show often are found
SEEDS_RARE = 400  # and the others

ONCE_IN_THE_LOG = "a message at QoS 2 is in the log once"
ACKNOWLEDGED = "what is acknowledged is in the log"
TAKEN = "subscribers get everything, in order, at QoS 2 once"
CRITICAL_FIRST = "critical messages come first"
SETTLED = "everything is settled in the end"


def test_thirty_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("durable", 0, 30) if outcome.broken] == []


def test_brokers_crash_in_turn_between_any_two_effects() -> None:
    for seed in range(5):
        assert run(find("durable"), seed, plan=crashes_in_turn(seed, BROKERS)).broken is None


def test_writes_are_applied_late_while_brokers_freeze_and_clients_move() -> None:
    for seed in range(5):
        assert run(find("durable"), seed, plan=freezes_and_late_writes(BROKERS, second_s=4)).broken is None


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────


# What is lost may be missed first as a critical message that others overtook.
PLANTED: dict[Bug, tuple[str, ...]] = {
    bugs.acknowledges_early: (ACKNOWLEDGED,),
    bugs.appends_before_the_id_is_stored: (ONCE_IN_THE_LOG,),
    bugs.completes_early: (ACKNOWLEDGED, SETTLED),
    bugs.counts_packet_ids: (TAKEN,),
    bugs.forgets_how_far_critical_ones_are: (TAKEN,),
    bugs.knows_of_no_critical_ones: (CRITICAL_FIRST, TAKEN),
    bugs.reads_both_at_once: (CRITICAL_FIRST,),
    bugs.releases_early: (TAKEN,),
    bugs.settles_at_sending: (TAKEN,),
    bugs.settles_critical_ones_with_the_others: (CRITICAL_FIRST, TAKEN),
    bugs.subscribes_anew: (CRITICAL_FIRST, TAKEN),
    bugs.trusts_every_id: (ACKNOWLEDGED,),
    bugs.uses_the_same_packet_ids: (TAKEN,),
}


RARE: tuple[Bug, ...] = (
    bugs.appends_before_the_id_is_stored,
    bugs.completes_early,
    bugs.counts_packet_ids,
    bugs.forgets_how_far_critical_ones_are,
    bugs.reads_both_at_once,
    bugs.releases_early,
    bugs.settles_critical_ones_with_the_others,
)


# A seed that shows a bug which the first ones do not.
SHOWN_BY: dict[Bug, int] = {bugs.trusts_every_id: 10}


def find_planted(bug: Bug, monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    bug(monkeypatch)
    scenario = find("durable")
    order = seeds_from(SHOWN_BY.get(bug, 0), seeds)
    found = next((broken for seed in order if (broken := run(scenario, seed).broken)), None)
    assert found is not None, f"{seeds} seeds did not find {bug.__name__}"
    assert found.invariant in PLANTED[bug]


@pytest.mark.parametrize("bug", [bug for bug in PLANTED if bug not in RARE], ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    find_planted(bug, monkeypatch, SEEDS)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("bug", RARE, ids=lambda bug: bug.__name__)
def test_a_bug_that_shows_rarely_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    find_planted(bug, monkeypatch, SEEDS_RARE)
