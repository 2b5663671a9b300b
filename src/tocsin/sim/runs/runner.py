"""Runs: one seed to its outcome, or many seeds over several processes.

A run has two parts: ``trouble_us`` with the faults of the plan, then, all healed, ``settle_us`` of calm, or less if all
is well before. Invariants watch both, and look once more at the end. A run never raises for what it finds: the outcome
says it.
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import msgspec

from tocsin.sim.faults.kinds import Fault, unleash
from tocsin.sim.faults.plan import draw_plan
from tocsin.sim.runs import scenario as registry
from tocsin.sim.runs.invariants import InvariantBroken
from tocsin.sim.runs.scenario import Scenario
from tocsin.sim.runs.transcript import Transcript
from tocsin.sim.schedule import ScheduleOverflow
from tocsin.sim.world import MachineRaised, World

LOOKS = 4  # at whether all is well, in the time for which it has to be
CHUNK = 20  # most seeds that a process takes at a time; it begins with one, since a seed may take a minute
CHUNK_S = 0.5  # twice as many next time, while they take less: a failure is told soon, and so is progress
AHEAD = 3  # chunks that wait per process

MACHINES_DO_NOT_RAISE = "machines do not raise"
RUNS_END = "runs stay bounded"


class Broken(msgspec.Struct, frozen=True):
    """Which invariant broke, when in virtual time, and how."""

    invariant: str
    words: str
    at_us: int


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one seed."""

    seed: int
    events: int
    virtual_us: int
    digest: str  # differs if anything in the run went differently
    broken: Broken | None = None


def run(
    scenario: Scenario, seed: int, transcript: Transcript | None = None, plan: list[Fault] | None = None
) -> Outcome:
    """Run one seed, with the plan that it draws or the one given."""
    with _collected_afterwards():
        return _run(scenario, seed, transcript, plan)


@contextmanager
def _collected_afterwards() -> Iterator[None]:
    """Collect a run's garbage once, at its end: collecting during the run would take an eighth of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if enabled:
            gc.enable()


def _run(scenario: Scenario, seed: int, transcript: Transcript | None, plan: list[Fault] | None) -> Outcome:
    world = World(seed, transcript)
    broken = None
    try:
        world.check(*scenario.build(world))
        if plan is None:
            nemesis = world.chances.of("nemesis")
            plan = draw_plan(scenario.faults, world.addresses, scenario.trouble_us, nemesis)
        unleash(world, plan)
        world.run_until(scenario.trouble_us)
        world.heal()
        _settle(world, scenario)
        for invariant in world.invariants:
            invariant.finish(world)
    except InvariantBroken as error:
        broken = Broken(error.name, error.words, world.now_us)
    except MachineRaised as error:
        broken = Broken(MACHINES_DO_NOT_RAISE, str(error), world.now_us)
    except ScheduleOverflow as error:
        broken = Broken(RUNS_END, str(error), world.now_us)
    finally:
        world.close()
    if broken is not None:
        world.tell("invariant", f"BROKEN {broken.invariant}: {broken.words}")
    digest = hashlib.sha256(f"{world.fingerprint()} {broken}".encode()).hexdigest()[:16]
    return Outcome(seed, world.schedule.events, world.now_us, digest, broken)


def _settle(world: World, scenario: Scenario) -> None:
    """Run until the end, or until all has been well for as long as the scenario says."""
    end_us = scenario.trouble_us + scenario.settle_us
    well_us: int | None = None  # since when all is well
    while scenario.calm_us is not None and world.now_us < end_us:
        world.run_until(min(end_us, world.now_us + scenario.calm_us // LOOKS))
        try:
            for invariant in world.invariants:
                invariant.finish(world)
        except InvariantBroken:
            well_us = None
            continue
        well_us = world.now_us if well_us is None else well_us
        if world.now_us - well_us >= scenario.calm_us:
            return
    world.run_until(end_us)


class Story(msgspec.Struct, frozen=True):
    """A run that was replayed with its transcript."""

    outcome: Outcome
    plan: tuple[Fault, ...]
    transcript: Transcript


def replay(scenario: Scenario, seed: int) -> Story:
    """The same run again, with its story."""
    plan = plan_of(scenario, seed)
    transcript = Transcript()
    return Story(run(scenario, seed, transcript), tuple(plan), transcript)


def plan_of(scenario: Scenario, seed: int) -> list[Fault]:
    """The faults that a seed draws, without running it."""
    world = World(seed)
    list(scenario.build(world))
    return draw_plan(scenario.faults, world.addresses, scenario.trouble_us, world.chances.of("nemesis"))


def run_many(
    name: str, first_seed: int, runs: int, *, jobs: int = 1, source: Path | None = None
) -> Generator[Outcome, None, None]:
    """The outcomes of seeds from ``first_seed`` on, in the order of the seeds, however many processes run them.

    Close the iterator to stop early. ``source`` is the file that the scenario comes from, if it is not Tocsin's own.
    """
    if jobs <= 1:
        scenario = _find(name, source)
        for seed in range(first_seed, first_seed + runs):
            yield run(scenario, seed)
        return
    # Spawned, not forked: a fork would carry over the caller's threads and locks.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        start, end, size = first_seed, first_seed + runs, 1
        waiting: deque[Future[tuple[list[Outcome], float]]] = deque()
        try:
            while True:
                while len(waiting) < jobs * AHEAD and start < end:
                    count = min(size, end - start)
                    waiting.append(pool.submit(_run_chunk, name, source, start, count))
                    start += count
                if not waiting:
                    return
                outcomes, took_s = waiting.popleft().result()
                if took_s < CHUNK_S:
                    size = min(2 * size, CHUNK)
                yield from outcomes
        finally:
            for future in waiting:
                future.cancel()


@cache
def _find(name: str, source: Path | None) -> Scenario:
    if source is not None:
        for scenario in registry.load(source):
            if scenario.name == name:
                return scenario
    return registry.find(name)


def _run_chunk(name: str, source: Path | None, first_seed: int, count: int) -> tuple[list[Outcome], float]:
    """The outcomes, and the seconds that they took."""
    scenario = _find(name, source)
    began = time.perf_counter()
    outcomes = [run(scenario, seed) for seed in range(first_seed, first_seed + count)]
    return outcomes, time.perf_counter() - began
