"""Whole executions at ever more subscriptions, beside DuckDB and one query for each; and the emergency channel."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Final

import msgspec
import psutil

from bench.channels import workloads as w
from bench.channels.figures import ALONE, DUCKDB, SPARK, Execution, Rate, Ratio
from bench.channels.peers import HAS_DUCKDB, Duck, alone
from bench.channels.stage import Stage, now_us, opened
from bench.load.figures import spread
from tocsin.pipeline.spark.session import Spark

COMMITTED: Final = "from Spark to committed"
TALLY: Final = (
    0.02  # by which the results of the two may differ: none do by equality, roundings at a circle's edge
)


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    subscriptions: tuple[int, ...]
    publications: tuple[int, ...]
    warm: int  # turns before those that count: Java compiles what it runs often
    turns: int
    lonely: int  # subscriptions that are asked one by one
    people: int
    emergencies: int


def cpu_s(spark: Spark) -> float:
    """Processor time of this process, Spark's Java and its Python workers, so far."""
    java = psutil.Process(spark.pid)
    total = 0.0
    for each in (psutil.Process(), java, *java.children(recursive=True)):
        try:
            total += sum(each.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


class Taken:
    """Turns of one contestant."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu_s: list[float] = []
        self.results: list[int] = []

    def execution(self, workload: str, how: str, subscriptions: int, publications: int) -> Execution:
        return Execution(
            workload=workload,
            how=how,
            subscriptions=subscriptions,
            publications=publications,
            results=statistics.mean(self.results),
            ms=spread(each * 1e3 for each in self.seconds),
            cpu_ms=statistics.mean(self.cpu_s) * 1e3 if self.cpu_s else 0.0,
            turns=len(self.seconds),
        )


async def measure(
    spark: Spark, directory: Path, workload: w.Workload, subscriptions: int, plan: Plan
) -> tuple[list[Execution], list[Ratio]]:
    """One workload with so many subscriptions, at every number of publications."""
    found: list[Execution] = []
    ratios: list[Ratio] = []
    async with opened(directory, spark, f"{workload.name}-{subscriptions}") as stage:
        stage.create(workload.dataset)
        stage.define(workload.channel)
        stage.hold(workload.channel, (workload.values(i) for i in range(subscriptions)))
        await stage.call(stage.engine.fold)
        duck = Duck(workload, subscriptions, stage.root / "duck") if HAS_DUCKDB else None
        for publications in plan.publications:
            ours, theirs = Taken(), Taken()
            for turn in range(plan.warm + plan.turns):
                measured = turn >= plan.warm
                await _turn(
                    stage, workload, publications, ours if measured else Taken(), theirs, duck, measured
                )
            found.append(ours.execution(workload.name, SPARK, subscriptions, publications))
            if duck is not None:
                found.append(theirs.execution(workload.name, DUCKDB, subscriptions, publications))
                pairs = zip(ours.seconds, theirs.seconds, strict=True)
                ratios.append(
                    Ratio(workload.name, subscriptions, publications, spread(a / b for a, b in pairs))
                )
            found.append(_alone(stage, workload, subscriptions, publications, plan.lonely))
        if duck is not None:
            duck.close()
    return found, ratios


async def _turn(
    stage: Stage,
    workload: w.Workload,
    publications: int,
    ours: Taken,
    theirs: Taken,
    duck: Duck | None,
    measured: bool,
) -> None:
    rows = workload.publications(stage.chance, publications)
    await stage.call(stage.append, workload.dataset, rows)
    before = cpu_s(stage.spark)
    turn = await stage.run(workload.channel)
    ours.cpu_s.append(cpu_s(stage.spark) - before)
    ours.seconds.append(turn.seconds)
    ours.results.append(turn.results)
    if duck is not None and measured:
        seconds, results = duck.run(rows)
        if abs(results - turn.results) > TALLY * max(results, 1):
            raise RuntimeError(f"{workload.name}: Spark has {turn.results} results, DuckDB {results}")
        theirs.seconds.append(seconds)
        theirs.results.append(results)


def _alone(
    stage: Stage, workload: w.Workload, subscriptions: int, publications: int, count: int
) -> Execution:
    """The time that all would take one after the other, from a few that were measured."""
    rows = workload.publications(stage.chance, publications)
    numbers = random.Random(subscriptions).sample(range(subscriptions), count + 3)
    taken = alone(stage.spark.session, workload, rows, numbers)[3:]
    return Execution(
        workload=workload.name,
        how=ALONE,
        subscriptions=subscriptions,
        publications=publications,
        results=subscriptions * publications / w.SHARE,
        ms=spread(each * 1e3 * subscriptions for each in taken),
        turns=count,
    )


async def measure_emergencies(spark: Spark, directory: Path, plan: Plan) -> Execution:
    """Everybody is subscribed; a tenth of them moves between two executions, and as many changes are settled."""
    people, taken = plan.people, Taken()
    async with opened(directory, spark, "emergencies") as stage:
        stage.create(w.PEOPLE, w.EMERGENCIES)
        stage.append(w.PEOPLE, w.moves(stage.chance, list(range(people)), now_us() - 10_000_000))
        stage.landing.upkeep(w.PEOPLE.name, now_us())
        stage.define(w.NEAR_ME)
        stage.hold(w.NEAR_ME, ((f"user-{i}",) for i in range(people)))
        await stage.call(stage.engine.fold)
        for turn in range(plan.warm + plan.turns):
            movers = list(range(turn % w.MOVE_SHARE, people, w.MOVE_SHARE))
            await stage.call(stage.append, w.PEOPLE, w.moves(stage.chance, movers, now_us()))
            if turn % 2:  # the pipeline does this every 20 s
                await stage.call(stage.landing.upkeep, w.PEOPLE.name, now_us())
            await stage.call(stage.append, w.EMERGENCIES, w.emergencies(stage.chance, plan.emergencies))
            before = cpu_s(spark)
            done = await stage.run(w.NEAR_ME)
            if turn >= plan.warm:
                taken.cpu_s.append(cpu_s(spark) - before)
                taken.seconds.append(done.seconds)
                taken.results.append(done.results)
    return taken.execution("emergencies", SPARK, people, plan.emergencies)


def committed_rate(executions: list[Execution]) -> Rate:
    """The figures of the execution with the most results."""
    most = max((each for each in executions if each.how == SPARK), key=lambda each: each.results)
    per_s = [most.results / (ms / 1e3) for ms in (most.ms.median, most.ms.low, most.ms.high)]
    return Rate(
        f"{COMMITTED} ({most.workload}, {most.subscriptions:,} × {most.publications:,})",
        round(most.results),
        spread(per_s),
    )
