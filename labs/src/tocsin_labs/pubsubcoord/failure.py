"""What the paper has not evaluated: all slots move, or a hub is drained, killed or frozen, under the load of Figure 6.

Every case has the same length and load; in the first one nothing happens. A *silence* is the time between two arrivals
on one topic: at rest it is the period.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from tocsin_labs.pubsubcoord.crowd import Heard, topics
from tocsin_labs.pubsubcoord.plan import Failure, Plan, Way
from tocsin_labs.pubsubcoord.wan import Lans, lans, loaded
from tocsin_labs.stage import Stage

DOES: Final[dict[Way, str]] = {
    "nothing": "nothing happens",
    "moved": "every slot moves to another hub",
    "drained": "a hub is drained, and stopped",
    "killed": "a hub is killed",
    "frozen": "a hub is frozen",
}
LEAVES_S: Final = 1.0  # from when a hub is empty until it is stopped, and at least from then to the end
INTERRUPTED: Final = 3.0  # periods: a topic with a longer silence counts as interrupted


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """One case."""

    way: Way
    hub: str
    part: float  # of the topics across, that the hub carried
    happened_s: float  # from when messages counted
    empty_s: float | None  # from the order until the hub carried no slot, or every slot had moved
    period_s: float
    flight: int  # messages that were on the hub's ways at a time, by the load and the delays
    heard: Heard

    @property
    def interrupted(self) -> list[float]:
        """The silences of the topics that were."""
        return [each for each in self.heard.silences_s if each > INTERRUPTED * self.period_s]


async def run(plan: Plan, stage: Stage, found: list[Failed]) -> None:
    """Add each case. All hubs carry their part before something happens."""
    stage.tell("Failure: the network starts", 0.0)
    async with lans(plan.wan) as network:
        ways = plan.failure.ways
        for number, way in enumerate(ways):
            if stage.is_cut:
                return
            stage.tell(f"Failure: {DOES[way]}", number / len(ways))
            found.append(await _case(plan, network, way))
            if way != ways[-1]:
                await network.restore()


async def _case(plan: Plan, network: Lans, way: Way) -> Failed:
    """It befalls the hub that carries most of the topics."""
    failure, load, wan = plan.failure, plan.load, plan.wan
    each_lan = failure.moved_topics if way == "moved" else failure.topics
    chosen = topics(wan.lans, each_lan, failure.locality)
    names = [each.name for each in chosen if not each.is_local]
    async with loaded(network, chosen, load, wan.lan_lag_s) as running:
        parts = await network.shared(failure.even_s, names)
        hub = max(network.hubs, key=lambda each: parts[each])
        await running.begin()
        began_s = time.monotonic()
        await asyncio.sleep(failure.before_s)
        happened_s = time.monotonic()
        empty_s = await _happen(network, way, hub, failure)
        await asyncio.sleep(max(LEAVES_S, happened_s + failure.after_s - time.monotonic()))
        heard = await running.end()
    return Failed(
        way=way,
        hub=hub,
        part=parts[hub],
        happened_s=happened_s - began_s,
        empty_s=empty_s,
        period_s=load.period_s,
        flight=round(len(names) / load.period_s * parts[hub] * 2 * wan.wan_lag_s),
        heard=heard,
    )


async def _happen(network: Lans, way: Way, hub: str, failure: Failure) -> float | None:
    began_s = time.monotonic()
    match way:
        case "moved":
            return await network.rotate(failure.empty_s)
        case "drained":
            await network.drain(hub)
            if not await network.emptied(hub, failure.empty_s):
                return None
            empty_s = time.monotonic() - began_s
            await asyncio.sleep(LEAVES_S)  # what is on its way goes through it
            await network.fleet.stop(hub)
            return empty_s
        case "killed":
            network.fleet.kill([hub])
        case "frozen":
            network.fleet.freeze(hub)
            await asyncio.sleep(failure.frozen_s)
            network.fleet.thaw(hub)
    return None
