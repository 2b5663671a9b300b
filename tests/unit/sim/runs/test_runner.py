"""Runs have outcomes; many runs have them in the order of their seeds."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tocsin.core.machine import Effect, Event, Started
from tocsin.sim import schedule
from tocsin.sim.faults.kinds import Crash
from tocsin.sim.faults.plan import CALM
from tocsin.sim.probe import Probe
from tocsin.sim.runs import runner
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.runner import MACHINES_DO_NOT_RAISE, RUNS_END, Outcome, plan_of, replay, run, run_many
from tocsin.sim.runs.scenario import Scenario, find
from tocsin.sim.world import World


class NeverCrashes(Invariant):
    name = "a never crashes"

    def attach(self, world: World) -> None:
        world.observers.on_happening(lambda address, happening: self._look(address, happening))

    def _look(self, address: str, happening: str) -> None:
        if happening == "crashed":
            self.broken(f"{address} crashed")

    def finish(self, world: World) -> None:
        if world.chances.seed == 13:
            self.broken("thirteen")


def build(world: World) -> list[Invariant]:
    world.add("a", Probe().make)
    return [NeverCrashes()]


SCENARIO = Scenario("test", "of a test", build, CALM, 1_000, 1_000)


def test_a_run_that_keeps_its_invariants_has_no_more_to_say() -> None:
    outcome = run(SCENARIO, 1)
    assert outcome.broken is None
    assert (outcome.seed, outcome.virtual_us) == (1, 2_000)


def test_a_broken_invariant_is_an_outcome_with_its_time() -> None:
    outcome = run(SCENARIO, 1, plan=[Crash(at_us=500, for_us=1, node="a")])
    assert outcome.broken is not None
    assert (outcome.broken.invariant, outcome.broken.words) == ("a never crashes", "a crashed")
    assert outcome.broken.at_us == 500


def test_invariants_look_once_more_at_the_end() -> None:
    outcome = run(SCENARIO, 13)
    assert outcome.broken is not None
    assert (outcome.broken.words, outcome.broken.at_us) == ("thirteen", 2_000)


def test_a_machine_that_raises_is_an_outcome() -> None:
    def react(event: Event, now_us: int) -> list[Effect]:
        raise RuntimeError("oh")

    def raising(world: World) -> list[Invariant]:
        world.add("a", Probe(react).make)
        return []

    outcome = run(Scenario("test", "", raising, CALM, 1, 1), 0)
    assert outcome.broken is not None
    assert outcome.broken.invariant == MACHINES_DO_NOT_RAISE
    assert "RuntimeError: oh" in outcome.broken.words


def test_a_run_that_does_not_end_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "LOOK_EVERY", 64)

    def endless(world: World) -> list[Invariant]:
        def react(event: Event, now_us: int) -> list[Effect]:
            world.post("a", Started(incarnation=0))
            return []

        world.add("a", Probe(react).make)
        return []

    outcome = run(Scenario("test", "", endless, CALM, 1, 1), 0)
    assert outcome.broken is not None
    assert outcome.broken.invariant == RUNS_END


def test_a_replay_is_the_same_run_with_its_faults_and_story() -> None:
    scenario = find("counter")
    story = replay(scenario, 3)
    assert story.outcome == run(scenario, 3)
    assert list(story.plan) == plan_of(scenario, 3) != []
    begun = [line.text for line in story.transcript if line.text.startswith("begins: ")]
    assert len(begun) == len(story.plan)
    assert all(fault.words() in text for fault, text in zip(story.plan, begun, strict=True))


def test_the_story_of_a_failure_ends_with_it(tmp_path: Path) -> None:
    story = replay(SCENARIO, 13)
    assert [line.text for line in story.transcript][-1] == "BROKEN a never crashes: thirteen"


def test_another_seed_is_another_run() -> None:
    scenario = find("counter")
    assert run(scenario, 1).digest != run(scenario, 2).digest


def test_two_processes_give_the_outcomes_of_one_in_the_same_order() -> None:
    alone = list(run_many("counter", 5, 45))
    together = list(run_many("counter", 5, 45, jobs=2))
    assert [outcome.seed for outcome in alone] == list(range(5, 50))
    assert together == alone


def test_several_processes_tell_slow_seeds_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    submit = ProcessPoolExecutor.submit

    def noted(pool: ProcessPoolExecutor, act: object, *arguments: object) -> object:
        asked.append(arguments[-1])  # type: ignore[arg-type]
        return submit(pool, act, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ProcessPoolExecutor, "submit", noted)
    monkeypatch.setattr(runner, "CHUNK_S", 0.0)  # every seed is a slow one
    assert len(list(run_many("counter", 0, 8, jobs=2))) == 8
    assert asked == [1] * 8
    monkeypatch.setattr(runner, "CHUNK_S", 1_000.0)  # none is
    asked.clear()
    assert len(list(run_many("counter", 0, 100, jobs=2))) == 100
    assert max(asked) == runner.CHUNK


def test_many_runs_can_be_left_early() -> None:
    outcomes = run_many("counter", 0, 10_000, jobs=2)
    first = next(outcomes)
    outcomes.close()
    assert isinstance(first, Outcome)
