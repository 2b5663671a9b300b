"""``survival`` with an operator who has brokers emptied while others fail: nobody who is away is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from tocsin.core.coordination.leader.balancing import KEY, ORDER, Order
from tocsin.errors import TocsinError
from tocsin.model.network import Address
from tocsin.ports import Table
from tocsin.sim.chance import MILLION
from tocsin.sim.node import Status
from tocsin.sim.process.broker import coordinator_at
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import NAMES
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.promises.looking import Brokers
from tocsin.sim.world import World

OPERATOR: Final[Address] = "operator"
GRACE_S: Final = 5
Given = tuple[float, str, bool]  # an order: in which second, to which broker, and whether it is emptied

# When an operator has which broker emptied (True), or lets it take clients again. The last order stands.
# The second order for north-1 comes when it has no clients, mostly, and takes them.
ORDERS: Final[tuple[Given, ...]] = (
    (6, "north-1", True),
    (18.3, "north-1", False),
    (20.3, "north-1", True),
    (22.3, "north-1", False),
    (24, "south-2", True),
)
# Whole clusters: the one, the other instead, for a while all brokers that there are, and in the end the one again.
CLUSTER_ORDERS: Final[tuple[Given, ...]] = (
    *((6.3, each, True) for each in ("north-1", "north-2")),
    *((16.3, each, False) for each in ("north-1", "north-2")),
    *((16.4, each, True) for each in ("south-1", "south-2")),
    *((22.3, each, True) for each in ("north-1", "north-2")),
    *((26.3, each, False) for each in ("south-1", "south-2")),
)
AGAIN_S: Final = 1.0


async def operate(orders: Sequence[Given], process: SimulatedProcess) -> None:
    """Give orders, each until the store has it."""
    loop = asyncio.get_running_loop()
    table = await process.store.table(NAMES.table)
    for at_s, broker, drains in orders:
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
    """A broker that an operator had emptied has no clients in the end, unless all others are emptied as well."""

    name = "a broker that is being emptied has no clients in the end"

    def __init__(self, brokers: Brokers, orders: Sequence[Given], at_us: int) -> None:
        self._brokers = brokers
        last = {broker: drains for _, broker, drains in orders}
        self._emptied = [broker for broker, drains in last.items() if drains]
        self._at_us = at_us

    def attach(self, world: World) -> None:
        world.at(self._at_us, self._look)

    def _look(self) -> None:
        for broker in self._emptied:
            for running in self._brokers.named(broker):
                if running.clients:
                    self.broken(f"{broker} still has {', '.join(running.clients)}")


LOOK_US: Final = MILLION // 20
PLAIN_US: Final = (
    3 * MILLION
)  # for which nothing was wrong: a leader has told a broker by then, and has heard it


class EmptyTakesNobody(Invariant):
    """A broker takes no new clients from when the leader says that it is empty.

    Only what is plain is judged: a leader and a broker that were awake for a while, with a calm network. Otherwise
    another leader, which has not heard of the order yet, may have told the broker something else.
    """

    name = "a broker that is said to be empty takes no new clients"

    def __init__(self, brokers: Brokers, coordinators: tuple[str, ...], until_us: int) -> None:
        self._brokers = brokers
        self._coordinators = coordinators
        self._until_us = until_us
        self._wrong_us = 0

    def attach(self, world: World) -> None:
        self._look(world)

    def _look(self, world: World) -> None:
        now_us = world.now_us
        nodes = (*self._brokers.nodes, *self._coordinators)
        awake = all(world.node(each).status is Status.RUNNING for each in nodes)
        if not awake or not self._brokers.is_calm():
            self._wrong_us = now_us
        elif now_us - self._wrong_us > PLAIN_US:
            for each in self._coordinators:
                self._judge(world, each)
        if now_us < self._until_us:
            world.at(now_us + LOOK_US, partial(self._look, world))

    def _judge(self, world: World, coordinator: str) -> None:
        machine = coordinator_at(world, coordinator)
        if machine is None or machine.leader is None:
            return
        members = machine.replica.members
        here = {broker: member.incarnation for broker, member in members.items()}
        for found in machine.leader.attention.balance.emptying(here):
            for running in self._brokers.named(found.broker):
                same = running.member.incarnation == here.get(found.broker)
                if found.empty and same and not running.drains:
                    self.broken(f"{coordinator} says that {found.broker} is empty, and it takes clients")
