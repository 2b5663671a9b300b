"""Figure 6: from publisher to subscriber, by the share of topics that stay in their LAN."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Final, Literal

import msgspec

from tocsin_labs.meter import Meter, between
from tocsin_labs.pubsubcoord.crowd import Heard, topics
from tocsin_labs.pubsubcoord.peer import leaves
from tocsin_labs.pubsubcoord.plan import Plan
from tocsin_labs.pubsubcoord.site import Cost, Site
from tocsin_labs.pubsubcoord.speech import Language
from tocsin_labs.pubsubcoord.wan import Lans, lans, loaded
from tocsin_labs.stage import Stage

ALL_LOCAL: Final = 1.0
System = Literal["tocsin", "nats"]
SPEAKS: Final[dict[System, Language]] = {"tocsin": "mqtt", "nats": "nats"}
SAID: Final[dict[System, str]] = {"tocsin": "", "nats": "NATS leaf nodes, "}


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the figure."""

    system: System
    topics: int  # a LAN
    locality: float
    floor_ms: float
    heard: Heard
    edges: Cost
    hubs: Cost


class Kept(msgspec.Struct, frozen=True):
    """What the links between LANs carried, in bytes a second: at rest, and while all topics were local."""

    topics: int
    messages_s: float
    rest_bytes_s: float
    local_bytes_s: float


async def run(plan: Plan, stage: Stage, points: list[Point], kept: list[Kept]) -> None:
    """Add each point: ours, and the peer's right after it, because the machine may have other work."""
    sizes = [(each, share) for each in plan.locality.topics for share in plan.locality.localities]
    stage.tell("Figure 6: the networks start", 0.0)
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(lans(plan.wan))
        sites: dict[System, Site] = {"tocsin": network}
        if plan.locality.peer:
            sites["nats"] = await stack.enter_async_context(leaves(plan.wan))
        for number, (each, share) in enumerate(sizes):
            for system, site in sites.items():
                if stage.is_cut:
                    return
                words = f"Figure 6: {SAID[system]}{each} topics a LAN, locality {share:g}"
                stage.tell(words, number / len(sizes))
                points.append(await _point(plan, site, system, each, share))
        if not stage.is_cut:
            stage.tell("Figure 6: all topics are local", 1.0)
            kept.append(await _kept(plan, network, max(plan.locality.topics)))


async def _point(plan: Plan, site: Site, system: System, each: int, locality: float) -> Point:
    chosen = topics(plan.wan.lans, each, locality)
    async with loaded(site, chosen, plan.load, plan.wan.lan_lag_s, SPEAKS[system]) as load:
        before, began_s = site.cpu_s(), time.monotonic()
        await load.begin()
        await asyncio.sleep(plan.locality.lasts_s)
        took_s = time.monotonic() - began_s
        edges, hubs = (site.cost(names, before, took_s) for names in (site.edges, site.hubs))
        heard = await load.end()
    return Point(
        system=system,
        topics=each,
        locality=locality,
        floor_ms=plan.wan.floor_ms(locality),
        heard=heard,
        edges=edges,
        hubs=hubs,
    )


async def _kept(plan: Plan, network: Lans, each: int) -> Kept:
    """The links are still there from the points before: what keeps them goes over them at rest, too."""
    meter, lasts_s = Meter(network.fleet.pids), plan.locality.lasts_s
    rest = await _on_wan(network, meter, lasts_s)
    chosen = topics(plan.wan.lans, each, ALL_LOCAL)
    async with loaded(network, chosen, plan.load, plan.wan.lan_lag_s) as load:
        await load.begin()
        local = await _on_wan(network, meter, lasts_s)
        heard = await load.end()
    return Kept(each, heard.sent / lasts_s, rest, local)


async def _on_wan(network: Lans, meter: Meter, seconds: float) -> float:
    before, began_s = meter.look(), time.monotonic()
    await asyncio.sleep(seconds)
    carried = between(before, meter.look())
    return network.on_wan(carried).bytes / (time.monotonic() - began_s)
