"""Bug: the holder trusts its lease and appends without saying which position it expects."""

from __future__ import annotations

from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios import counter
from tocsin.sim.scenarios.counter.server import Server
from tocsin.sim.world import World


class TrustingServer(Server):
    def _expected(self) -> int | None:
        return None


@scenario("not-fenced", summary="appends without the epoch check", faults=counter.FAULTS)
def build(world: World) -> list[Invariant]:
    return counter.build(world, server=TrustingServer)
