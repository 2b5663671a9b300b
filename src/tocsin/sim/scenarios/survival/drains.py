"""``survival`` with an operator who has brokers emptied while others fail: nobody who is away is forgotten."""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.core.coordination.leader.balancing import KEY, ORDER, Order
from tocsin.errors import TocsinError
from tocsin.model.network import Address
from tocsin.ports import Table
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import NAMES
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.promises.looking import Brokers
from tocsin.sim.world import World

OPERATOR: Final[Address] = "operator"
GRACE_S: Final = 5
# When, in seconds, an operator has which broker emptied (True), or lets it take clients again. The last order stands.
ORDERS: Final = ((6, "north-1", True), (20, "north-1", False), (24, "south-2", True))
AGAIN_S: Final = 1.0


async def operate(process: SimulatedProcess) -> None:
    """Give the orders, each until the store has it."""
    loop = asyncio.get_running_loop()
    table = await process.store.table(NAMES.table)
    for at_s, broker, drains in ORDERS:
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        await _order(table, broker, drains)
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


class Emptied(Invariant):
    """A broker that an operator had emptied has no clients in the end."""

    name = "a broker that is being emptied has no clients in the end"

    def __init__(self, brokers: Brokers, at_us: int) -> None:
        self._brokers = brokers
        self._at_us = at_us

    def attach(self, world: World) -> None:
        world.at(self._at_us, self._look)

    def _look(self) -> None:
        _, broker, _ = ORDERS[-1]
        for running in self._brokers.named(broker):
            if running.clients:
                self.broken(f"{broker} still has {', '.join(running.clients)}")
