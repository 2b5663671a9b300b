"""Bug: a request that is repeated is counted again, because nobody looks whether it was counted before."""

from __future__ import annotations

from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios import counter
from tocsin.sim.scenarios.counter.messages import Key
from tocsin.sim.scenarios.counter.server import Server
from tocsin.sim.world import World


class ForgetfulServer(Server):
    def _already(self, key: Key) -> int | None:
        return None

    def _record_id(self, key: Key) -> str:
        return f"{super()._record_id(key)}-{self._requests}"


@scenario("counted-twice", summary="a retry that is not idempotent", faults=counter.FAULTS)
def build(world: World) -> list[Invariant]:
    return counter.build(world, server=ForgetfulServer)
