"""Brokers that send copies of their state to their backups, in virtual time: the machines of ``core.replication``.

Every broker has its ``Primary`` and its ``Backup``, as in the product. The bus takes HOP_US and loses nothing. Clients
do nothing but receive: an execution of a channel moves the positions of all who are subscribed to it, at once.

Traffic is counted: updates and their bytes as they would be on the bus; answers and probes apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tocsin.core.coordination.state.backups import Backups
from tocsin.core.machine import CancelTimer, Effect, Machine, Received, Send, SetTimer, Started, TimerFired
from tocsin.core.replication.backup import Backup
from tocsin.core.replication.gamma import Copy
from tocsin.core.replication.primary import Primary
from tocsin.core.replication.signals import BackupsSet, Policy, Prepare, Unprepare
from tocsin.model.network import Message, broker_address
from tocsin.model.results import notice_position, result_position
from tocsin.sim.schedule import Schedule
from tocsin.wire.internal.replication import (
    LOCAL,
    Applied,
    Behind,
    Declined,
    Head,
    Option,
    Positions,
    Role,
    Update,
    encode_replication,
)
from tocsin_labs.reaps.backend import Backend
from tocsin_labs.reaps.workload import Workload

HOP_US: Final = 1_000  # over the bus
_HEAD: Final = Head(connected=True)
_OPTION: Final = Option(qos=1)
_BEGINNING: Final = Positions()


class Home:
    """A broker's clients, each with one subscription: Γ, as ``core.replication.gamma`` wants to read it."""

    def __init__(self, clients: Mapping[str, int], workload: Workload) -> None:
        """``clients``: which k each of them has."""
        self.k_of = dict(clients)
        self._topics = {client: workload.topic(k) for client, k in clients.items()}
        self.by_k: dict[int, list[str]] = {}
        for client, k in clients.items():
            self.by_k.setdefault(k, []).append(client)
        self.at: dict[str, Positions] = dict.fromkeys(clients, _BEGINNING)
        self._sizes = workload.sizes
        self._sent = dict.fromkeys(clients, 0)  # bytes

    def clients(self) -> Iterable[str]:
        return self.at.keys()

    def head(self, client: str) -> Head | None:
        return _HEAD if client in self.at else None

    def names(self, client: str) -> Iterable[str]:
        return (self._topics[client],)

    def option(self, client: str, name: str) -> Option | None:
        return _OPTION if self._topics.get(client) == name else None

    def positions(self, client: str) -> Positions | None:
        return self.at.get(client)

    def volume(self, client: str) -> int:
        return self._sent[client]

    def void(self, client: str) -> str:
        return ""

    def voided(self) -> Iterable[str]:
        return ()

    def deliver(self, k: int, notice: int) -> None:
        """All who have k got the results of that notice."""
        clients = self.by_k.get(k)
        if clients:
            reached = Positions(results=result_position(notice, 0))
            for client in clients:
                self.at[client] = reached
                self._sent[client] += self._sizes[k]


class _Node:
    """A machine with its timers: name → the token of the one that counts."""

    def __init__(self, machine: Machine, address: str) -> None:
        self.machine = machine
        self.address = address
        self.timers: dict[str, int] = {}
        self.set = 0


class Replicas:
    """All of them. ``starts_us`` says when each begins, so that they do not all replicate at one moment."""

    def __init__(
        self,
        homes: Mapping[str, Home],
        plan: Mapping[str, Backups],
        policy: Policy,
        backend: Backend,
        schedule: Schedule,
        workload: Workload,
        starts_us: Mapping[str, int],
    ) -> None:
        self.homes = dict(homes)
        self._plan = plan
        self._workload = workload
        self._schedule = schedule
        self._backend = backend
        self.messages = self.bytes = self.others = 0
        self.prepared: dict[str, set[tuple[str, str]]] = {}  # backup → (primary, name)
        names = {*homes, *(name for each in plan.values() for name in (each.local, each.remote) if name)}
        self.primaries: dict[str, Primary] = {}
        self.backups: dict[str, Backup] = {}
        self._nodes: dict[str, tuple[_Node | None, _Node]] = {}
        for name in sorted(names):
            self.backups[name] = Backup(name, copies_max=len(names))
            node = None
            if name in homes:
                self.primaries[name] = Primary(name, homes[name], policy)
                node = _Node(self.primaries[name], name)
                schedule.at(starts_us[name], self._start, node, plan[name])
            self._nodes[broker_address(name)] = node, _Node(self.backups[name], name)
        backend.listeners.append(self._deliver)

    # ── the shell ───────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, node: _Node, backups: Backups) -> None:
        now_us = self._schedule.now_us
        self._carry_out(node, node.machine.handle(Started(incarnation=1), now_us))
        chosen = BackupsSet(local=backups.local, remote=backups.remote, epoch=1)
        self._carry_out(node, node.machine.handle(chosen, now_us))

    def _carry_out(self, node: _Node, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to=to, message=message):
                    self._count(node, message)
                    primary, backup = self._nodes[to]
                    receiver = primary if isinstance(message, Applied | Behind | Declined) else backup
                    self._schedule.at(
                        self._schedule.now_us + HOP_US, self._receive, receiver, (node.address, message)
                    )
                case SetTimer(name=name, delay_us=delay_us):
                    node.set += 1
                    node.timers[name] = node.set
                    self._schedule.at(self._schedule.now_us + delay_us, self._fire, node, (name, node.set))
                case CancelTimer(name=name):
                    node.timers.pop(name, None)
                case Prepare(primary=primary_name, names=names):
                    self.prepared.setdefault(node.address, set()).update(
                        (primary_name, name) for name in names
                    )
                case Unprepare(primary=primary_name, names=names):
                    self.prepared[node.address].difference_update((primary_name, name) for name in names)

    def _receive(self, node: _Node, sent: tuple[str, Message]) -> None:
        event = Received(sender=broker_address(sent[0]), message=sent[1])
        self._carry_out(node, node.machine.handle(event, self._schedule.now_us))

    def _fire(self, node: _Node, timer: tuple[str, int]) -> None:
        if node.timers.get(timer[0]) == timer[1]:
            del node.timers[timer[0]]
            self._carry_out(node, node.machine.handle(TimerFired(name=timer[0]), self._schedule.now_us))

    def _count(self, node: _Node, message: Message) -> None:
        if isinstance(message, Update):
            self.messages += 1
            self.bytes += len(encode_replication(broker_address(node.address), "", message))
        else:
            self.others += 1

    def _deliver(self, channel: int, notice: int) -> None:
        for k in self._workload.of_channel(channel):
            for home in self.homes.values():
                home.deliver(k, notice)

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────

    def copy(self, broker: str, role: Role = LOCAL) -> Copy:
        """The copy of a broker's state that its local or its remote backup has."""
        backups = self._plan[broker]
        name = backups.local if role == LOCAL else backups.remote
        assert name is not None, "there is such a backup"
        return self.backups[name].copies[broker]

    def repeated(self, broker: str, role: Role = LOCAL) -> dict[int, list[int]]:
        """If the broker failed now: by k, how many results each of its clients would get twice ((eta, t])."""
        home, copied = self.homes[broker], self.copy(broker, role).clients
        found: dict[int, list[int]] = {}
        for client, reached in home.at.items():
            known = copied[client].positions
            if known is reached or known.results == reached.results:
                continue
            k = home.k_of[client]
            count = self._backend.between(
                self._workload.channel_of(k), notice_position(known.results), notice_position(reached.results)
            )
            found.setdefault(k, []).append(count)
        return found

    def troubles(self) -> int:
        """Restarted streams and missed tickets: nothing is lost here, so there are none."""
        return sum(each.resyncs + each.missed for each in self.primaries.values()) + sum(
            each.declined for each in self.backups.values()
        )


def homes_of(workload: Workload, brokers: Iterable[int]) -> dict[str, Home]:
    """The clients of these brokers."""
    wanted: dict[int, dict[str, int]] = {broker: {} for broker in brokers}
    for number, (broker, k) in enumerate(workload.homes):
        if broker in wanted:
            wanted[broker][f"s{number:06}"] = k
    return {workload.brokers[broker]: Home(clients, workload) for broker, clients in wanted.items()}
