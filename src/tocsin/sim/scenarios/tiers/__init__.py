"""A tier of routing brokers that carries for three clusters: whole brokers, as they ship.

Clients publish at QoS 0 at every broker, also at a routing broker, and some are subscribed there. Routing brokers come
and go, fail and freeze, links to them are cut, and an operator empties them while messages flow: slots move from one
member to another, some with a pause and some at once. Brokers come to publish on topics that are new to them, and
cease to (``newcomers``). Some topics have much more traffic than others, so that members
that carry as many slots do not carry alike; any strategy may even that out. One edge broker may be outward: nobody can
dial it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from tocsin.config import Settings
from tocsin.config.broker import Broker
from tocsin.config.membership import Membership
from tocsin.config.routing import Routing
from tocsin.core.tiers.strategies import KINDS, Kind
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.latency import Latency
from tocsin.sim.network import Link
from tocsin.sim.process.stage import NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.links.traffic import Cuts, LinkCut, Station, Traffic, station_of
from tocsin.sim.scenarios.tiers.newcomers import NoneLost, draw_wanted, let_come
from tocsin.sim.scenarios.tiers.promises import Agreed, Alike, Flows, InOrder, Once, OneCarrier
from tocsin.sim.scenarios.tiers.traffic import (
    OPERATOR,
    TOPICS,
    Drain,
    draw_cuts,
    draw_drains,
    let_publish,
    operate,
)
from tocsin.sim.scenarios.tiers.troubles import Troubles
from tocsin.sim.world import World

HUBS: Final = ("hub-1", "hub-2", "hub-3")
EDGES: Final = ("east-1", "east-2", "north-1", "west-1")
BROKERS: Final = (*EDGES, *HUBS)
STATIONS: Final = (*EDGES, "hub-1")  # brokers with a client
SETTINGS: Final = Settings(
    network=NETWORK,
    brokers=tuple(
        configured(name, name.partition("-")[0], "routing" if name in HUBS else "edge") for name in BROKERS
    ),
    membership=Membership(heartbeat_ms=1_000),
)
OUTWARD: Final = "north-1"  # the only broker of its cluster
NOWHERE: Final = "behind-nat"  # the host at which other brokers would dial it
COORDINATORS: Final = ("coordinator-1", "coordinator-2")
ROUND_TRIPS_US: Final = (
    500,
    180_000,
)  # between brokers: the shortest, and the longest for which a pause is meant
BEGIN_US: Final = 10 * MILLION  # by then all brokers have joined, and every member carries its part
TROUBLE_US: Final = 34 * MILLION
SETTLE_US: Final = 22 * MILLION
FAULTS: Final = Profile(
    kinds=(("crash", 5), ("pause", 2), ("leader loss", 1), ("partition", 1), ("weather", 1)),
    most=4,
    targets=(*HUBS, *HUBS, *EDGES, *COORDINATORS),
)


@scenario(
    "tiers",
    summary="routing brokers that share slots: members fail, come back and are emptied while messages flow",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(
    world: World,
    cuts: Sequence[LinkCut] | None = None,
    drains: Sequence[Drain] | None = None,
    balance: Kind | None = None,
    hot: bool | None = None,
) -> list[Invariant]:
    """Fill a world; ``cuts``, ``drains``, ``balance`` (the strategy) and ``hot`` (one topic brings very much) take the
    place of what is drawn."""
    chance = world.chances.of("tiers")
    kind = chance.one_of(KINDS) if balance is None else balance
    settings = msgspec.structs.replace(SETTINGS, routing=Routing(balance=kind))
    if world.chances.of("outward").below(2):
        settings = msgspec.structs.replace(
            settings, brokers=tuple(_outward(each) for each in settings.brokers)
        )
    stage = Stage(world, settings)
    stage.add_coordinators(*COORDINATORS)
    stage.add_brokers()
    _spread(world)
    traffic = Traffic()
    wanted = {name: tuple(each for each in TOPICS if chance.below(2)) for name in STATIONS}
    drawn_cuts = draw_cuts(EDGES, HUBS, BEGIN_US, TROUBLE_US, chance)
    drawn_drains = draw_drains(HUBS, BEGIN_US, TROUBLE_US, chance)
    late = draw_wanted(STATIONS, world.chances.of("late"))
    for name in STATIONS:
        make = partial(Station, traffic, name, (*wanted[name], *late[name]))
        world.add(station_of(name), lambda _disk, make=make: make())  # type: ignore[misc]
    made_cuts = drawn_cuts if cuts is None else tuple(cuts)
    made_drains = drawn_drains if drains is None else tuple(drains)
    Cuts(world, stage.wires, made_cuts)
    stage.add_program(OPERATOR, partial(operate, made_drains))
    drawn_hot = not chance.below(3)
    let_publish(world, STATIONS, TROUBLE_US + SETTLE_US, chance, hot=drawn_hot if hot is None else hot)
    let_come(world, traffic, STATIONS, BEGIN_US, TROUBLE_US + SETTLE_US)
    troubles = Troubles(world, made_cuts, made_drains, HUBS, BEGIN_US)
    return [
        OneCarrier(HUBS, COORDINATORS),
        Once(traffic, troubles),
        InOrder(traffic, troubles),
        Flows(world, traffic, wanted, troubles, TROUBLE_US + SETTLE_US),
        NoneLost(traffic, late, troubles, TROUBLE_US + SETTLE_US),
        Alike(HUBS, made_drains, kind),
        Agreed(EDGES, HUBS, made_drains),
        AllRunning(),
    ]


def _outward(broker: Broker) -> Broker:
    """The same broker; if it is OUTWARD, behind NAT."""
    if broker.id != OUTWARD:
        return broker
    return msgspec.structs.replace(broker, outward=True, advertise=NOWHERE)


def _spread(world: World) -> None:
    """Put brokers near each other and far from each other."""
    chance = world.chances.of("distances")
    usual = Link(fifo=True)
    links: dict[frozenset[Address], Link] = {}
    for at, one in enumerate(BROKERS):
        for other in BROKERS[at + 1 :]:
            latency = Latency.constant(chance.between(*ROUND_TRIPS_US) // 2)
            links[frozenset((one, other))] = Link(latency, fifo=True)
    world.network.link_of = lambda sender, receiver: links.get(frozenset((sender, receiver)), usual)
