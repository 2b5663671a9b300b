"""The broker network's routes: members and a registry over a bad network, with clients that come and go.

Two clusters of two edge brokers and a hub, and one coordinator. Clients subscribe and unsubscribe all the time;
a broker that crashes loses its clients, a coordinator that crashes loses everything it knew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tocsin.core.membership import InterestsChanged, Member, RoutesChanged
from tocsin.core.registry import Registry
from tocsin.core.routing import RoutePlan
from tocsin.model.message import COORDINATOR, Address, broker_address
from tocsin.model.network import BrokerInfo, Role, Route
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.plan import Profile
from tocsin.sim.scenario import scenario
from tocsin.sim.world import World

HEARTBEAT_US = MILLION
SUSPECT_AFTER_US = 5 * MILLION
TROUBLE_US = 30 * MILLION
# Silence is noticed, then two rounds of heartbeats heal the rest.
SETTLE_US = 2 * SUSPECT_AFTER_US + 6 * HEARTBEAT_US

BROKERS = tuple(
    BrokerInfo(f"{cluster}-{name}", cluster, role, "127.0.0.1", 1)
    for cluster in ("north", "south")
    for name, role in (("1", Role.EDGE), ("2", Role.EDGE), ("hub", Role.ROUTING))
)
FILTERS = ("a", "a/#", "b/+", "c")
CHANGES = 60  # of interests, in one run; half a second apart on average

# Members and registry use the bus alone, so that faults of the store would be idle.
FAULTS = Profile(
    kinds=(("crash", 4), ("sleep", 1), ("pause", 3), ("skew", 1), ("partition", 3), ("weather", 4))
)


@scenario(
    "routes",
    summary="six brokers and a coordinator agree on who sends what to whom",
    faults=FAULTS,
    trouble_us=TROUBLE_US,
    settle_us=SETTLE_US,
)
def build(
    world: World,
    member: Callable[[BrokerInfo, int], Member] = Member,
    registry: Callable[[int, int], Registry] = Registry,
) -> list[Invariant]:
    """Fill a world; ``member`` and ``registry`` are the machines to use, so that a variant can be tried."""
    world.add(COORDINATOR, lambda _disk: registry(HEARTBEAT_US, SUSPECT_AFTER_US))
    for info in BROKERS:
        world.add(broker_address(info.id), lambda _disk, info=info: member(info, HEARTBEAT_US))  # type: ignore[misc]
    _clients(world)
    return [TablesFollow(), Agreement(), AllRunning()]


def _clients(world: World) -> None:
    """Somebody subscribes or unsubscribes at some broker, again and again."""
    chance = world.streams.stream("clients")
    for _ in range(CHANGES):
        address = broker_address(chance.one_of(BROKERS).id)
        topic_filter = chance.one_of(FILTERS)
        wants = chance.below(3) > 0  # more come than go, so that there is something to agree on
        event = InterestsChanged(
            cause=f"{address}:{'+' if wants else '-'}{topic_filter}",
            added=(topic_filter,) if wants else (),
            removed=() if wants else (topic_filter,),
        )
        world.at(chance.below(TROUBLE_US), partial(_happen, world, address, event))


def _happen(world: World, address: Address, event: InterestsChanged) -> None:
    world.post(address, event)  # lost if the broker is away: then so is the client


class TablesFollow(Invariant):
    """What a shell made of the effects is what the machine believes, and every route has its peer."""

    name = "forwarding tables follow the machine"

    def attach(self, world: World) -> None:
        self._tables: dict[Address, set[Route]] = {}
        self._world = world
        world.own(RoutesChanged, self._change)
        world.observers.on_life(self._life)

    def _life(self, node: Address, happening: str) -> None:
        if happening == "started":
            self._tables[node] = set()

    def _change(self, node: Address, change: RoutesChanged) -> None:
        table = self._tables[node]
        for route in change.removed:
            if route not in table:
                self.broken(f"{node} removes {route}, which it does not have")
            table.remove(route)
        for route in change.added:
            if route in table:
                self.broken(f"{node} adds {route} twice")
            table.add(route)
        known = {peer.id for peer in change.peers}
        needed = {route.peer for route in table}
        if known != needed:
            self.broken(f"{node} has links to {sorted(known)} and needs {sorted(needed)}")
        if node in map(broker_address, known):
            self.broken(f"{node} has a link to itself")
        machine = self._world.machine(node)
        if isinstance(machine, Member) and set(machine.routes) != table:
            self.broken(f"{node} believes in {len(machine.routes)} routes and applies {len(table)}")


class Agreement(Invariant):
    """In the end everybody has the routes that a plan made from scratch gives."""

    name = "everybody has the right routes in the end"

    def finish(self, world: World) -> None:
        plan = RoutePlan()
        members = {info.id: world.machine(broker_address(info.id)) for info in BROKERS}
        for info in BROKERS:
            member = members[info.id]
            if isinstance(member, Member):
                plan.join(info, member.interests)
        for broker, member in members.items():
            if isinstance(member, Member) and set(member.routes) != plan.routes(broker):
                wrong = set(member.routes) ^ plan.routes(broker)
                example = min(wrong, key=lambda route: (route.scope.value, route.peer, route.filter))
                has = "has" if example in member.routes else "lacks"
                self.broken(f"{broker} {has} {example} and {len(wrong) - 1} more")
