"""What clients publish, which links are cut, and which routing brokers an operator empties."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product
from typing import Final

import msgspec

from tocsin.core.coordination.leader.balancing import KEY, ORDER, Order
from tocsin.errors import TocsinError
from tocsin.model.network import Address
from tocsin.ports import Table
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import NAMES
from tocsin.sim.scenarios.links.traffic import LinkCut, Speak, station_of
from tocsin.sim.world import World

OPERATOR: Final[Address] = "operator"
TOPICS: Final = tuple(f"line/{number}" for number in range(12))
BUSY: Final = TOPICS[:2]
FIRST_US: Final = 4_000_000
PUBLISH_US: Final = 250_000
BUSY_US: Final = 60_000  # often enough for messages to overtake each other
MOMENT_US: Final = 1_500_000  # before the end, so that the last messages arrive
DRAINS_MAX: Final = 3
AGAIN_S: Final = 1.0


class Drain(msgspec.Struct, frozen=True):
    """A routing broker is emptied for a while; None: to the end."""

    broker: str
    at_us: int
    until_us: int | None


def draw_drains(hubs: Sequence[str], from_us: int, until_us: int, chance: Chance) -> tuple[Drain, ...]:
    """Most runs have some; one broker is emptied at a time."""
    drains = []
    at_us = from_us
    for _ in range(chance.below(DRAINS_MAX + 1)):
        at_us += chance.between(MILLION, 8 * MILLION)
        end_us = at_us + chance.between(MILLION, 12 * MILLION)
        if end_us >= until_us:
            break
        drains.append(Drain(chance.one_of(hubs), at_us, end_us if chance.below(4) else None))
        at_us = end_us
        if drains[-1].until_us is None:
            break
    return tuple(drains)


def draw_cuts(
    edges: Sequence[str], hubs: Sequence[str], from_us: int, until_us: int, chance: Chance
) -> tuple[LinkCut, ...]:
    """Single links from an edge to a routing broker, in one run of three."""
    if chance.below(3):
        return ()
    cuts = []
    for _ in range(chance.between(1, 2)):
        at_us = chance.between(from_us, until_us)
        end_us = min(until_us, at_us + chance.between(1, 10) * MILLION)
        cuts.append(LinkCut(at_us, end_us, ((chance.one_of(edges), chance.one_of(hubs)),)))
    return tuple(cuts)


def let_publish(world: World, names: Sequence[str], until_us: int, chance: Chance, *, hot: bool) -> None:
    """Somebody publishes all the time on any topic, and two so often that messages could overtake each other. At first
    everybody publishes on every topic: a new stream would wait for a leader. ``hot``: one of the two is published by
    everybody."""
    for at, (name, topic) in enumerate(product(names, TOPICS)):
        _speak_at(world, FIRST_US + at * PUBLISH_US // 4, name, topic)
    for at_us in range(PUBLISH_US, until_us - MOMENT_US, PUBLISH_US):
        _speak_at(world, at_us, chance.one_of(names), chance.one_of(TOPICS))
    for place, topic in enumerate(BUSY):
        several = names if hot and not place else (chance.one_of(names),)
        for busy in several:
            for at_us in range(PUBLISH_US + chance.below(BUSY_US), until_us - MOMENT_US, BUSY_US):
                _speak_at(world, at_us, busy, topic)


def _speak_at(world: World, at_us: int, broker: str, topic: str) -> None:
    def speak() -> None:
        world.post(station_of(broker), Speak(topic=topic, cause=topic))

    world.at(at_us, speak)


async def operate(drains: Sequence[Drain], process: SimulatedProcess) -> None:
    """Give the orders, each until the store has it."""
    loop = asyncio.get_running_loop()
    table = await process.store.table(NAMES.table)
    for drain in drains:
        await asyncio.sleep(max(0.0, drain.at_us / 1e6 - loop.time()))
        await _order(table, drain.broker, True)
        if drain.until_us is not None:
            await asyncio.sleep(max(0.0, drain.until_us / 1e6 - loop.time()))
            await _order(table, drain.broker, False)
    await loop.create_future()


async def _order(table: Table, broker: str, drains: bool) -> None:
    while True:
        try:
            if drains:
                await table.put(f"{KEY}{broker}", ORDER.write(Order(0)))
            else:
                await table.delete(f"{KEY}{broker}")
        except TocsinError:
            await asyncio.sleep(AGAIN_S)
        else:
            return
