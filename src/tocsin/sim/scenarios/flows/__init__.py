"""Flows at QoS 0 with promises: reliable ones across a tier of routing brokers, history, and publishers with leases.

Two clusters of whole brokers, and two routing brokers between them. Routing brokers crash and come back, links to them
are cut, and so do the brokers of the publishers fail. The publishers' sessions last: they go on at another broker of
their cluster. The broker of the subscriber does not fail, so that what it is told has to be whole.
Subscribers with durability come and go at both ends.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tocsin.config import Settings
from tocsin.config.membership import Membership
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import Profile
from tocsin.sim.process.stage import NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.flows.clients import Latecomer, Move, Sink, Source
from tocsin.sim.scenarios.flows.promises import (
    BothAreTold,
    HistoryMeetsLive,
    LivesAreTrue,
    NothingLost,
    OnceInOrder,
)
from tocsin.sim.world import World

HUBS: Final = ("hub-1", "hub-2")
EDGES: Final = ("east-1", "east-2")
HOME: Final = "west-1"  # of the subscriber
SETTINGS: Final = Settings(
    network=NETWORK,
    brokers=tuple(
        configured(name, name.partition("-")[0], "routing" if name in HUBS else "edge")
        for name in (*EDGES, HOME, *HUBS)
    ),
    membership=Membership(heartbeat_ms=1_000),
)
RELIABLE: Final = {"flow/1": "reliability=reliable", "flow/2": "reliability=reliable"}
LEASED: Final = {"life/1": "lease=5s", "life/2": "lease=5s"}
HISTORY: Final = 20
PAST: Final = f"durability=transient-local,history={HISTORY}"
PAST_TOPIC: Final = "past/1/value"  # no other filter matches it: its route is made for each subscription
PAST_PERIOD_US: Final = 40_000
FILTERS: Final = (
    "$qos/reliability=reliable/flow/+",
    "$qos/lease=5s/life/+",
    "$qos/lease=1s/+/+",  # which matches nothing
)
TROUBLE_US: Final = 30 * MILLION
SETTLE_US: Final = 25 * MILLION
MOVES_MAX: Final = 4
# The store is well: by a session that could not be stored no lease is renewed.
FAULTS: Final = Profile(kinds=(("crash", 1),), most=5, targets=(*HUBS, *HUBS, *EDGES))


@scenario(
    "flows",
    summary="reliable flows at QoS 0, history and leases: routing brokers and publishers' brokers fail",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World) -> list[Invariant]:
    stage = Stage(world, SETTINGS)
    stage.add_coordinators("coordinator-1")
    stage.add_brokers()
    chance = world.chances.of("flows")
    sources: dict[str, Source] = {}
    for topics, quiet in ((RELIABLE, False), (LEASED, True)):
        for topic, offer in topics.items():
            sources[topic] = Source(f"source/{topic}", EDGES, topic, offer, chance, quiet)
    past = Source(f"source/{PAST_TOPIC}", EDGES, PAST_TOPIC, PAST, chance, period_us=PAST_PERIOD_US)
    for source in (*sources.values(), past):
        source.until_us = TROUBLE_US + SETTLE_US - 6 * MILLION
        world.add(source.name, lambda _disk, source=source: source)  # type: ignore[misc]
        for _ in range(chance.below(MOVES_MAX)):
            world.at(chance.between(5 * MILLION, TROUBLE_US), partial(_move, world, source.name))
    latecomers = [
        Latecomer(f"late/{broker}", broker, f"$qos/{PAST}/past/#", past, chance)
        for broker in (HOME, EDGES[0])
    ]
    for latecomer in latecomers:
        world.add(latecomer.name, lambda _disk, latecomer=latecomer: latecomer)  # type: ignore[misc]
    sink = Sink("sink", HOME, FILTERS)
    world.add("sink", lambda _disk: sink)
    reliable = {topic: sources[topic] for topic in RELIABLE}
    return [
        OnceInOrder(sink),
        NothingLost(sink, reliable),
        HistoryMeetsLive(latecomers, HISTORY),
        LivesAreTrue(sink, {topic: sources[topic] for topic in LEASED}),
        BothAreTold(sink, sources),
        AllRunning(),
    ]


def _move(world: World, name: str) -> None:
    world.post(name, Move(cause=name))
