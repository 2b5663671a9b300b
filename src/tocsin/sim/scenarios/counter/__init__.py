"""A counter behind a lease: small enough to read at a sitting, and with every trap of replicated state in it.

Three servers compete for a lease in a table; the holder appends its clients' increments to a log and acknowledges
them; a notifier follows the log by position and tells a listener. It shows how a scenario is written;
``tests/sim/planted`` has the same with one bug each.
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.model.network import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.counter.clients import Client, Listener, Notifier
from tocsin.sim.scenarios.counter.messages import LEASES, LOG, POSITIONS
from tocsin.sim.scenarios.counter.promises import promises
from tocsin.sim.scenarios.counter.server import Server
from tocsin.sim.world import World

SERVERS = ("server/1", "server/2", "server/3")
CLIENTS = ("client/1", "client/2")
NOTIFIER = "notifier"
LISTENER = "listener"
INCREMENTS = 25  # of each client: with half a second of thought, most of them fall into the trouble

FAULTS = Profile(targets=(*SERVERS, NOTIFIER))  # clients and listener are the outside, which keeps its memory
TROUBLE_US = 20 * MILLION
SETTLE_US = 30 * MILLION


@scenario(
    "counter",
    summary="a counter behind a lease: three servers, two clients, and a notifier",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(
    world: World,
    server: Callable[[Address], Server] = Server,
    notifier: Callable[[Address], Notifier] = Notifier,
) -> list[Invariant]:
    """Fill a world; ``server`` and ``notifier`` are the machines to use, so that a variant can be tried."""
    world.log(LOG)
    world.table(LEASES)
    world.table(POSITIONS)
    for address in SERVERS:
        world.add(address, lambda _disk, address=address: server(address))  # type: ignore[misc]
    for address in CLIENTS:
        world.add(address, lambda _disk, address=address: Client(address, SERVERS, INCREMENTS))  # type: ignore[misc]
    world.add(NOTIFIER, lambda _disk: notifier(LISTENER))
    world.add(LISTENER, lambda _disk: Listener())
    return [*promises(), AllRunning()]
