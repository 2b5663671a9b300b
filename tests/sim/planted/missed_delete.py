"""Bug: a watch that begins again is taken for one that goes on, so a lease that went meanwhile seems held for ever."""

from __future__ import annotations

from typing import ClassVar

from tocsin.core.machine import Effect, Table, Watched
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios import counter
from tocsin.sim.scenarios.counter.server import Server
from tocsin.sim.world import World


class UnwatchfulServer(Server):
    def _on_watched(self, event: Watched, now_us: int) -> list[Effect]:
        if event.change.kind == "reset":
            return []
        return super()._on_watched(event, now_us)

    table: ClassVar[Table] = {**Server.table, ("*", Watched): _on_watched}


@scenario("missed-delete", summary="a lost watch event", faults=counter.FAULTS, settle_us=counter.SETTLE_US)
def build(world: World) -> list[Invariant]:
    return counter.build(world, server=UnwatchfulServer)
