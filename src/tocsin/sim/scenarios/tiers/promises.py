"""The promises of a tier."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tocsin.core.coordination.leader import placing
from tocsin.core.coordination.leader.leader import Leader
from tocsin.core.coordination.state.state import State
from tocsin.core.tiers.hot import part
from tocsin.core.tiers.slots import NOBODY, SLOTS, gate_of
from tocsin.core.tiers.strategies import Kind, strategy
from tocsin.core.tiers.strategies import Wanted as Tier
from tocsin.sim.chance import MILLION
from tocsin.sim.process.broker import broker_at, coordinator_at
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.links.traffic import Message, Traffic
from tocsin.sim.scenarios.tiers.newcomers import TOPICS as LATE
from tocsin.sim.scenarios.tiers.traffic import Drain
from tocsin.sim.scenarios.tiers.troubles import FLIGHT_US, Troubles
from tocsin.sim.world import World

LOOK_US: Final = MILLION // 2
PATIENCE_US: Final = placing.UNEVEN_US + 2 * placing.LOOK_US
LONG_US: Final = 2 * PATIENCE_US
TIER: Final = "hub"

Wanted = Mapping[str, Sequence[str]]  # broker → the topics that its client is subscribed to


class OneCarrier(Invariant):
    """Every slot has one carrier and another deputy, both are there as far as the log says, and replicas agree."""

    name = "every slot has a carrier and a deputy"

    def __init__(self, hubs: Collection[str], coordinators: Collection[str]) -> None:
        self._hubs = hubs
        self._coordinators = coordinators

    def attach(self, world: World) -> None:
        self._world = world
        world.at(LOOK_US, self._look)

    def _look(self) -> None:
        self._hold_to()
        self._world.at(self._world.now_us + LOOK_US, self._look)

    def _hold_to(self) -> None:
        found: dict[int, tuple[str, object]] = {}
        for name in self._coordinators:
            machine = coordinator_at(self._world, name)
            if machine is None or machine.leader is not None:
                continue  # a leader's state is ahead of the log
            self._hold_state(name, machine.replica)
            slots = {tier: table.slots for tier, table in machine.replica.tiers.tables.items()}
            other, known = found.setdefault(machine.position, (name, slots))
            if known != slots:
                self.broken(f"{name} and {other} differ at {machine.position}")

    def _hold_state(self, name: str, state: State) -> None:
        tables = state.tiers.tables
        carrying = {each for each in self._hubs if each in state.members} - state.interest.plan.shunned
        if state.level and set(tables) != ({TIER} if carrying else set()):
            self.broken(f"{name} has the tiers {sorted(tables)}, and {sorted(carrying)} are there")
        for table in tables.values():
            slots = table.slots
            if set[str]().union(*slots.apart.values()) - carrying:
                self.broken(f"{name} has brokers that are gone carry topics: {slots.apart}")
            for slot in range(SLOTS):
                carrier, deputy = slots.carriers[slot], slots.deputies[slot]
                if carrier not in carrying:
                    self.broken(f"{name} has {carrier or 'nobody'} carry slot {slot}")
                if deputy not in carrying - {carrier} and (len(carrying) > 1 or deputy != NOBODY):
                    self.broken(f"{name} has {deputy or 'nobody'} as the deputy of slot {slot}")

    def finish(self, world: World) -> None:
        self._hold_to()


class Once(Invariant):
    """A message comes once."""

    name = "no message comes twice"

    def __init__(self, traffic: Traffic, troubles: Troubles) -> None:
        self._troubles = troubles
        self._got: set[tuple[str, Message]] = set()
        traffic.on_got.append(self._look)

    def _look(self, broker: str, message: Message) -> None:
        if (broker, message) in self._got and self._troubles.calm(message.at_us, broker, message.origin):
            self.broken(f"{broker} got a message of {message.origin} at {message.at_us} twice")
        self._got.add((broker, message))


class InOrder(Invariant):
    """Messages of one broker on one topic come in order, also while their slot moves; on new topics several clients of
    a broker publish."""

    name = "no message overtakes another"

    def __init__(self, traffic: Traffic, troubles: Troubles) -> None:
        self._troubles = troubles
        self._newest_us: dict[tuple[str, str, str], int] = {}
        traffic.on_got.append(self._look)

    def _look(self, broker: str, message: Message) -> None:
        key = (broker, message.origin, message.topic)
        newest_us = self._newest_us.get(key, 0)
        ends = broker, message.origin
        calm = self._troubles.calm(message.at_us, *ends) and self._troubles.calm(newest_us, *ends)
        if message.at_us < newest_us and calm and message.topic not in LATE:
            self.broken(f"{broker} got what {message.origin} published at {message.at_us} after {newest_us}")
        self._newest_us[key] = max(newest_us, message.at_us)


class Flows(Invariant):
    """A message comes to all who want it, and soon, unless something is wrong; also while slots move, and after the
    loss of a routing broker, without waiting for the leader to notice it."""

    name = "every message comes soon"

    def __init__(
        self, world: World, traffic: Traffic, wanted: Wanted, troubles: Troubles, end_us: int
    ) -> None:
        self._world = world
        self._traffic = traffic
        self._wanted = wanted
        self._troubles = troubles
        self._end_us = end_us
        self._got: set[tuple[str, Message]] = set()
        self.checked = 0
        traffic.on_got.append(self._take)

    def _take(self, broker: str, message: Message) -> None:
        self._got.add((broker, message))
        took_us = self._world.now_us - message.at_us
        if (
            took_us > FLIGHT_US
            and message.topic not in LATE
            and self._troubles.calm(message.at_us, broker, message.origin)
        ):
            self.broken(f"{broker} got what {message.origin} published at {message.at_us} {took_us} µs later")

    def finish(self, world: World) -> None:
        for message in self._traffic.messages:
            for broker, topics in self._wanted.items():
                calm = self._troubles.calm(message.at_us, broker, message.origin)
                if message.topic not in topics or not calm:
                    continue
                self.checked += 1
                if (broker, message) not in self._got:
                    self.broken(
                        f"{broker} never got what {message.origin} published on {message.topic} at {message.at_us}"
                    )
        if not any(each.at_us > self._end_us - 5 * MILLION for each in self._traffic.messages):
            self.broken("nobody published anything in the end")


class Alike(Invariant):
    """In the end members carry alike: as many slots, or as the strategy has it. A load that became uneven a moment ago
    may still be, and slots that rest."""

    name = "members carry alike"

    def __init__(self, hubs: Collection[str], drains: Sequence[Drain], kind: Kind) -> None:
        self._hubs = hubs
        self._emptied = {each.broker for each in drains if each.until_us is None}
        self._kind = kind

    def finish(self, world: World) -> None:
        leaders = [
            each.leader for node in world.addresses if (each := coordinator_at(world, node)) is not None
        ]
        leader = next((each for each in leaders if each is not None), None)
        if leader is None:
            return
        slots = leader.state.tiers.tables[TIER].slots
        staying = tuple(each for each in self._hubs if each not in self._emptied)
        counts = [slots.carriers.count(hub) for hub in staying]
        ours, load = strategy(self._kind), leader.placing.load(TIER)
        wanted = Tier(slots, staying, rested=leader.placing.rested(TIER, world.now_us))
        if self._kind == "hash":
            long = leader.placing.same_us(TIER, world.now_us) >= PATIENCE_US
            late = long and bool(ours.place(wanted, load))
        else:
            waited_us = leader.placing.uneven_us(TIER, world.now_us)
            late = waited_us >= PATIENCE_US and bool(ours.relieve(wanted, load))
            late = late or (len(staying) > 1 and self._is_hot(leader, wanted, world.now_us))
        if late:
            self.broken(f"members do not carry alike: {counts} slots")

    def _is_hot(self, leader: Leader, wanted: Tier, now_us: int) -> bool:
        """Whether a topic that brings very much is carried by one member, and has been for long, and others could carry
        a part of it: those who publish it may all prefer the same member."""
        if self._kind in (*placing.UNPARTED, "bytes") or leader.placing.same_us(TIER, now_us) < LONG_US:
            return False
        topics, apart = leader.placing.topics(TIER), leader.state.tiers.tables[TIER].apart
        carried = strategy(self._kind).carried(wanted, leader.placing.load(TIER))
        could = part(apart, topics, carried, wanted.members)
        mean = sum(carried.values()) / len(self._hubs)
        return any(
            rate.weight > 2 * mean and len(apart.get(topic, ())) < 2 <= len(could.get(topic, ()))
            for topic, rate in topics.items()
        )


class Agreed(Invariant):
    """In the end every broker sends over the carriers that the log names, holds nothing, and those who are emptied
    carry nothing."""

    name = "brokers send over the carriers of the log"

    def __init__(self, edges: Collection[str], hubs: Collection[str], drains: Sequence[Drain]) -> None:
        self._edges = edges
        self._hubs = hubs
        self._emptied = {each.broker for each in drains if each.until_us is None}

    def finish(self, world: World) -> None:
        replicas = [each for node in world.addresses if (each := coordinator_at(world, node)) is not None]
        table = replicas[0].replica.tiers.tables[TIER]
        carried = {hub: table.carried()[hub] for hub in self._hubs}
        if any(carried[hub] for hub in self._emptied):
            self.broken(f"a member that was emptied carries slots: {carried}")
        for edge in self._edges:
            broker = broker_at(world, edge)
            if broker is None:
                self.broken(f"{edge} does not run")
            ways = broker.parts.exchange.carrying.machine
            for slot in range(SLOTS):
                if ways.place(gate_of(TIER), slot) != (table.slots.carriers[slot], False):
                    self.broken(
                        f"{edge} sends slot {slot} over {ways.place(gate_of(TIER), slot)}, "
                        f"and {table.slots.carriers[slot]} carries it"
                    )
            for topic in table.apart:
                if ways.place(gate_of(TIER), topic) != (table.slots.order(topic, edge)[0], False):
                    self.broken(f"{edge} sends {topic} over {ways.place(gate_of(TIER), topic)}")
