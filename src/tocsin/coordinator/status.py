"""The status of each coordinator, in a table that can be read without asking one.

Every coordinator looks once a second, and writes what changed into a cell of its own. The cell goes by itself when it
is not written for TTL_S, so that the same is written again before that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.leader.rerouting import told
from tocsin.core.coordination.state.state import State
from tocsin.errors import TocsinError
from tocsin.model.network import Role as BrokerRole
from tocsin.model.versions import Document
from tocsin.ports import Table
from tocsin.runtime.machines.clock import monotonic_s

PREFIX: Final = "status."
TTL_S: Final = 5.0
AGAIN_S: Final = 2.0  # before the same is written again: one write may fail

Role = Literal["leader", "follower", "candidate", "restoring"]

_ROLES: Final[dict[str, Role]] = {
    "leading": "leader",
    "following": "follower",
    "claiming": "candidate",
    "reading": "candidate",
    "opening": "candidate",
}


class Cut(msgspec.Struct, frozen=True):
    """A link between two brokers that are there, which does not work."""

    broker: str  # which would send
    peer: str
    via: tuple[str, ...]  # the relays over which it sends instead, in order; none: there is no detour


class Gone(msgspec.Struct, frozen=True):
    """A broker that the leader does not hear: it is dead, or cut off."""

    broker: str
    cluster: str
    by: str | None  # the broker that stands in for it; None: nobody could


class Draining(msgspec.Struct, frozen=True):
    """A broker that is being emptied."""

    broker: str
    clients: int  # that are still connected to it
    here: bool = True  # the leader hears it
    refuses: bool = (
        True  # it has said that it takes no new clients; a leader of an earlier release does not tell
    )

    @property
    def empty(self) -> bool:
        """Nobody is connected to it, and nobody will be."""
        return not self.here or (self.refuses and not self.clients)


class Recruited(msgspec.Struct, frozen=True):
    """An edge broker that is recruited as a standby."""

    broker: str
    cluster: str
    stands_by: bool  # it does so already; otherwise it is being emptied
    clients: int = 0  # that are still connected to it, as the leader knows
    place: str = ""  # the broker whose place a standby has, as the leader knows


class Lacking(msgspec.Struct, frozen=True):
    """A cluster that lacks standbys, and of which nobody can be recruited."""

    cluster: str
    place: str  # the broker whose place a standby of the cluster has
    free: int
    wanted: int
    obstacles: dict[str, str]  # edge broker of the cluster → why it cannot be recruited


class Carries(msgspec.Struct, frozen=True):
    """What a member of a tier carries, as it has told last."""

    broker: str
    busy: float  # share of the time in which it works, or waits for a processor
    messages_s: int
    bytes_s: int
    links: int  # over which something was carried


class Growing(msgspec.Struct, frozen=True):
    """How large a tier should be, where it grows and shrinks by its load."""

    tier: str
    members: int  # that it should have
    spare: tuple[str, ...]  # members that carry nothing any more, and may be stopped
    use: float | None  # of what its members can carry, that the load is heading for; None: not known


class Status(msgspec.Struct, frozen=True):
    """One coordinator."""

    id: str
    role: Role
    epoch: int
    position: int  # of the command log, as far as it was applied
    brokers: int
    streams: int
    queries: int
    clients: int
    host: str
    pid: int
    cut: tuple[Cut, ...] = ()  # links between brokers that are cut
    shunned: tuple[str, ...] = ()  # routing brokers that other clusters do not reach
    gone: tuple[Gone, ...] = ()  # brokers that are not heard, and their stand-ins
    level: int = 0  # of the protocol, that the network works at
    problem: str = ""  # why it cannot follow the network
    standbys: tuple[str, ...] = ()  # that are free
    draining: tuple[Draining, ...] = ()  # brokers that are being emptied, as the leader knows
    promoted: dict[str, str] = {}  # standby → the broker whose place it has, or is about to have
    recruits: tuple[
        Recruited, ...
    ] = ()  # edge brokers that stand by; of a leader also those that are emptied for it
    lacking: tuple[Lacking, ...] = ()  # of a leader: the clusters for which nobody can be recruited
    carries: tuple[Carries, ...] = ()  # of a leader: the members of tiers
    growing: tuple[Growing, ...] = ()  # of a leader
    loads: dict[str, int] = {}  # of a leader: how full brokers are, in thousandths; those that are empty not


STATUS: Final = Document("the status of a coordinator", msgspec.json.Decoder(Status))


def describe(machine: Coordinator, host: str, pid: int) -> Status:
    state = machine.replica
    return Status(
        id=machine.name,
        role=_ROLES.get(machine.state, "restoring"),
        epoch=machine.epoch,
        position=machine.position,
        brokers=len(state.members),
        streams=len(state.presence.streams),
        queries=len(state.matching),
        clients=len(state.presence.clients),
        host=host,
        pid=pid,
        cut=tuple(Cut(*each) for each in told(state)),
        level=state.level,
        problem=machine.problem,
        shunned=tuple(sorted(state.interest.plan.shunned)),
        gone=tuple(
            Gone(broker, place.info.cluster, place.by) for broker, place in state.survival.vacancies.items()
        ),
        standbys=free_standbys(state),
        draining=_draining(machine),
        promoted=_promoted(state),
        recruits=_recruits(machine),
        lacking=_lacking(machine),
        carries=_carries(machine),
        growing=_growing(machine),
        loads={} if machine.leader is None else machine.leader.attention.loads(),
    )


def _draining(machine: Coordinator) -> tuple[Draining, ...]:
    if machine.leader is None:
        return ()
    here = {broker: member.incarnation for broker, member in machine.replica.members.items()}
    found = machine.leader.attention.balance.emptying(here)
    return tuple(Draining(each.broker, each.clients, each.here, each.refuses) for each in found)


def _carries(machine: Coordinator) -> tuple[Carries, ...]:
    told = {} if machine.leader is None else machine.leader.placing.loads()
    return tuple(
        Carries(each.broker, each.busy / 1_000, each.messages_s, each.bytes_s, each.links)
        for _, each in sorted(told.items())
    )


def _growing(machine: Coordinator) -> tuple[Growing, ...]:
    wanted = {} if machine.leader is None else machine.leader.growth.wanted()
    return tuple(
        Growing(tier, each.members, each.spare, None if each.use is None else round(each.use, 2))
        for tier, each in wanted.items()
    )


def _recruits(machine: Coordinator) -> tuple[Recruited, ...]:
    members = machine.replica.members
    infos = sorted((each.info for each in members.values()), key=lambda each: each.id)
    standing = [Recruited(each.id, each.cluster, stands_by=True) for each in infos if each.recruited]
    if machine.leader is None:
        return tuple(standing)
    emptied = [
        Recruited(each.broker, members[each.broker].info.cluster, False, each.clients, each.place)
        for each in machine.leader.recruits.recruits()
        if each.broker in members and not members[each.broker].info.recruited
    ]
    return (*standing, *emptied)


def _lacking(machine: Coordinator) -> tuple[Lacking, ...]:
    lacks = () if machine.leader is None else machine.leader.recruits.lacks()
    return tuple(Lacking(each.cluster, each.place, each.free, each.wanted, each.obstacles) for each in lacks)


def free_standbys(state: State) -> tuple[str, ...]:
    """The standbys that nobody's place is promised to."""
    found = (each.info for each in state.members.values())
    taken = state.survival.promotions
    return tuple(
        sorted(each.id for each in found if each.role == BrokerRole.STANDBY and each.id not in taken)
    )


def _promoted(state: State) -> dict[str, str]:
    infos = (each.info for each in state.members.values())
    return {**state.survival.promotions, **{each.certified: each.id for each in infos if each.certified}}


class Teller:
    """Writes the status of one coordinator."""

    def __init__(self, table: Table, clock: Callable[[], float] = monotonic_s) -> None:
        self._table = table
        self._clock = clock
        self._told: tuple[Status, float] | None = None  # what was written, and when

    async def tell(self, status: Status) -> None:
        """Write it down, unless it is there; nothing depends on it, so that a failure is not worth more than the next
        try."""
        now_s = self._clock()
        if self._told is not None and self._told[0] == status and now_s - self._told[1] < AGAIN_S:
            return
        try:
            await self._table.put(f"{PREFIX}{status.id}", STATUS.write(status), ttl_s=TTL_S)
        except TocsinError:
            return
        self._told = status, now_s


async def read_all(table: Table) -> list[Status]:
    """Coordinators that have written lately, in order of their ids."""
    found: list[Status] = []
    for key in await table.keys(PREFIX):
        cell = await table.get(key)
        if cell is not None:
            found.append(STATUS.read(cell.value))
    return found
