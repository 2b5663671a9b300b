"""Bug: an increment is acknowledged when its append is asked for, not when the log has it."""

from __future__ import annotations

from typing import ClassVar

from tocsin.core.machine import Append, Effect, Send, Stored, Table
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios import counter
from tocsin.sim.scenarios.counter.messages import Counted
from tocsin.sim.scenarios.counter.server import Server, ServerState
from tocsin.sim.world import World


class EagerServer(Server):
    def _count(self, cause: str) -> list[Effect]:
        effects = super()._count(cause)
        if any(isinstance(effect, Append) for effect in effects):
            for place, ((client, number), their_cause) in enumerate(self._batch, 1):
                told = Counted(number, self.count + place)
                effects.append(Send(cause=their_cause, to=client, message=told))
        return effects

    def _counted(self, event: Stored, now_us: int) -> list[Effect]:
        told_already = super()._counted(event, now_us)
        return [effect for effect in told_already if not isinstance(effect, Send)]

    table: ClassVar[Table] = {
        **Server.table,
        (ServerState.HOLDING, Stored): _counted,
    }


@scenario("acknowledged-early", summary="acknowledges before it is durable", faults=counter.FAULTS)
def build(world: World) -> list[Invariant]:
    return counter.build(world, server=EagerServer)
