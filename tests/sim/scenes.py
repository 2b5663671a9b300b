"""What scripted scenes on whole brokers share: four brokers in two clusters, programs by the clock, and a few seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from tocsin.client import AsyncClient
from tocsin.config import Settings
from tocsin.errors import TocsinError
from tocsin.sim.faults.kinds import Fault
from tocsin.sim.faults.plan import CALM
from tocsin.sim.process.stage import NETWORK, Stage, configured, server
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.runner import Broken, run
from tocsin.sim.runs.scenario import Scenario
from tocsin.sim.world import World

SECOND: Final = 1_000_000
TROUBLE_US: Final = 40 * SECOND
SETTLE_US: Final = 20 * SECOND
BROKERS: Final = ("north-1", "north-2", "south-1", "south-2")

Scene = Callable[[Stage], Invariant]  # adds its programs, and says what they are held to


def settings(**changes: object) -> Settings:
    """Those of the four brokers."""
    brokers = tuple(configured(name, name.partition("-")[0]) for name in BROKERS)
    return msgspec.structs.replace(Settings(network=NETWORK, brokers=brokers), **changes)


def first_broken(scene: Scene, chosen: Settings, plan: Sequence[Fault], seeds: int) -> Broken | None:
    """What the first seed breaks that breaks anything, from 0 on. A seed says how long messages take."""

    def build(world: World) -> list[Invariant]:
        stage = Stage(world, chosen)
        stage.add_coordinators("coordinator-1")
        stage.add_brokers()
        return [scene(stage)]

    scenario = Scenario("scene", "", build, CALM, TROUBLE_US, SETTLE_US)
    found = (run(scenario, seed, plan=list(plan)).broken for seed in range(seeds))
    return next((broken for broken in found if broken), None)


async def until(second: float) -> None:
    """Return at that second of the scene."""
    await asyncio.sleep(max(0.0, second - asyncio.get_running_loop().time()))


async def reached(broker: str, client_id: str, **options: Any) -> AsyncClient:
    """A client that is connected to this broker, however often it had to try, and never dials again."""
    options.setdefault("deadline_s", 2.0)
    while True:
        client = AsyncClient(server(broker), client_id=client_id, redial=False, **options)
        try:
            await client.connect()
            return client
        except TocsinError:
            await asyncio.sleep(0.2)
