"""Groups: three brokers on one store, two groups with members that last and members that do not, at QoS 1 and 2.

The cores are those that ship: sharing with its cell, holders and backlog, and all that ``durable`` runs. Members lose
connections, leave, and come back to any broker; brokers crash, sleep and freeze, also for longer than a life lasts.
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.model.message import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.network import Link
from tocsin.sim.plan import Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.scenarios.durable.clients import Publisher, Subscriber
from tocsin.sim.scenarios.durable.wire import LOG, SESSIONS
from tocsin.sim.scenarios.groups.broker import GROUPS, GroupBroker
from tocsin.sim.scenarios.groups.clients import Visitor
from tocsin.sim.scenarios.groups.promises import promises
from tocsin.sim.world import World

BROKERS = ("broker/1", "broker/2", "broker/3")
PUBLISHERS = ("publisher/1", "publisher/2")
# The groups are told apart by their topics, which no two of them have in common.
NAMES = ("$share/g/a/#", "$share/h/b")
MEMBERS = (("member/1", 2), ("member/2", 2), ("member/3", 1))
VISITOR = "visitor"
TOPICS = ("a/x", "a/y", "b")
MESSAGES = 30  # of each publisher

FAULTS = Profile(targets=BROKERS)  # clients are the outside, which keeps its memory
TROUBLE_US = 20 * MILLION
SETTLE_US = 30 * MILLION
_CONNECTION = Link(fifo=True)


@scenario(
    "groups",
    summary="shared subscriptions at QoS 1 and 2: three brokers, two groups, members that come and go",
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
            lambda _disk, address=address: Publisher(address, BROKERS, TROUBLE_US, MESSAGES, TOPICS),  # type: ignore[misc]
        )
    for address, qos in MEMBERS:
        world.add(
            address,
            lambda _disk, address=address, qos=qos: Subscriber(address, BROKERS, TROUBLE_US, NAMES, qos),  # type: ignore[misc]
        )
    world.add(VISITOR, lambda _disk: Visitor(VISITOR, BROKERS, TROUBLE_US, NAMES, 2))
    return [*promises(NAMES, VISITOR), AllRunning()]
