"""Latency budgets across a tier of routing brokers: ways that are slow now and then, and copies over others.

Two clusters of whole brokers and two routing brokers between them. Each way has a delay and, now and then, repeats a
segment: all behind it waits. Routing brokers crash, links are cut. More topics ask for copies than may have them.
Subscribers without a budget listen too, one of them at a routing broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tocsin.config import Deadline, Settings
from tocsin.config.membership import Membership
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.faults.plan import Profile
from tocsin.sim.latency import Latency
from tocsin.sim.network import Link
from tocsin.sim.process.stage import NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.budgets.clients import Sink, Source
from tocsin.sim.scenarios.budgets.promises import Bounded, Heard, MissesTold, OnceInOrder, PlainOnce, Tells
from tocsin.sim.scenarios.links.traffic import Cuts, LinkCut
from tocsin.sim.world import World

HUBS: Final = ("hub-1", "hub-2")
ORIGIN: Final = "east-1"
HOME: Final = "west-1"  # of the subscribers
BROKERS: Final = (ORIGIN, HOME, *HUBS)
FEW: Final = Deadline(links_max=2, flows_max=3, spare_bytes_s=100_000, share_percent=0)
NARROW: Final = Deadline(links_max=2, flows_max=10, spare_bytes_s=3_000, share_percent=0)
SETTINGS: Final = Settings(
    network=NETWORK,
    brokers=tuple(
        configured(name, name.partition("-")[0], "routing" if name in HUBS else "edge") for name in BROKERS
    ),
    membership=Membership(heartbeat_ms=1_000),
)
TOPICS: Final = tuple(f"flow/{number}" for number in range(6))
BUDGET_MS: Final = 120
EVERY_US: Final = (30_000, 150_000)  # between two messages of a topic
ONE_WAY_US: Final = (5_000, 60_000)  # of a link
AGAIN_US: Final = 250_000  # for a segment that is repeated, beside a round trip; with messages behind it …
SOON_US: Final = 50_000  # … that come as often as in ``cases``, the peer says sooner that it lacks one
REPEATED_PERMILLE: Final = (0, 20)
TROUBLE_US: Final = 40 * MILLION
SETTLE_US: Final = 20 * MILLION
CUTS_MAX: Final = 3
FAULTS: Final = Profile(kinds=(("crash", 1),), most=3, targets=(*HUBS, *HUBS, ORIGIN))


@scenario(
    "budgets",
    summary="latency budgets: copies over second ways while routing brokers fail, links are cut and ways are slow",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(
    world: World, deadline: Deadline | None = None, cuts: Sequence[LinkCut] | None = None
) -> list[Invariant]:
    """Fill a world; ``deadline`` and ``cuts`` take the place of what is drawn."""
    deadline = deadline or world.chances.of("bounds").one_of((FEW, NARROW))
    stage = Stage(world, msgspec.structs.replace(SETTINGS, deadline=deadline))
    stage.add_coordinators("coordinator-1")
    stage.add_brokers()
    chance = world.chances.of("budgets")
    spread(world, draw_links(chance))
    drawn = draw_cuts(chance)
    Cuts(world, stage.wires, drawn if cuts is None else tuple(cuts))
    until_us = TROUBLE_US + SETTLE_US - 6 * MILLION
    sources = {}
    for number, topic in enumerate(TOPICS):
        every_us = chance.between(*EVERY_US)
        source = sources[topic] = Source(ORIGIN, topic, f"{BUDGET_MS}ms", number, every_us, until_us)
        world.add(source.name, lambda _disk, source=source: source)  # type: ignore[misc]
    request = f"$qos/budget={BUDGET_MS}ms/flow/+"
    strict = [Sink("sink/near", HOME, (request,)), Sink("sink/hub", HUBS[0], (request,))]
    plain = [Sink("plain/near", HOME, ("flow/+",)), Sink("plain/hub", HUBS[1], ("flow/+",))]
    for sink in (*strict, *plain):
        world.add(sink.name, lambda _disk, sink=sink: sink)  # type: ignore[misc]
    return [
        OnceInOrder(strict),
        PlainOnce(plain),
        Bounded((ORIGIN,), deadline),
        MissesTold(strict[0], HOME, sources, dict.fromkeys(TOPICS, BUDGET_MS * 1_000)),
        Tells(ORIGIN, strict[0], sources),
        Heard(strict[0], sources),
        AllRunning(),
    ]


def way(one_way_us: int, permille: int, again_us: int = AGAIN_US) -> Link:
    """A way of so long a delay; so many of its segments are repeated, and hold up what is behind them."""
    if not permille:
        return Link(Latency.constant(one_way_us), fifo=True)
    again_us += 3 * one_way_us
    points = (
        (0, one_way_us),
        (999 - permille, one_way_us + 1_000),
        (1_000 - permille, again_us),
        (1_000, again_us),
    )
    return Link(Latency.from_points(points), fifo=True)


def draw_links(chance: Chance) -> Mapping[frozenset[Address], Link]:
    found = {}
    for at, one in enumerate(BROKERS):
        for other in BROKERS[at + 1 :]:
            found[frozenset((one, other))] = way(
                chance.between(*ONE_WAY_US), chance.between(*REPEATED_PERMILLE)
            )
    return found


def spread(world: World, links: Mapping[frozenset[Address], Link]) -> None:
    """Put brokers so far from each other."""
    usual = Link(fifo=True)
    world.network.link_of = lambda sender, receiver: links.get(frozenset((sender, receiver)), usual)


def draw_cuts(chance: Chance) -> tuple[LinkCut, ...]:
    """Links that carry nothing for a while."""
    cuts = []
    for _ in range(chance.below(CUTS_MAX + 1)):
        at_us = chance.between(10 * MILLION, TROUBLE_US)
        one, other = chance.one_of(((ORIGIN, HUBS[0]), (ORIGIN, HUBS[1]), (HUBS[0], HOME), (ORIGIN, HOME)))
        cuts.append(LinkCut(at_us, at_us + chance.between(MILLION, 10 * MILLION), ((one, other),)))
    return tuple(cuts)
