"""Figures 7a and 7d: ever more topics in a network; on real brokers, and for the paper's 160 in virtual time.

Real: publishers in one LAN, subscribers in another one, a routing broker between them, with the delays of Figure 6.
What messages cost these three is measured at every point, and is the cost model of the virtual part (``costs``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin_labs.pubsubcoord.costs import Costs, Line
from tocsin_labs.pubsubcoord.crowd import Heard, Topic
from tocsin_labs.pubsubcoord.plan import Plan, Wan
from tocsin_labs.pubsubcoord.site import Cost
from tocsin_labs.pubsubcoord.virtual import Size, Virtual
from tocsin_labs.pubsubcoord.virtual import run as simulate
from tocsin_labs.pubsubcoord.wan import Lans, lans, loaded
from tocsin_labs.stage import Stage

SOURCE, TARGET = 0, 1  # LANs
LEAST_S: Final = 1e-7  # what cannot be told from nothing


class Shape(msgspec.Struct, frozen=True):
    """A load: so many topics, each with so many subscribers in each of so many LANs."""

    topics: int
    readers: int = 1
    lans: int = 1

    @property
    def is_plain(self) -> bool:
        return self.readers == self.lans == 1

    @property
    def words(self) -> str:
        if self.lans > 1:
            return f"{self.topics} topics, subscribers in {self.lans} LANs"
        return f"{self.topics} topics, {self.readers} subscriber{'s' * (self.readers > 1)} each"


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """What a load took."""

    shape: Shape
    messages_s: float  # published
    floor_ms: float
    heard: Heard
    source: Cost  # of the publishers' edge broker
    hub: Cost
    target: Cost  # of the subscribers' edge brokers


def shapes(plan: Plan) -> list[Shape]:
    """All loads: first those that become a line."""
    each = plan.topics
    return [
        *(Shape(count) for count in each.topics),
        *(Shape(each.others, readers) for readers in each.readers),
        Shape(each.others, lans=each.lans),
    ]


async def run(plan: Plan, stage: Stage, weighed: list[Weighed], virtual: list[Virtual]) -> None:
    """Weigh each load; then the paper's network with what was found."""
    await weigh(plan, stage, shapes(plan), weighed, "Figure 7a")
    if stage.is_cut:
        return
    costs = fitted(weighed)
    for count in plan.topics.networks:
        stage.tell(f"Figure 7a, virtual: {count} topics a network", 1.0)
        virtual.append(
            await asyncio.to_thread(simulate, size(plan, count, plan.cloud.hubs), costs, plan.seed)
        )


async def weigh(plan: Plan, stage: Stage, chosen: Sequence[Shape], weighed: list[Weighed], name: str) -> None:
    """Add what each load takes."""
    stage.tell(f"{name}: the network starts", 0.0)
    wan = Wan(1 + max(each.lans for each in chosen), 1, plan.wan.lan_lag_s, plan.wan.wan_lag_s)
    async with lans(wan) as network:
        for number, shape in enumerate(chosen):
            if stage.is_cut:
                return
            stage.tell(f"{name}: {shape.words}", number / len(chosen))
            weighed.append(await _weighed(plan, network, shape))


async def _weighed(plan: Plan, network: Lans, shape: Shape) -> Weighed:
    more = tuple(range(TARGET + 1, TARGET + shape.lans))
    chosen = tuple(
        Topic(f"topic/{number}", SOURCE, TARGET, more, shape.readers) for number in range(shape.topics)
    )
    async with loaded(network, chosen, plan.load, plan.wan.lan_lag_s) as load:
        before, began_s = network.cpu_s(), time.monotonic()
        await load.begin()
        await asyncio.sleep(plan.topics.lasts_s)
        took_s = time.monotonic() - began_s
        groups = ([network.edges[SOURCE]], network.hubs, network.edges[TARGET : TARGET + shape.lans])
        source, hub, target = (network.cost(names, before, took_s) for names in groups)
        heard = await load.end()
    return Weighed(
        shape=shape,
        messages_s=heard.sent / shape.readers / shape.lans / took_s,
        floor_ms=plan.wan.floor_ms(0.0),
        heard=heard,
        source=source,
        hub=hub,
        target=target,
    )


def fitted(weighed: Sequence[Weighed]) -> Costs:
    """The cost model."""
    plain = [each for each in weighed if each.shape.is_plain]
    heaviest = max(plain, key=lambda each: each.messages_s)
    alike = {each.shape.topics: each for each in plain}
    outs, crowded = [], []
    for each in weighed:
        one = alike.get(each.shape.topics)
        if one is None or each is one:
            continue
        if each.shape.lans > 1:
            outs.append((each.hub.share - one.hub.share) / each.messages_s / (each.shape.lans - 1))
        else:
            crowded.append(
                (each.target.share - one.target.share) / each.messages_s / (each.shape.readers - 1)
            )
    return Costs(
        source_line=Line.of([(each.messages_s, each.source.share) for each in plain]),
        hub_line=Line.of([(each.messages_s, each.hub.share) for each in plain]),
        target_line=Line.of([(each.messages_s, each.target.share) for each in plain]),
        source_s=heaviest.source.share / heaviest.messages_s,
        hub_s=heaviest.hub.share / heaviest.messages_s,
        target_s=heaviest.target.share / heaviest.messages_s,
        out_s=max(LEAST_S, _mean(outs)),
        reader_s=max(LEAST_S, _mean(crowded)),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def size(plan: Plan, topics: int, hubs: int) -> Size:
    """The paper's network with so many topics in each network of a subscriber's."""
    cloud = plan.cloud
    return Size(
        sources=cloud.sources,
        targets=cloud.targets,
        hubs=hubs,
        topics=topics * cloud.targets // cloud.networks,
        networks=cloud.networks,
        period_s=plan.load.period_s,
        lan_lag_s=plan.wan.lan_lag_s,
        wan_lag_s=plan.wan.wan_lag_s,
        lasts_s=cloud.lasts_s,
    )
