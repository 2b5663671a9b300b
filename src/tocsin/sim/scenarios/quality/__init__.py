"""Offers and requests at whole brokers: subscribers get the durable messages that meet their requests, and no others.

The brokers, the sessions and the faults are those of ``durable``. Each message states what its stream offers; what it
offers changes from message to message, and some of it is so long that the log has it by reference. Subscribers request
partitions, deadlines and fields of the payload, and one of them history.
"""

from __future__ import annotations

from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.durable import CALM_US, FAULTS, MESSAGES, SETTLE_US, TROUBLE_US
from tocsin.sim.scenarios.quality.population import fill
from tocsin.sim.world import World


@scenario(
    "quality",
    summary="offers and requests: who is away gets what would have matched, and nothing else",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
    calm_us=CALM_US,
)
def build(world: World) -> list[Invariant]:
    return fill(world, TROUBLE_US, MESSAGES)
