"""A hundred channels side by side: what a tick of many costs beside a tick of one, and whether each gets its turn."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec

from bench.channels import workloads as w
from bench.channels.figures import Due, Fairness
from bench.channels.stage import Stage, now_us, opened
from bench.load.figures import spread
from tocsin.core.channels.schedule import Plan, Schedule
from tocsin.model.catalogue import Channel
from tocsin.pipeline.spark.session import Spark

CHANNELS: Final = 100
SUBSCRIPTIONS: Final = 100  # of each
PUBLICATIONS: Final = 100
SHAPES: Final = 10
QUICKER: Final = 5.0  # periods are this much shorter than they stand for, so that a minute shows five


async def measure(
    spark: Spark, directory: Path, warm: int, turns: int, fair_s: float
) -> tuple[list[Due], Fairness]:
    alike = w.many_channels(CHANNELS)
    async with opened(directory, spark, "many") as stage:
        stage.create(w.EQUALITY.dataset)
        await _define(stage, alike)
        found = await _ticks(stage, alike, (1, CHANNELS // 10, CHANNELS), 1, warm, turns)
        fairness = await _side_by_side(stage, alike, fair_s)
    async with opened(directory, spark, "shapes") as stage:
        stage.create(w.EQUALITY.dataset)
        unlike = [
            msgspec.structs.replace(each, query=each.query.replace("r.text", f"r.text AS text{i % SHAPES}"))
            for i, each in enumerate(alike)
        ]
        await _define(stage, unlike)
        found += (await _ticks(stage, unlike, (1, CHANNELS), SHAPES, max(warm // 2, 1), turns))[1:]
    return found, fairness


async def _define(stage: Stage, channels: list[Channel]) -> None:
    stage.define(*channels)
    for each in channels:
        stage.hold(each, (w.EQUALITY.values(i) for i in range(SUBSCRIPTIONS)))
    await stage.call(stage.engine.fold)


async def _ticks(
    stage: Stage, channels: list[Channel], counts: tuple[int, ...], shapes: int, warm: int, turns: int
) -> list[Due]:
    taken: dict[int, list[float]] = {count: [] for count in counts}
    for turn in range(warm + turns):
        for count in counts:
            await stage.run(*channels)  # all have read the same then, and are one group
            rows = w.EQUALITY.publications(stage.chance, PUBLICATIONS)
            await stage.call(stage.append, w.EQUALITY.dataset, rows)
            done = await stage.run(*channels[:count])
            if turn >= warm:
                taken[count].append(done.seconds)
    one = taken[counts[0]]
    return [
        Due(
            count,
            1 if count == 1 else shapes,
            spread(each * 1e3 for each in of),
            spread(a / b for a, b in zip(of, one, strict=True)),
        )
        for count, of in taken.items()
    ]


async def _side_by_side(stage: Stage, channels: list[Channel], seconds: float) -> Fairness:
    """In real time, by the pipeline's own schedule, with something new every half second."""
    schedule = Schedule()
    named = {each.name.lower(): each for each in channels}
    began_us = now_us()
    periods_us = {name: int((each.every_s or 0) / QUICKER * 1e6) for name, each in named.items()}
    for name in named:
        schedule.define(name, Plan(every_us=periods_us[name], shape="one"), began_us, last_us=began_us)
    late: list[float] = []
    executions: dict[str, int] = dict.fromkeys(named, 0)
    ticks = overruns = 0
    feeding = asyncio.create_task(_feed(stage))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        taken_us = now_us()
        turns = schedule.take(taken_us)
        if not turns:
            next_us = schedule.next_us(taken_us) or taken_us + 10_000
            await asyncio.sleep(min(max((next_us - taken_us) / 1e6, 0.0), 0.05))
            continue
        late += [taken_us % periods_us[turn.channel] / 1e3 for turn in turns]
        overruns += sum(turn.skipped for turn in turns)
        tick = await stage.run(*(named[turn.channel] for turn in turns))
        ticks += 1
        for each in tick.done:
            executions[each.channel] += 1
            schedule.done(each.channel, now_us(), read=each.read, cost_us=each.took_us)
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    ended_us = now_us()
    intervals = {name: ended_us // every - began_us // every for name, every in periods_us.items()}
    shares = [executions[name] / intervals[name] for name in named if intervals[name]]
    return Fairness(
        len(channels),
        (ended_us - began_us) / 1e6,
        ticks,
        sum(executions.values()),
        overruns,
        min(shares),
        spread(late),
    )


async def _feed(stage: Stage) -> None:
    while True:
        rows = w.EQUALITY.publications(stage.chance, PUBLICATIONS)
        await stage.call(stage.append, w.EQUALITY.dataset, rows)
        await asyncio.sleep(0.5)
