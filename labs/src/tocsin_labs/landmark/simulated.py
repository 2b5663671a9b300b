"""A network in virtual time, of as many brokers as there is time for: one process, one seed.

The deciding parts are the product's: the coordinator with its detector, its log and its lease in the simulated store;
the participant of each broker; the planner of backups. Everything around them is as small as can be. A **member** is
a broker's process without clients: it sends heartbeats, is told its backups and its takeovers, and becomes another
broker when it is promoted. A broker's subscribers are one topic filter, which its stand-in wants in its stead, and the
subscriptions that plans of backups are made for.

The leader's messages pass through the wire's codec both ways, so that their bytes are counted as they would be sent.
How much of a processor the leader and the planner take is measured; nothing else here depends on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from tocsin.config import Membership, Recovery, Settings
from tocsin.coordinator.main import options
from tocsin.coordinator.planning import ASKED_AT_ONCE, decide
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.leader.backup_planning import PlanMade, WantPlan
from tocsin.core.coordination.leader.promotions import Chosen, StandbyTold, WantScores
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import (
    Adopted,
    BackupsKnown,
    ChangesRouted,
    Deposed,
    DestinationsChanged,
    InterestsChanged,
    Leaving,
    Orphaned,
    Promoted,
    RoutesChanged,
    StandDown,
    StandIn,
    StandInsChanged,
)
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import Effect, Event, Listen, Received, Send, Started, Stop
from tocsin.model.network import COORDINATOR, Address, BrokerInfo, Entrance, Role, Scheme, broker_address
from tocsin.sim.chance import Chance
from tocsin.sim.latency import LOCAL_NETWORK
from tocsin.sim.node import Disk
from tocsin.sim.world import World
from tocsin.wire.internal.control import decode_envelope, encode_envelope
from tocsin.wire.internal.summaries import Summary

PLACES: Final = StoreNames("lab")
LEADER: Final = "coordinator/1"
RESTART_US: Final = 400_000  # from a standby's end to its beginning as another: what real ones take, about
SPREAD_US: Final = 1_000_000  # over which brokers start, so that their beats do not fall together
SUBSCRIPTIONS: Final = 40  # of a broker: half of what its cluster asks for, half of what anybody does …
POOL: Final = 40  # … from so many of each cluster, …
COMMON: Final = 400  # … and so many of all
CLIENTS_MAX: Final = 5  # that have one subscription
# The planner's time for each broker, in virtual time: twice what was measured. The real time is measured too, but no
# seed repeats it.
THINK_US_EACH: Final = 1_000
FIT: Final = Summary(1, 1, {}, resources=1.0)  # what each standby says


Told = Callable[[Address, BackupsKnown | StandIn | StandDown], None]


def brokers_of(count: int, brokers_each: int, standbys_each: int) -> tuple[BrokerInfo, ...]:
    """So many in all, in clusters of so many and their standbys; the last cluster has what is left."""
    found: list[BrokerInfo] = []
    size = brokers_each + standbys_each
    for number in range(count):
        cluster, place = number // size + 1, number % size + 1
        standby = place > brokers_each
        name = f"c{cluster}-s{place - brokers_each}" if standby else f"c{cluster}-b{place}"
        role = Role.STANDBY if standby else Role.EDGE
        entrance = Entrance(Scheme.MQTT, f"127.0.0.1:{10_000 + number}")
        found.append(BrokerInfo(name, f"c{cluster}", role, "127.0.0.1", 10_000 + number, (entrance,)))
    return tuple(found)


def filter_of(broker: str) -> str:
    """The topic filter of a broker's subscribers."""
    return f"alarms/{broker}"


class Member:
    """A broker's process, as far as coordinators see it; under another broker's name while it is in that broker's
    place."""

    def __init__(self, own: BrokerInfo, membership: Membership, disk: Disk, *, interested: bool) -> None:
        place: BrokerInfo | None = disk.pop("place", None)
        self.info = own
        if place is not None:
            self.info = msgspec.structs.replace(
                own, id=place.id, cluster=place.cluster, role=place.role, certified=own.id
            )
        self._disk = disk
        self._participant = Participant(
            self.info,
            PLACES,
            membership.beat_ms * 1_000,
            membership.suspect_after_ms * 1_000,
            substitute=place is not None,
        )
        if interested and self.info.role != Role.STANDBY:
            self._participant.handle(InterestsChanged(added=(filter_of(self.info.id),)), 0)

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        effects = self._participant.handle(event, now_us)
        if isinstance(event, Started):
            return [Listen(address=broker_address(self.info.id), cause=event.cause), *effects]
        for effect in effects:
            if isinstance(effect, Promoted | Deposed):
                return self._change(effects, effect, now_us)
        return effects

    def _change(self, effects: list[Effect], change: Promoted | Deposed, now_us: int) -> list[Effect]:
        """Be another from the next start on, which is soon."""
        kept = [each for each in effects if not isinstance(each, Promoted | Deposed)]
        if isinstance(change, Promoted):
            if self.info.role != Role.STANDBY:
                return kept
            self._disk["place"] = change.place
        left = self._participant.handle(Leaving(cause=change.cause), now_us)
        return [*kept, *left, Stop(reason="it is another broker from now on", cause=change.cause)]


class Metered:
    """The coordinator, with what it says and hears in bytes, and the processor time that it takes."""

    def __init__(self, machine: Coordinator) -> None:
        self.machine = machine
        self.messages = 0
        self.bytes = 0
        self.processor_s = 0.0
        self.longest_s = 0.0  # of one event, since it was set to 0

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        data = b""
        if isinstance(event, Received):
            data = encode_envelope(event.sender, event.cause, event.message)
            self._count(data)
        began_s = time.process_time()
        if isinstance(event, Received):
            message = decode_envelope(data).message
            event = Received(sender=event.sender, message=message, cause=event.cause)
        effects = self.machine.handle(event, now_us)
        for effect in effects:
            if isinstance(effect, Send):
                self._count(encode_envelope(LEADER, effect.cause, effect.message))
        took_s = time.process_time() - began_s
        self.processor_s += took_s
        self.longest_s = max(self.longest_s, took_s)
        return effects

    def _count(self, data: bytes) -> None:
        self.messages += 1
        self.bytes += len(data)


class Planner:
    """As the coordinator's: it asks brokers what they hold and has backups chosen, one plan at a time. A request for a
    plan in that time is not heard, and is repeated. Standbys are asked for their scores, and are all equal.
    """

    def __init__(self, world: World, holdings: Mapping[str, Mapping[int, int]]) -> None:
        self.plans = 0
        self.processor_s = 0.0
        self._world = world
        self._chance = world.chances.of("asking")
        self._known = {
            broker: (dict(held), Summary(1, 1, {}, resources=1.0)) for broker, held in holdings.items()
        }
        self._busy = False
        world.own(WantPlan, self._want)
        world.own(WantScores, self._ask_standbys)
        world.own(Chosen, lambda address, effect: None)

    def _want(self, address: Address, effect: WantPlan) -> None:
        if self._busy:
            return
        self._busy = True
        began_s = time.process_time()
        known = {each.id: self._known[each.id] for each in effect.brokers}
        made = decide(effect.brokers, known, effect.previous).backups
        self.processor_s += time.process_time() - began_s
        self.plans += 1
        count = len(effect.brokers)
        at_us = self._world.now_us + self._asking_us(count) + THINK_US_EACH * count
        self._world.at(at_us, partial(self._made, address, PlanMade(cause=effect.cause, backups=made)))

    def _ask_standbys(self, address: Address, effect: WantScores) -> None:
        for each in effect.questions:
            told = StandbyTold(cause=effect.cause, standby=each.standby.id, summary=FIT)
            self._world.at(self._world.now_us + self._asking_us(1), partial(self._told, address, told))

    def _told(self, address: Address, event: StandbyTold) -> None:
        self._world.post(address, event)

    def _asking_us(self, count: int) -> int:
        """Questions go out so many at once, and each of them there and back."""
        took_us, bits = 0, self._chance.bits
        for start in range(0, count, ASKED_AT_ONCE):
            asked = min(ASKED_AT_ONCE, count - start)
            took_us += max(LOCAL_NETWORK.draw(bits) + LOCAL_NETWORK.draw(bits) for _ in range(asked))
        return took_us

    def _made(self, address: Address, event: PlanMade) -> None:
        self._busy = False
        self._world.post(address, event)


def holdings_of(brokers: Sequence[BrokerInfo], chance: Chance) -> dict[str, dict[int, int]]:
    """The subscriptions of each serving broker's subscribers, and their numbers."""
    found: dict[str, dict[int, int]] = {}
    clusters = {cluster: at for at, cluster in enumerate(dict.fromkeys(each.cluster for each in brokers))}
    for each in brokers:
        if each.role == Role.STANDBY:
            continue
        first = COMMON + clusters[each.cluster] * POOL
        own = chance.some_of(range(first, first + POOL), SUBSCRIPTIONS // 2)
        common = chance.some_of(range(COMMON), SUBSCRIPTIONS // 2)
        found[each.id] = {k: 1 + chance.below(CLIENTS_MAX) for k in (*own, *common)}
    return found


class Network:
    """All of it. ``told`` is given what members are told, as (broker's process, effect)."""

    def __init__(
        self, brokers: Sequence[BrokerInfo], membership: Membership, recovery: Recovery, seed: int
    ) -> None:
        self.world = world = World(seed)
        self.brokers = {each.id: each for each in brokers}
        self.membership = membership
        self.interested = False  # brokers have subscribers
        self.told: list[Told] = []
        world.log(PLACES.commands)
        world.log(PLACES.snapshots)
        world.table(PLACES.table)
        settings = Settings(network=PLACES.network, membership=membership, recovery=recovery)
        self.coordinator = Metered(Coordinator("coordinator-1", PLACES, options(settings)))
        world.add(LEADER, lambda _disk: self.coordinator)
        world.group(COORDINATOR, (LEADER,))
        self.planner = Planner(world, holdings_of(brokers, world.chances.of("holdings")))
        for kind in (RoutesChanged, ChangesRouted, DestinationsChanged, StandInsChanged, Orphaned, Adopted):
            world.own(kind, lambda address, effect: None)
        world.own(BackupsKnown, self._tell)
        world.own(StandIn, self._tell)
        world.own(StandDown, self._tell)
        chance = world.chances.of("start")
        for each in brokers:
            make, start_us = partial(self._make, each), chance.below(SPREAD_US)
            world.group(broker_address(each.id), (each.id,))
            world.add(each.id, make, start_us=start_us, restart_after_us=RESTART_US)

    def _make(self, own: BrokerInfo, disk: Disk) -> Member:
        made = Member(own, self.membership, disk, interested=self.interested)
        if made.info.id != own.id:  # under this name there are two processes then, if the other one is back
            self.world.group(broker_address(made.info.id), (made.info.id, own.id))
        return made

    def _tell(self, address: Address, effect: BackupsKnown | StandIn | StandDown) -> None:
        if isinstance(effect, StandIn) and self.interested:
            self._want(address, (filter_of(effect.broker),), ())
        elif isinstance(effect, StandDown) and self.interested:
            self._want(address, (), (filter_of(effect.broker),))
        for tell in self.told:
            tell(address, effect)

    def _want(self, address: Address, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        self.world.post(address, InterestsChanged(added=added, removed=removed, cause=f"{address}:clients"))

    def subscribers_come(self) -> None:
        """To every broker that serves; who starts later has them from the beginning."""
        self.interested = True
        for each in self.brokers.values():
            if each.role != Role.STANDBY:
                self._want(each.id, (filter_of(each.id),), ())

    @property
    def state(self) -> State:
        """As the coordinator has it. For looking."""
        return self.coordinator.machine.replica

    def is_whole(self) -> bool:
        """Whether every broker is there under its own name, and nobody has another's place."""
        members, survival = self.state.members, self.state.survival
        if survival.vacancies or survival.promotions or len(members) != len(self.brokers):
            return False
        return all(each.id in members and members[each.id].info == each for each in self.brokers.values())
