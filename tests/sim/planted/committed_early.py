"""Bug: the notifier keeps its position first and tells the listener afterwards."""

from __future__ import annotations

from typing import ClassVar

from tocsin.core.machine import Effect, Followed, PutKey, Received, Table
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios import counter
from tocsin.sim.scenarios.counter.clients import Notifier, NotifierState
from tocsin.sim.world import World


class HastyNotifier(Notifier):
    def _on_entry(self, event: Followed, now_us: int) -> list[Effect]:
        return [self._keep(event.cause, event.entry.position), *super()._on_entry(event, now_us)]

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        return [effect for effect in super()._on_message(event, now_us) if not isinstance(effect, PutKey)]

    table: ClassVar[Table] = {
        **Notifier.table,
        (NotifierState.FOLLOWING, Followed): _on_entry,
        (NotifierState.FOLLOWING, Received): _on_message,
    }


@scenario("committed-early", summary="commits the position before the send", faults=counter.FAULTS)
def build(world: World) -> list[Invariant]:
    return counter.build(world, notifier=HastyNotifier)
