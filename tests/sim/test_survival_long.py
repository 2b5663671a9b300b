"""Outages that outlast sessions, the log's memory of ids and the patience of backups: nothing acknowledged is lost."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from tests.sim.survival_bugs import with_bug
from tocsin.core.machine import Say
from tocsin.core.replication.backup import Backup
from tocsin.sim.invariants import Invariant
from tocsin.sim.runner import run, run_many
from tocsin.sim.scenario import find
from tocsin.sim.scenarios.survival import population
from tocsin.sim.scenarios.survival.ledger import Ledger
from tocsin.sim.scenarios.survival.long import LONG_FAULTS, PatientSurvivor
from tocsin.sim.scenarios.survival.population import Setting
from tocsin.sim.world import World

SECOND = 1_000_000
QUICK = 15  # seeds: some fifteen seconds


def test_fifteen_seeds_break_nothing_and_have_all_that_is_promised_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who looks for nothing finds nothing wrong: so it is seen that sessions expire and others are resumed, that
    brokers are stood in for, and that wills are published."""
    seen: Counter[str] = Counter()

    class Looks(Invariant):
        name = "counts what happens"

        def __init__(self, ledger: Ledger) -> None:
            ledger.on_stands_in.append(lambda broker, place, epoch: seen.update(["stands in"]))
            ledger.on_will.append(lambda broker, will: seen.update(["will"]))

        def attach(self, world: World) -> None:
            for text in ("session lost", "attends", "acknowledged", "told", "dies"):
                world.observers.on_say(text, self._count)

        def _count(self, node: str, say: Say) -> None:
            seen[say.text] += 1

    promises = population.promises

    def watched(ledger: Ledger, setting: Setting) -> list[Invariant]:
        return [*promises(ledger, setting), Looks(ledger)]

    monkeypatch.setattr(population, "promises", watched)
    scenario = find("survival-long")
    assert [seed for seed in range(QUICK) if run(scenario, seed).broken] == []
    assert all(seen[each] >= QUICK // 2 for each in ("stands in", "will", "session lost", "dies")), seen
    assert seen["attends"] > 3 * seen["session lost"] and seen["told"] > 1_000, seen


# Brokers that restart often, soon enough not to be missed or a little later.
RESTARTS = msgspec.structs.replace(
    LONG_FAULTS,
    kinds=(
        ("crash", 8),
        ("crash in turn", 3),
        ("store partition", 2),
        ("crash together", 1),
        ("pause", 2),
        ("store clock", 2),
    ),
    targets=("north-1", "north-2", "south-1", "south-2"),
    most=14,
    shortest_us=2 * SECOND,
    longest_us=60 * SECOND,
)
# 32: a standby that gave a place back had said that it began; a copy of the broker in that place was emptied.
# 48: the cell of a connected client expired when the store's clock jumped: nobody else had the client.
ONCE_FAILED = (32, 48)


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    scenario = msgspec.structs.replace(find("survival-long"), faults=RESTARTS)
    assert run(scenario, seed).broken is None


class ForgetsWhoCame(PatientSurvivor):
    """Bug: which sessions clients took here is not remembered; the store forgets it with the session."""

    class backup(Backup):
        def note_taken(self, session: str, epoch: int) -> None:
            pass


def test_a_will_from_before_a_session_that_has_ended_since_is_not_published() -> None:
    """Its client came back, left, and its session expired: only those to whom it came know of it."""
    scenario, seed = find("survival-long"), 106
    assert run(scenario, seed).broken is None
    broken = run(with_bug(ForgetsWhoCame), seed).broken
    assert broken is not None and "will" in broken.invariant


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_five_thousand_seeds_break_nothing() -> None:
    assert [outcome for outcome in run_many("survival-long", 0, 5_000, jobs=2) if outcome.broken] == []
