"""Channels: a pipeline that commits results, brokers that hold subscriptions and deliver, clients that move about.

The cores are those that ship: holdings, attendance with both tracks, custody, stored sessions. The machines here play
the asyncio shells around them, and the pipeline. Everything but the clients is killed.
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.model.message import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.network import Link
from tocsin.sim.plan import Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.channels.broker import ChannelBroker
from tocsin.sim.scenarios.channels.clients import ChannelClient
from tocsin.sim.scenarios.channels.pipeline import Pipeline
from tocsin.sim.scenarios.channels.promises import promises
from tocsin.sim.scenarios.channels.wire import FILES, NOTICES, SUBSCRIPTIONS
from tocsin.sim.scenarios.durable.wire import LOG, SESSIONS
from tocsin.sim.world import World

BROKERS = ("broker/1", "broker/2", "broker/3")
PIPELINE = "pipeline"
CLIENTS = (
    ("client/1", ("$channel/Near/a", "$channel/Near/b")),
    ("client/2", ("$channel/Near/b", "$channel/Near/a", "$channel/Near/c")),
    ("client/3", ("$channel/Near/d", "$channel/Near/c")),
)
FAULTS = Profile(targets=(*BROKERS, PIPELINE))  # clients are the outside, which keeps its memory
TROUBLE_US = 20 * MILLION
RESULTS_US = 22 * MILLION  # until then there are new ones
SETTLE_US = 30 * MILLION
_CONNECTION = Link(fifo=True)


@scenario(
    "channels",
    summary="results of channels: a pipeline, three brokers that hold subscriptions, clients that move",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World, broker: Callable[[Address], ChannelBroker] = ChannelBroker) -> list[Invariant]:
    """Fill a world; ``broker`` is the machine to use, so that a variant can be tried."""
    world.network.link_of = lambda sender, receiver: _CONNECTION
    for log in (LOG, NOTICES, FILES):
        world.log(log)
    for table in (SESSIONS, SUBSCRIPTIONS):
        world.table(table)
    world.add(PIPELINE, lambda _disk: Pipeline(PIPELINE, RESULTS_US))
    for address in BROKERS:
        world.add(address, lambda _disk, address=address: broker(address))  # type: ignore[misc]
    for address, names in CLIENTS:
        world.add(
            address,
            lambda _disk, address=address, names=names: ChannelClient(address, BROKERS, TROUBLE_US, names),  # type: ignore[misc]
        )
    return [*promises(), AllRunning()]
