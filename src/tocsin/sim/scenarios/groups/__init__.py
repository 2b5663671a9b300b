"""Groups: three whole brokers, three groups with members that last and members that do not, at QoS 1 and 2.

Brokers are those that ship (``sim.process``), and clients speak MQTT to them. Members lose connections, leave, and come
back to any broker; one stays where it is for as long as it can, so that nothing is put right by its coming back. In one
group nobody lasts, and so it ends and is created again many times. Brokers crash, sleep and freeze, also for longer
than an incarnation lasts. The store is in trouble more often than in other scenarios: what it did and did not answer is
what groups are most easily wrong about. So is how far one has heard of the log: brokers lag.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tocsin.config import Settings
from tocsin.config.budgets import LEAST_BYTES, Budgets
from tocsin.sim.chance import MILLION
from tocsin.sim.faults.plan import EVERY_KIND, Profile
from tocsin.sim.process.restless import Subscriber
from tocsin.sim.process.stage import NETWORK, Stage, configured
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.runs.scenario import scenario
from tocsin.sim.scenarios.groups.clients import PatientPublisher, Visitor
from tocsin.sim.scenarios.groups.promises import promises
from tocsin.sim.world import World

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
COORDINATORS: Final = ("coordinator-1",)
PUBLISHERS: Final = ("publisher/1", "publisher/2")
# The groups are told apart by their topics, which no two of them have in common.
LASTING: Final = ("$share/g/a/#", "$share/h/b")
FLEETING: Final = "$share/v/c/#"  # of visitors only
MEMBERS: Final = (("member/1", 2), ("member/2", 2), ("member/3", 1))
STEADY: Final = "member/2"
STEADY_AFTER_US: Final = 4 * MILLION
VISITORS: Final = ("visitor/1", "visitor/2")
TOPICS: Final = ("a/x", "a/y", "b", "c/x", "c/y")  # an odd number, so that each is published to at both QoS
MESSAGES: Final = 40  # of each publisher

FAULTS: Final = Profile(
    targets=BROKERS,  # clients are the outside, which keeps its memory
    kinds=(*EVERY_KIND, ("store trouble", 3), ("lag", 4)),
)
TROUBLE_US: Final = 20 * MILLION
SETTLE_US: Final = 30 * MILLION
SETTINGS: Final = Settings(
    network=NETWORK,
    brokers=tuple(configured(name) for name in BROKERS),
    # The least: what one group reads of the log is half of it, so that groups wait for each other.
    budgets=Budgets(groups_bytes=LEAST_BYTES, user_percent=50, client_percent=50),
)


@scenario(
    "groups",
    summary="shared subscriptions at QoS 1 and 2: three whole brokers, three groups, members that come and go",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World) -> list[Invariant]:
    stage = Stage(world, SETTINGS)
    stage.add_coordinators(*COORDINATORS)
    stage.add_brokers()
    for address in PUBLISHERS:
        stage.add_client(address, partial(PatientPublisher, address, BROKERS, TROUBLE_US, MESSAGES, TOPICS))
    for address, qos in MEMBERS:
        restless_us = STEADY_AFTER_US if address == STEADY else TROUBLE_US
        stage.add_client(address, partial(Subscriber, address, BROKERS, restless_us, LASTING, qos))
    for address in VISITORS:
        filters = (FLEETING, *LASTING)
        stage.add_client(address, partial(Visitor, address, BROKERS, TROUBLE_US, filters, 2))
    return [*promises(LASTING, FLEETING, VISITORS), AllRunning()]
