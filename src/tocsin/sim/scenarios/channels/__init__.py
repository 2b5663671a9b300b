"""Channels: a pipeline that commits results, brokers that hold subscriptions and deliver, clients that move about.

Brokers are whole (``sim.process``), from the socket to the store. The pipeline is played: it stands for another
process, and brokers read what it commits through their port to result files (``dataset``). Everything is killed but the
clients, which are away for long now and then.

Every hour a broker looks through all stored sessions and cells, and finds what nobody told it. Here the hour is over
every six seconds.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tocsin.config import Settings
from tocsin.core.channels.signals import HoldingsTimer
from tocsin.core.machine import TimerFired
from tocsin.model.catalogue import encode_definition, key_of
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.process.broker import broker_at
from tocsin.sim.process.signals import Do
from tocsin.sim.process.stage import CHANNELS, NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.channels.clients import ChannelClient
from tocsin.sim.scenarios.channels.dataset import CHANNEL, FILES, SimulatedFiles
from tocsin.sim.scenarios.channels.pipeline import Pipeline
from tocsin.sim.scenarios.channels.promises import promises
from tocsin.sim.world import World

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
COORDINATORS: Final = ("coordinator-1",)
PIPELINE: Final = "pipeline"
CLIENTS: Final = (
    ("client/1", ("$channel/Near/a", "$channel/Near/b")),
    ("client/2", ("$channel/Near/b", "$channel/Near/a", "$channel/Near/c")),
    ("client/3", ("$channel/Near/d", "$channel/Near/c")),
)
FAULTS: Final = Profile(targets=(*BROKERS, PIPELINE))  # clients are the outside, which keeps its memory
TROUBLE_US: Final = 20 * MILLION
RESULTS_US: Final = 22 * MILLION  # until then there are new ones
SETTLE_US: Final = 30 * MILLION
SCAN_EVERY_US: Final = 6 * MILLION
SETTINGS: Final = Settings(network=NETWORK, brokers=tuple(configured(name) for name in BROKERS))


@scenario(
    "channels",
    summary="results of channels: a pipeline, three whole brokers that hold subscriptions, clients that move",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World) -> list[Invariant]:
    stage = Stage(world, SETTINGS)
    world.log(FILES)
    world.store.tables[CHANNELS.catalogue.name].put(key_of(CHANNEL), encode_definition(CHANNEL), 0)
    stage.add_coordinators(*COORDINATORS)
    stage.add_brokers(results=SimulatedFiles)
    world.add(PIPELINE, lambda _disk: Pipeline(PIPELINE, RESULTS_US))
    for address, names in CLIENTS:
        stage.add_client(address, partial(ChannelClient, address, BROKERS, TROUBLE_US, names))
    look_through_often(world, BROKERS, TROUBLE_US + SETTLE_US)
    return [*promises(), AllRunning()]


def look_through_often(world: World, brokers: tuple[str, ...], until_us: int) -> None:
    """Have each broker look through what is stored, every six seconds."""
    for at_us in range(SCAN_EVERY_US, until_us, SCAN_EVERY_US):
        world.at(at_us, partial(_look_through, world, brokers))


def _look_through(world: World, brokers: tuple[str, ...]) -> None:
    for name in brokers:
        broker = broker_at(world, name)
        if broker is not None:
            hour = TimerFired(name=HoldingsTimer.SCAN, cause="an hour has passed")
            world.post(name, Do(act=partial(broker.parts.channels.backend._post, hour)))
