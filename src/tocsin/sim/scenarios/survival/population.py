"""Who lives in ``survival`` and in its long form, for how long, and what they are held to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.places import Options, Places
from tocsin.model.message import Address, broker_address
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.ports import Entry, LogSpec
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import AllRunning, Invariant
from tocsin.sim.network import Link
from tocsin.sim.node import Disk
from tocsin.sim.plan import Profile
from tocsin.sim.scenarios.channels.pipeline import Pipeline
from tocsin.sim.scenarios.channels.promises import Arrive, StayHeld, Tidy
from tocsin.sim.scenarios.channels.wire import FILES, NOTICES, SUBSCRIPTIONS
from tocsin.sim.scenarios.coordination import PLACES, add_coordinators
from tocsin.sim.scenarios.durable.promises import (
    AcknowledgedIsDurable,
    OnlyTheUsurpedStop,
    SessionsLast,
    Settled,
    Written,
)
from tocsin.sim.scenarios.durable.wire import LOG, SESSIONS
from tocsin.sim.scenarios.survival.bequests import (
    NotOfTheLiving,
    WillsAreCopied,
    WillsAreTold,
    WillsOnce,
)
from tocsin.sim.scenarios.survival.broker import SurvivalBroker
from tocsin.sim.scenarios.survival.clients import Broke, Mortal, Resident, Visitor
from tocsin.sim.scenarios.survival.copies import BackupsKnow, CopiesAgree
from tocsin.sim.scenarios.survival.deliveries import (
    Messages,
    NothingGivenUp,
    OnlyUnsettledAgain,
    ToldOnce,
)
from tocsin.sim.scenarios.survival.ledger import PLACE_TAKEN, STANDS_IN, Ledger
from tocsin.sim.scenarios.survival.ownership import (
    FencedIsSilent,
    OneOwner,
    OneStandsIn,
    SubscriptionsAreStored,
)
from tocsin.sim.scenarios.survival.planning import Planner
from tocsin.sim.scenarios.survival.recovery import AtHome, Bounded, NobodyIsOusted, Recovers
from tocsin.sim.scenarios.survival.wire import ARRIVALS, EndWatch, Ring, server
from tocsin.sim.world import World
from tocsin.wire.commands import Lost, decode_batch

COORDINATORS: Final = ("coordinator/1", "coordinator/2")
PIPELINE: Final = "pipeline"
LOSS_RECORDED: Final = "leads while a loss is recorded"
SESSION_WRITTEN: Final = "writes a session"
MOMENTS: Final = (LOSS_RECORDED, LOSS_RECORDED, STANDS_IN, PLACE_TAKEN, SESSION_WRITTEN)


def _info(node: Address, cluster: str, role: Role = Role.EDGE) -> BrokerInfo:
    return BrokerInfo(node, cluster, role, node, 1, (Entrance(Scheme.MQTT, server(node)),))


BROKERS: Final = (
    _info("north-1", "north"),
    _info("north-2", "north"),
    _info("south-1", "south"),
    _info("south-2", "south"),
)
SPARE: Final = _info("spare", "north", Role.STANDBY)
NODES: Final = tuple(info.id for info in (*BROKERS, SPARE))
# With their servers, the home first; the channels and filters that they want, the first of each always; and the QoS
# of the latter.
RESIDENTS: Final = (
    ("anna", ("north-1",), ("$channel/Near/a", "$channel/Near/b"), ("a/#", "b"), 1),
    ("ben", ("north-1", "south-1"), ("$channel/Near/b", "$channel/Near/c"), ("b", "a/x"), 2),
    ("cleo", ("south-2",), ("$channel/Near/c", "$channel/Near/a"), ("#", "b"), 1),
)
VISITORS: Final = (("dora", ("north-2", "south-2")),)
MORTALS: Final = (("emil", ("south-1", "north-1")),)
TOPICS: Final = ("a/x", "a/y", "b")
FAULTS: Final = Profile(
    kinds=(
        ("crash", 4),
        ("crash together", 2),
        ("pause", 4),
        ("sleep", 1),
        ("skew", 1),
        ("partition", 3),
        ("cut off together", 2),
        ("store partition", 2),
        ("weather", 2),
        ("leader loss", 1),
        ("store trouble", 2),
        ("watch reset", 1),
        ("lag", 1),
        ("flapping", 2),
        ("halves", 1),
        ("crash in turn", 2),
        ("stale first", 1),
        ("moment", 2),
        ("storm", 1),
    ),
    most=12,
    shortest_us=MILLION // 2,
    longest_us=10 * MILLION,
    targets=(
        *NODES,
        *NODES,
        *NODES,
        *COORDINATORS,
        PIPELINE,
    ),  # clients are the outside, which keeps its memory
    groups=(("north-1", "north-2", "spare"), ("south-1", "south-2"), ("north-1", "south-2"), COORDINATORS),
    brokers=NODES,
    moments=MOMENTS,
)
RESTART_US: Final = 20_000  # from a standby's end to its beginning as another broker
_CONNECTION: Final = Link(fifo=True)
_BUS: Final = Link()

MakeBroker = Callable[[Address, BrokerInfo, Places, Disk, Ledger], SurvivalBroker]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How long a world lasts, how fast it is, and who lives in it."""

    trouble_us: int
    results_us: int  # until then there are new ones
    recovery_us: int  # after the faults end, by which every client is connected
    settle_us: int
    look_us: int  # how often it is looked at what brokers hold
    options: Options
    messages: int  # of each visitor
    pipeline: type[Pipeline] = Pipeline
    resident: type[Resident] = Resident
    visitor: type[Visitor] = Visitor
    mortal: type[Mortal] = Mortal


def fill(
    world: World,
    setting: Setting,
    broker: MakeBroker,
    coordinator: type[Coordinator],
    *,
    log: LogSpec = LOG,
) -> list[Invariant]:
    """Fill a world, and say what it is held to."""
    people = {name for name, *_ in (*RESIDENTS, *VISITORS, *MORTALS)}
    world.network.link_of = lambda sender, receiver: (
        _CONNECTION if sender in people or receiver in people else _BUS
    )
    for each in (log, NOTICES, FILES):
        world.log(each)
    for table in (SESSIONS, SUBSCRIPTIONS):
        world.table(table)
    add_coordinators(world, coordinator, COORDINATORS, setting.options)
    world.add(PIPELINE, lambda _disk: setting.pipeline(PIPELINE, setting.results_us))
    ledger = Ledger(world, NODES)
    for info in (*BROKERS, SPARE):
        make = partial(_make, broker, info, ledger)
        world.add(info.id, make, restart_after_us=RESTART_US)
        under_this_name = (info.id,) if info is SPARE else (info.id, SPARE.id)
        world.group(broker_address(info.id), under_this_name)
    world.group(ARRIVALS, NODES)
    _add_clients(world, setting)
    _watch_moments(world)
    Planner(world, ledger)
    _Dialling(world)
    world.own(EndWatch, lambda node, effect: world.store.tails.end_watch(node, effect.table))
    return promises(ledger, setting)


def _make(broker: MakeBroker, info: BrokerInfo, ledger: Ledger, disk: Disk) -> SurvivalBroker:
    return broker(info.id, info, PLACES, disk, ledger)


def _add_clients(world: World, setting: Setting) -> None:
    restless_us = setting.trouble_us
    for name, servers, names, filters, qos in RESIDENTS:
        made = partial(setting.resident, name, servers, restless_us, names, filters, qos)
        world.add(name, lambda _disk, made=made: made())  # type: ignore[misc]
    for name, servers in VISITORS:
        visitor = partial(setting.visitor, name, servers, restless_us, setting.messages, TOPICS)
        world.add(name, lambda _disk, visitor=visitor: visitor())  # type: ignore[misc]
    for name, servers in MORTALS:
        mortal = partial(setting.mortal, name, servers, restless_us)
        world.add(name, lambda _disk, mortal=mortal: mortal())  # type: ignore[misc]


def promises(ledger: Ledger, setting: Setting) -> list[Invariant]:
    written = Written()
    once, sessions = WillsOnce(), SessionsLast()
    homes = {name: servers[0] for name, servers, *_ in (*RESIDENTS, *VISITORS, *MORTALS)}
    return [
        written,
        AcknowledgedIsDurable(written),
        OnlyUnsettledAgain(written),
        Messages(written),
        NothingGivenUp(written),
        Arrive(),
        ToldOnce(written),
        StayHeld(),
        sessions,
        OnlyTheUsurpedStop(),
        OneOwner(),
        FencedIsSilent(ledger),
        SubscriptionsAreStored(sessions),
        OneStandsIn(ledger),
        BackupsKnow(ledger),
        once,
        NotOfTheLiving(ledger),
        WillsAreCopied(ledger),
        WillsAreTold(once, ledger, tuple(name for name, _ in MORTALS)),
        Bounded(ledger, setting.trouble_us + setting.settle_us, setting.look_us),
        Recovers(setting.trouble_us + setting.recovery_us),
        AllRunning(),
        NobodyIsOusted(),
        AtHome(homes, ledger),
        Settled(sessions),
        Tidy(sessions),
        CopiesAgree(ledger),
    ]


def _watch_moments(world: World) -> None:
    """Say when somebody does what faults may wait for; brokers say the rest (``ledger``)."""

    def on_command(entry: Entry) -> None:
        if entry.subject != PLACES.commands_subject:
            return
        if any(isinstance(each, Lost) for each in decode_batch(entry.payload).commands):
            for address in COORDINATORS:
                coordinator = world.machine(address)
                if isinstance(coordinator, Coordinator) and coordinator.leader is not None:
                    world.reach(LOSS_RECORDED, address)

    world.observers.on_entry(PLACES.commands.name, on_command)
    world.observers.on_write(SESSIONS.name, lambda node, put, revision: world.reach(SESSION_WRITTEN, node))


def _post(world: World, address: Address, event: Broke) -> None:
    world.post(address, event)


class _Dialling:
    """What the machines under the brokers do: where nothing listens a client is refused; where a process ends, its
    connections break. Mostly: some ends are those of the machine, which says nothing more."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.streams.stream("dialling")
        self._rang: dict[Address, Ring] = {}  # client → where it dialled last
        world.own(Ring, self._ring)
        world.observers.on_life(self._life)

    def _ring(self, client: Address, ring: Ring) -> None:
        self._rang[client] = ring
        if self._world.machine(ring.to) is None:
            self._break(client, ring)

    def _life(self, node: Address, happening: str) -> None:
        if happening in ("crashed", "stopped", "disconnected"):
            for client, ring in self._rang.items():
                if ring.to == node:
                    self._break(client, ring, surely=happening == "disconnected")

    def _break(self, client: Address, ring: Ring, *, surely: bool = False) -> None:
        blocked = self._world.network.blocked(ring.to, client)
        if surely or (self._chance.below(4) and not blocked):
            at_us = self._world.now_us + 1 + self._chance.below(1_000)
            event = Broke(connection=ring.connection)
            self._world.at(at_us, lambda: _post(self._world, client, event))
