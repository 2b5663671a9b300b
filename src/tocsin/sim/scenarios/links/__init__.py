"""Links between brokers that are cut or narrow while both ends are alive: whole brokers, as they ship.

Clients publish at QoS 0 at every broker, and some are subscribed there. Links between brokers are cut, one way or both,
some for a while and some to the end, others beside them; coordinators and brokers fail besides. Messages for a link
that is cut have to go around it.

In ``links-narrow`` no link is cut. Ways between brokers are narrow for a while, and are offered several times what they
can carry: links stay up, and what arrives is fresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tocsin.config import Settings
from tocsin.config.membership import Membership
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.latency import Latency
from tocsin.sim.network import Link
from tocsin.sim.process.stage import NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.links.promises import (
    Flows,
    Fresh,
    InOrder,
    LinksStay,
    NobodyLost,
    Once,
    Rerouting,
    Wanted,
    WaysAreWhole,
)
from tocsin.sim.scenarios.links.traffic import (
    LARGE_BYTES,
    TOPICS,
    Cuts,
    LinkCut,
    Station,
    Traffic,
    draw_cuts,
    draw_narrow_ways,
    let_publish,
    make_narrow,
    station_of,
)
from tocsin.sim.world import World

HUBS: Final = ("north-hub", "south-hub")
BROKERS: Final = ("north-1", "north-2", "north-hub", "south-1", "south-hub")
SETTINGS: Final = Settings(
    network=NETWORK,
    brokers=tuple(
        configured(name, name.partition("-")[0], "routing" if name in HUBS else "edge") for name in BROKERS
    ),
    membership=Membership(heartbeat_ms=1_000),
)
COORDINATORS: Final = ("coordinator-1", "coordinator-2")
ROUND_TRIPS_US: Final = (500, 200_000)  # between brokers: the shortest and the longest
TROUBLE_US: Final = 34 * MILLION
SETTLE_US: Final = 26 * MILLION
BOUND_US: Final = 20 * MILLION  # after the last change messages flow again, whatever has failed
PROBES_US: Final = TROUBLE_US + BOUND_US  # what is published from here on must arrive
FAULTS: Final = Profile(
    kinds=(("crash", 3), ("pause", 2), ("leader loss", 1), ("weather", 1), ("partition", 1)),
    most=5,
    targets=(*BROKERS, *COORDINATORS),
)


@scenario(
    "links",
    summary="whole brokers whose links are cut while both ends live: messages go around, once each",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(
    world: World, cuts: Sequence[LinkCut] | None = None, wanted: Wanted | None = None
) -> list[Invariant]:
    """Fill a world; ``cuts`` and ``wanted`` take the place of what is drawn."""
    stage = Stage(world, SETTINGS)
    stage.add_coordinators(*COORDINATORS)
    stage.add_brokers()
    wires = stage.wires
    chance = world.chances.of("links")
    _spread(world)
    traffic = Traffic()
    drawn = {name: tuple(chance.some_of(TOPICS, chance.between(0, len(TOPICS)))) for name in BROKERS}
    drawn_cuts = draw_cuts({each.id: each.cluster for each in SETTINGS.brokers}, TROUBLE_US, chance)
    wanted = drawn if wanted is None else wanted
    for name in BROKERS:
        make = partial(Station, traffic, name, wanted[name])
        world.add(station_of(name), lambda _disk, make=make: make())  # type: ignore[misc]
    cut = Cuts(world, wires, drawn_cuts if cuts is None else cuts)
    let_publish(world, BROKERS, TROUBLE_US, TROUBLE_US + SETTLE_US, chance)
    rerouting = Rerouting(BROKERS)
    return [
        rerouting,
        NobodyLost(COORDINATORS),
        Once(traffic, rerouting),
        InOrder(traffic, rerouting),
        WaysAreWhole(SETTINGS, cut, wanted),
        Flows(SETTINGS, traffic, cut, wanted, PROBES_US),
        AllRunning(),
    ]


@scenario(
    "links-narrow",
    summary="the same with links that are offered more than they can carry: they stay up, what arrives is fresh",
    faults=Profile(kinds=(("crash", 2), ("leader loss", 1)), most=2, targets=(*BROKERS, *COORDINATORS)),
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build_narrow(world: World) -> list[Invariant]:
    """Fill a world in which everybody wants everything."""
    stage = Stage(world, SETTINGS)
    stage.add_coordinators(*COORDINATORS)
    stage.add_brokers()
    chance = world.chances.of("links")
    _spread(world)
    traffic = Traffic()
    for name in BROKERS:
        make = partial(Station, traffic, name, TOPICS)
        world.add(station_of(name), lambda _disk, make=make: make())  # type: ignore[misc]
    make_narrow(world, stage.wires, draw_narrow_ways(BROKERS, TROUBLE_US, chance))
    let_publish(world, BROKERS, TROUBLE_US, TROUBLE_US + SETTLE_US, chance, large=LARGE_BYTES)
    wanted = dict.fromkeys(BROKERS, TOPICS)
    rerouting = Rerouting(BROKERS)
    return [
        rerouting,
        Once(traffic, rerouting),
        InOrder(traffic, rerouting),
        LinksStay(),
        Fresh(traffic),
        Flows(SETTINGS, traffic, Cuts(world, stage.wires, ()), wanted, PROBES_US),
        AllRunning(),
    ]


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
