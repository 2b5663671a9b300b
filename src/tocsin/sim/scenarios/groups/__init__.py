"""Groups: three brokers on one store, three groups with members that last and members that do not, at QoS 1 and 2.

The cores are those that ship: sharing with its cell, holders and backlog, and all that ``durable`` runs. Members lose
connections, leave, and come back to any broker; one stays where it is for as long as it can, so that nothing is put
right by its coming back. In one group nobody lasts, and so it ends and is made anew many times. Brokers crash, sleep
and freeze, also for longer than a life lasts; the store is in trouble more often than in other scenarios, and what it
did and did not answer is what groups are most easily wrong about. So is how far one has heard of the log: brokers lag.
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.model.message import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.network import Link
from tocsin.sim.plan import EVERY_KIND, Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.durable.clients import Subscriber
from tocsin.sim.scenarios.durable.wire import LOG, SESSIONS
from tocsin.sim.scenarios.groups.broker import GROUPS, GroupBroker
from tocsin.sim.scenarios.groups.clients import PatientPublisher, Visitor
from tocsin.sim.scenarios.groups.promises import promises
from tocsin.sim.world import World

BROKERS = ("broker/1", "broker/2", "broker/3")
PUBLISHERS = ("publisher/1", "publisher/2")
# The groups are told apart by their topics, which no two of them have in common.
LASTING = ("$share/g/a/#", "$share/h/b")
FLEETING = "$share/v/c/#"  # of visitors only
MEMBERS = (("member/1", 2), ("member/2", 2), ("member/3", 1))
STEADY = "member/2"
STEADY_AFTER_US = 4 * MILLION
VISITORS = ("visitor/1", "visitor/2")
TOPICS = ("a/x", "a/y", "b", "c/x", "c/y")  # an odd number, so that each is published to at both QoS
MESSAGES = 40  # of each publisher

FAULTS = Profile(
    targets=BROKERS,  # clients are the outside, which keeps its memory
    kinds=(*EVERY_KIND, ("store trouble", 3), ("lag", 4)),
)
TROUBLE_US = 20 * MILLION
SETTLE_US = 30 * MILLION
_CONNECTION = Link(fifo=True)


@scenario(
    "groups",
    summary="shared subscriptions at QoS 1 and 2: three brokers, three groups, members that come and go",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(world: World, broker: Callable[[Address], GroupBroker] = GroupBroker) -> list[Invariant]:
    """Fill a world; ``broker`` is the machine to use, so that a variant can be tried."""
    world.network.link_of = lambda sender, receiver: _CONNECTION
    world.log(LOG)
    world.table(SESSIONS)
    world.table(GROUPS)
    for address in BROKERS:
        world.add(address, lambda _disk, address=address: broker(address))  # type: ignore[misc]
    for address in PUBLISHERS:
        world.add(
            address,
            lambda _disk, address=address: PatientPublisher(address, BROKERS, TROUBLE_US, MESSAGES, TOPICS),  # type: ignore[misc]
        )
    for address, qos in MEMBERS:
        restless_us = STEADY_AFTER_US if address == STEADY else TROUBLE_US
        world.add(
            address,
            lambda _disk, address=address, qos=qos, restless_us=restless_us: Subscriber(  # type: ignore[misc]
                address, BROKERS, restless_us, LASTING, qos
            ),
        )
    for address in VISITORS:
        world.add(
            address,
            lambda _disk, address=address: Visitor(address, BROKERS, TROUBLE_US, (FLEETING, *LASTING), 2),  # type: ignore[misc]
        )
    return [*promises(LASTING, FLEETING, VISITORS), AllRunning()]
