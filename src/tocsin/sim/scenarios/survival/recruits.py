"""``survival`` with one standby, and edge brokers that are recruited while it is in use."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.broker.assembly import SERVES_AGAIN, STANDS_BY
from tocsin.config.recovery import Recovery
from tocsin.core.coordination.leader.recruiting import OTHERS
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import Say
from tocsin.model.network import Address, Role
from tocsin.ports import Entry
from tocsin.sim.chance import MILLION
from tocsin.sim.process.broker import coordinator_at
from tocsin.sim.process.stage import NAMES, configured
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.population import BROKERS, COORDINATORS, FAULTS
from tocsin.sim.scenarios.survival.promises.looking import Brokers, Running
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Left, Lost, Promoted, Said, decode_batch

WANTED: Final = 1
RECOVERY: Final = Recovery(will_grace_s=5, standbys_wanted=WANTED, recruit_after_s=1)
MAY: Final = ("north-1", "north-2")  # those that may stand by: they have programs
RECRUIT_BROKERS: Final = (
    *(msgspec.structs.replace(each, may_stand_by=each.id in MAY) for each in BROKERS),
    configured("north-3", "north"),
    configured("north-4", "north"),
)
_NODES: Final = tuple(each.id for each in RECRUIT_BROKERS)
RECRUIT_FAULTS: Final = msgspec.structs.replace(
    FAULTS,
    targets=(*_NODES, *("north-1", "north-2", "north-3", "north-4"), *COORDINATORS),
    groups=(
        ("north-1", "north-2", "north-spare"),
        ("north-3", "north-4"),
        ("north-2", "south-1", "south-2"),
        COORDINATORS,
    ),
    brokers=_NODES,
    longest_us=20 * MILLION,
    moments=(*FAULTS.moments, STANDS_BY, SERVES_AGAIN),
)
EMPTIES: Final = "this broker is being emptied"
TAKES_CLIENTS: Final = "this broker takes clients again"
GIVEN_UP: Final = "a recruitment is given up: the broker serves on"
RECENT_US: Final = 3 * MILLION  # what a leader or a broker did so long ago was decided before they knew of it


class _Watch(Invariant):
    """Looks at the newest state that a coordinator has, and at when it changed."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._changed_us: dict[str, int] = {}  # broker that went, or was promoted → when
        self._world: World

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_entry(NAMES.commands.name, self._on_entry)

    def _on_entry(self, entry: Entry) -> None:
        if entry.subject != NAMES.commands_subject:
            return
        for command in decode_batch(entry.payload).commands:
            match command:
                case Said(broker=name, commands=commands) if any(isinstance(each, Left) for each in commands):
                    self._changed_us[name] = self._world.now_us
                case Lost(broker=name) | Promoted(standby=name):
                    self._changed_us[name] = self._world.now_us

    def _is_settled(self, but: str) -> bool:
        """Whether nothing happened lately to any broker but this one."""
        now_us = self._world.now_us
        return all(now_us - at_us >= RECENT_US for name, at_us in self._changed_us.items() if name != but)

    def _state(self) -> State | None:
        found = [each for name in COORDINATORS if (each := coordinator_at(self._world, name)) is not None]
        newest = max(found, key=lambda each: (each.epoch, each.position), default=None)
        return None if newest is None else newest.replica

    def _said(self, node: Address) -> tuple[Running, State] | None:
        """The broker that says something, and the state."""
        running, state = self._brokers.at(node), self._state()
        return None if running is None or state is None else (running, state)


class StandsByIdle(_Watch):
    """A broker that begins to stand by has no clients, and no plan that its leader could know names it."""

    name = "a broker that begins to stand by has no clients, and backs nobody"

    def attach(self, world: World) -> None:
        super().attach(world)
        world.observers.on_say(STANDS_BY, self._look)

    def _look(self, node: Address, say: Say) -> None:
        if (said := self._said(node)) is None:
            return
        running, state = said
        if running.clients:
            self.broken(f"{node} begins to stand by, and has {', '.join(running.clients)}")
        newer = state.epoch > running.member.epoch  # a leader that it has not heard may need it again
        if not newer and state.survival.backs_any(running.name):
            self.broken(f"{node} begins to stand by, and a plan names it as a backup")


class OthersServe(_Watch):
    """When a broker begins to stand by, enough others of its cluster are there."""

    name = "a cluster keeps enough brokers that serve when one begins to stand by"

    def attach(self, world: World) -> None:
        super().attach(world)
        world.observers.on_say(STANDS_BY, self._look)

    def _look(self, node: Address, say: Say) -> None:
        if (said := self._said(node)) is None or not self._is_settled(node):
            return
        running, state = said
        own = running.broker.info
        infos = [each.info for each in state.members.values()]
        others = [
            each.id
            for each in infos
            if (each.cluster, each.role) == (own.cluster, Role.EDGE) and each.id != own.id
        ]
        if len(others) < OTHERS:
            self.broken(f"{node} begins to stand by, and only {others} serve in {own.cluster}")


class EmptyingGoesOn(_Watch):
    """A broker that is emptied to stand by takes clients again only if a leader has given that up."""

    name = "a new leader goes on to empty the broker that the old one has recruited"

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self._since_us: dict[str, int] = {}  # broker that is being emptied → since when
        self._given_up: set[str] = set()

    def attach(self, world: World) -> None:
        super().attach(world)
        observers = world.observers
        observers.on_say(EMPTIES, self._on_begin)
        observers.on_say(GIVEN_UP, lambda node, say: self._given_up.add(str(say.facts["broker"])))
        observers.on_say(TAKES_CLIENTS, self._on_end)

    def _on_begin(self, node: Address, say: Say) -> None:
        self._since_us[node] = self._world.now_us
        self._given_up.discard(node)

    def _on_end(self, node: Address, say: Say) -> None:
        emptied_us = self._world.now_us - self._since_us.get(node, self._world.now_us)
        running = self._brokers.at(node)
        serves = running is not None and not running.is_standby
        if serves and emptied_us >= RECENT_US and node not in self._given_up:
            self.broken(f"{node} was emptied for {emptied_us} µs, and no leader says why it was given up")


class ServesAgainInTime(_Watch):
    """A recruit serves again only when its cluster has enough standbys without it."""

    name = "a recruit is released when there are enough standbys without it"

    def attach(self, world: World) -> None:
        super().attach(world)
        world.observers.on_say(SERVES_AGAIN, self._look)

    def _look(self, node: Address, say: Say) -> None:
        if (said := self._said(node)) is None or not self._is_settled(node):
            return
        running, state = said
        own, promised = running.broker.info, state.survival.promotions
        infos = [each.info for each in state.members.values()]
        free = [
            each.id
            for each in infos
            if (each.cluster, each.role) == (own.cluster, Role.STANDBY) and each.id not in (own.id, *promised)
        ]
        if len(free) < WANTED:
            self.broken(f"{node} serves again, and {free} are the standbys of {own.cluster}")


def recruit_promises(brokers: Brokers) -> list[Invariant]:
    return [StandsByIdle(brokers), OthersServe(brokers), EmptyingGoesOn(brokers), ServesAgainInTime(brokers)]
