"""How bugs that are planted in the product are found in ``survival``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.sim.search import seeds_from
from tocsin.coordinator import planning
from tocsin.core.coordination.leader import backup_planning
from tocsin.core.coordination.state.backups import Backups
from tocsin.runtime.machines.clock import now_us
from tocsin.sim.faults.kinds import Fault
from tocsin.sim.faults.plan import Profile
from tocsin.sim.runs.runner import Broken, run
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios.survival import doors, population

SECOND = 1_000_000
MINUTE = 60 * SECOND

Plant = Callable[[pytest.MonkeyPatch], None]


class Planted(msgspec.Struct, frozen=True):
    """A bug, the promise that it breaks, and the faults with which so many seeds from 0 on show it."""

    plant: Plant
    invariant: str
    plan: Sequence[Fault] | None = ()  # None: as each seed draws it …
    seeds: int = 3
    scenario: str = "survival"
    faults: Profile | None = None  # … from these, if they are not the scenario's own
    also: str = ""  # another promise that it may break first
    shown_by: int = 0  # a seed that shows it

    def find(self, monkeypatch: pytest.MonkeyPatch) -> Broken | None:
        """What the first seed breaks that breaks anything, from ``shown_by`` on."""
        self.plant(monkeypatch)
        scenario = find(self.scenario)
        if self.faults is not None:
            scenario = msgspec.structs.replace(scenario, faults=self.faults)
        plan = None if self.plan is None else list(self.plan)
        outcomes = (run(scenario, seed, plan=plan) for seed in seeds_from(self.shown_by, self.seeds))
        return next((outcome.broken for outcome in outcomes if outcome.broken), None)


def find_again(patch: pytest.MonkeyPatch) -> None:
    """Let only those take part whose sessions last, as when seeds broke something: with one more a seed is another
    run."""
    lasting = tuple(each for each in population.RESIDENTS if each[-1])
    for module in (population, doors):
        patch.setattr(module, "RESIDENTS", lasting)


def move_backups(patch: pytest.MonkeyPatch, broker: str, moves: Sequence[tuple[int, str]]) -> None:
    """Plan twice a second, and give a broker one backup, in another cluster: each of ``moves`` from its time on."""
    decide = planning.decide

    def moved(*asked: Any) -> planning.Decision:
        decision = decide(*asked)
        backup = [name for from_us, name in moves if from_us <= now_us()][-1]
        able = broker in decision.backups and backup in decision.backups
        chosen = {broker: Backups(None, backup)} if able else {}
        return decision._replace(backups={**decision.backups, **chosen})

    patch.setattr(planning, "decide", moved)
    patch.setattr(backup_planning, "AGAIN_US", 0)
