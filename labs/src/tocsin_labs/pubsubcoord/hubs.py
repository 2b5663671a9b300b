"""Figures 7b and 7e: how many routing brokers a load needs; real ones held to a share of a processor, and virtual ones.

Real: the rate rises until the hubs cannot follow; that is what so many of them can carry. Then further ones are started
while the load runs, at a rate that was too much, and the course of the latency says when that has helped. Hubs have a
small share of a processor each (``quota``), because edge brokers and the load need the rest of this machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin_labs.pubsubcoord.costs import Costs
from tocsin_labs.pubsubcoord.crowd import Heard, Job, Topic, Window
from tocsin_labs.pubsubcoord.plan import Load, Plan, Wan
from tocsin_labs.pubsubcoord.quota import Quotas, quotas
from tocsin_labs.pubsubcoord.site import Cost
from tocsin_labs.pubsubcoord.topics import Shape, Weighed, fitted, size, weigh
from tocsin_labs.pubsubcoord.virtual import Virtual
from tocsin_labs.pubsubcoord.virtual import run as simulate
from tocsin_labs.pubsubcoord.wan import Lans, Running, lans, working
from tocsin_labs.stage import Stage

SLOWER_MS: Final = 100.0  # than at rest, at the 99th percentile: from then on hubs do not follow
BEGINS: Final = 0.75  # of what so many hubs should carry: the first rate that is tried
TRIES: Final = 2  # of one rate, before it counts as not followed: the machine may have other work
REST: Final = 0.4  # of that: the rate between measurements
TOO_MUCH: Final = 1.15  # of what the hubs carry, while others are added
BEFORE_S: Final = 1.0  # at that rate, before they are
WITHIN: Final = 1.2  # times the 99th percentile at rest: from then on they have helped
WINDOW_S: Final = 0.5
SMOOTH: Final = 5  # windows, of which the middle one counts
EVEN_S: Final = 20.0
DRAIN_S: Final = 2.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One rate."""

    offered_s: float  # messages a second
    p50_ms: float
    p99_ms: float
    lost: int
    late_p99_ms: float  # of the load itself
    hub: Cost
    follows: bool  # the hubs do


class Added(msgspec.Struct, frozen=True):
    """What came of hubs that were added, by the time since the order."""

    offered_s: float
    started_s: float  # until they ran
    helped_s: float | None  # until the 99th percentile stayed near that at rest
    lost: int
    doubled: int
    disordered: int
    windows: tuple[Window, ...]


class Stand(msgspec.Struct, frozen=True, kw_only=True):
    """So many hubs."""

    hubs: int
    share: float  # of a processor, that each may use
    by: str  # what holds them to it
    rest_p99_ms: float
    steps: tuple[Step, ...]
    uneven: float  # the topics of the hub with most, against the mean
    added: Added | None  # how it became so many; None: it began so

    @property
    def capacity_s(self) -> float:
        """The highest rate that they followed."""
        return max((each.offered_s for each in self.steps if each.follows), default=0.0)


async def run(
    plan: Plan, stage: Stage, weighed: list[Weighed], stands: list[Stand], virtual: list[Virtual]
) -> None:
    """Add each number of hubs. The virtual ones have the costs that were weighed, here if not before."""
    with quotas() as held:
        await _grow(plan, stage, held, stands)
    if not weighed and not stage.is_cut:
        count, most = plan.topics.others, max(plan.topics.topics)
        shapes = Shape(count), Shape(most), Shape(count, lans=plan.topics.lans)
        await weigh(plan, stage, shapes, weighed, "Figure 7b, costs")
    if stage.is_cut:
        return
    costs: Costs = fitted(weighed)
    for count in plan.hubs.virtual:
        stage.tell(f"Figure 7b, virtual: {count} hubs", 1.0)
        virtual.append(
            await asyncio.to_thread(simulate, size(plan, plan.hubs.topics_each, count), costs, plan.seed)
        )


async def _grow(plan: Plan, stage: Stage, held: Quotas, stands: list[Stand]) -> None:
    hubs = plan.hubs
    stage.tell("Figure 7b: the network starts", 0.0)
    wan = Wan(2, max(hubs.hubs), plan.wan.lan_lag_s, plan.wan.wan_lag_s)
    async with lans(wan, hubs=hubs.hubs[0]) as network:
        chosen = tuple(Topic(f"topic/{number}", number % 2, 1 - number % 2) for number in range(hubs.topics))
        job = Job(
            entrances=tuple(network.entrances), topics=chosen, load=_load(plan, hubs.rate * REST),
            lag_s=wan.lan_lag_s, trunks=True, window_s=WINDOW_S,
        )  # fmt: skip
        async with working(job) as load:
            grower = _Grower(plan, network, load, held)
            for number, count in enumerate(hubs.hubs):
                if stage.is_cut:
                    return
                stage.tell(f"Figure 7b: {count} hubs", number / len(hubs.hubs))
                stands.append(await grower.stand(count, stands[-1] if stands else None))


def _load(plan: Plan, rate: float) -> Load:
    return Load(plan.hubs.topics / rate, plan.load.payload_bytes, warm_s=1.0, settle_s=1.0)


class _Grower:
    """The tier, as it grows under the load."""

    def __init__(self, plan: Plan, network: Lans, load: Running, held: Quotas) -> None:
        self._plan, self._network, self._load, self._held = plan, network, load, held
        self._names = [f"topic/{number}" for number in range(plan.hubs.topics)]

    async def stand(self, count: int, before: Stand | None) -> Stand:
        """With so many hubs: how they came, and what they carry."""
        plan, network = self._plan.hubs, self._network
        added = None
        if before is None:
            self._hold()
        else:
            added = await self._add(count, before)
        expected = plan.rate if before is None else count * before.capacity_s / before.hubs
        await self._rate(REST * expected)
        await asyncio.sleep(DRAIN_S)
        parts = await network.shared(EVEN_S, self._names)
        await network.delay()
        rest = await self._step(REST * expected, None)
        steps: list[Step] = []
        rate = BEGINS * expected if before is not None else expected
        while len(steps) < plan.rates and (not steps or steps[-1].follows):
            for _ in range(TRIES):
                step = await self._step(rate, rest.p99_ms)
                if step.follows:
                    break
                await self._rate(REST * expected)
                await asyncio.sleep(DRAIN_S)
            steps.append(step)
            rate *= plan.step
        return Stand(
            hubs=count,
            share=plan.share,
            by=self._held.words,
            rest_p99_ms=rest.p99_ms,
            steps=tuple(steps),
            uneven=max(parts.values()) * len(parts),
            added=added,
        )

    def _hold(self) -> None:
        """All hubs that run, to their share."""
        for name, pid in self._network.processes().items():
            if name in self._network.hubs:
                self._held.hold(name, pid, self._plan.hubs.share)

    async def _rate(self, rate: float) -> None:
        await self._load.period(self._plan.hubs.topics / rate)

    async def _step(self, rate: float, rest_p99_ms: float | None) -> Step:
        network = self._network
        await self._rate(rate)
        await asyncio.sleep(self._plan.hubs.topics / rate)  # the period in which that happens
        before, began_s = network.cpu_s(), time.monotonic()
        await self._load.begin()
        await asyncio.sleep(self._plan.hubs.lasts_s)
        running = [name for name in network.hubs if name in network.processes()]
        cost = network.cost(running, before, time.monotonic() - began_s)
        heard = await self._load.pause()
        p99_ms = heard.all_ms.p99
        return Step(
            offered_s=rate,
            p50_ms=heard.all_ms.p50,
            p99_ms=p99_ms,
            lost=heard.lost,
            late_p99_ms=heard.late_ms.p99,
            hub=cost,
            follows=not heard.lost and (rest_p99_ms is None or p99_ms < rest_p99_ms + SLOWER_MS),
        )

    async def _add(self, count: int, before: Stand) -> Added:
        """Start hubs while those there are cannot follow."""
        network, plan = self._network, self._plan.hubs
        offered_s = TOO_MUCH * before.capacity_s
        await self._rate(REST * before.capacity_s)
        await asyncio.sleep(DRAIN_S)
        await network.delay()
        await self._rate(offered_s)
        await asyncio.sleep(BEFORE_S)
        await self._load.begin()
        ordered_s = time.monotonic()
        await network.fleet.start(network.hubs[before.hubs : count])
        started_s = time.monotonic() - ordered_s
        self._hold()
        await network.delay()
        await asyncio.sleep(max(0.0, plan.added_s - (time.monotonic() - ordered_s)))
        heard: Heard = await self._load.pause()
        return Added(
            offered_s=offered_s,
            started_s=started_s,
            helped_s=helped(heard.windows, WITHIN * before.rest_p99_ms),
            lost=heard.lost,
            doubled=heard.doubled,
            disordered=heard.disordered,
            windows=heard.windows,
        )


def helped(windows: Sequence[Window], limit_ms: float) -> float | None:
    """From when on the middle one of some windows is below the limit; None: never, or not at the end."""
    middles = [
        sorted(each.p99_ms for each in windows[at : at + SMOOTH])[SMOOTH // 2]
        for at in range(len(windows) - SMOOTH + 1)
    ]
    since = len(middles)
    while since and middles[since - 1] <= limit_ms:
        since -= 1
    return windows[since].at_s if since < len(middles) else None
