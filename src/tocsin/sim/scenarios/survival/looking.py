"""The brokers that run, as promises look at them: whom they have, what they copy, what they believe.

Nothing here changes anything. All that promises know of a broker's inside is in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from tocsin.broker.assembly import Broker
from tocsin.broker.delivery.message_log import Stored
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.delivery.stored_session import StoredSession, decode_session, session_key
from tocsin.core.machine import Say
from tocsin.core.replication.copy import Copy
from tocsin.core.replication.recipient import Recipient
from tocsin.model.message import Address
from tocsin.model.publication import Publication
from tocsin.sim.invariants import InvariantBroken
from tocsin.sim.network import STORE
from tocsin.sim.node import Status
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import SESSIONS
from tocsin.sim.scenarios.survival.programs import WILLS
from tocsin.sim.world import World
from tocsin.wire.replication import Bequest, Role

STANDS_IN: Final = "stands in for a broker that is gone"
PLACE_TAKEN: Final = "a standby takes the place of a broker that is gone"
RESTARTED: Final = "a broker is back that forgot its clients"


class Life(msgspec.Struct, frozen=True):
    """One connection of a client, as its broker has it: the session and its epoch, and the id of its will."""

    client: str
    node: Address
    broker: str  # whose name the process has
    session: str
    epoch: int
    will_id: str  # empty: it has none
    since_us: int  # when it was looked at


class Running:
    """One broker in one process. A standby that takes a place, or gives it back, is another one from then on."""

    def __init__(self, world: World, node: Address, process: SimulatedProcess, broker: Broker) -> None:
        self.node = node
        self.process = process
        self.broker = broker
        self.began_us = world.now_us
        self._world = world
        self._parts = broker.parts
        self._replication = broker.parts.replication

    @property
    def name(self) -> str:
        return self.broker._own.id

    @property
    def member(self) -> Participant:
        return self.broker._member

    def life(self, client: str) -> Life | None:
        """The connection by which a client is here, if it has its session."""
        here = self._parts.clients.present.get(client)
        if here is None or not here.delivery.here:
            return None
        delivery = here.delivery
        session, epoch, now_us = delivery.session, delivery.session_epoch, self._world.now_us
        return Life(client, self.node, self.name, session, epoch, here.will_id, now_us)

    @property
    def clients(self) -> tuple[str, ...]:
        """Those that are here with their sessions."""
        present = self._parts.clients.present
        return tuple(client for client, each in present.items() if each.delivery.here)

    @property
    def clientele(self) -> dict[str, dict[str, object]]:
        """What backups are to know: the clients, with all that they are subscribed to."""
        state = self._replication.client_state
        return {
            each: {name: state.option(each, name) for name in state.names(each)} for each in state.clients()
        }

    def head(self, client: str) -> object:
        return self._replication.client_state.head(client)

    @property
    def recipients(self) -> Mapping[Role, Recipient]:
        return self._replication.primary.recipients

    @property
    def copies(self) -> Mapping[str, Copy]:
        """Of other brokers, by their names."""
        return self._replication.backup.copies

    @property
    def stands_in_for(self) -> tuple[str, ...]:
        return self._parts.takeovers.brokers

    @property
    def is_cut_off(self) -> bool:
        """Whether clients are served provisionally: what they are told is not stored."""
        return self._parts.provisional.cut_off

    def is_unkept(self, client: str, topic: str) -> bool:
        """Whether a client that is here said something of a stream that no coordinator has, and messages go on."""
        here = self._parts.clients.present.get(client)
        return here is not None and here.delivery.is_unkept(topic)

    def is_void(self, will_id: str) -> bool:
        return self._replication.backup.is_void(will_id)

    def wills(self, client: str) -> list[Bequest]:
        """Those of a client that the broker knows: of its connection, of one that waits, in copies."""
        here = self._parts.clients.present.get(client)
        found = [self._parts.wills.unsettled(client), None if here is None else here.bequest()]
        found += [copy.clients[client].head.will for copy in self.copies.values() if client in copy.clients]
        return [each for each in found if each is not None]

    def will_ids(self, client: str) -> tuple[str, ...]:
        return tuple(each.record_id for each in self.wills(client))

    def heard_of(self, client: str) -> tuple[int, str]:
        """When it was last told that a client came to a broker, by its clock, and to which."""
        at_us, broker, _ = self._parts.takeovers._machine._recent.get(client, (0, "", ""))
        return at_us, broker

    def held(self) -> dict[str, int]:
        """How much of what there is, for bounds."""
        replication, parts = self._replication, self._parts
        copies, recipients = self.copies.values(), self.recipients.values()
        return {
            "requests to the store": len(self.process.store._waiting),
            "tasks": len(self.process.tasks),
            "connections": len(parts.clients.present),
            "clients in a copy": max((len(each.clients) for each in copies), default=0),
            "clients away": len(replication.client_state),
            "wills": len(parts.wills),
            "tickets": max((len(each.tickets) for each in recipients), default=0),
            "dirty clients": max((each.behind for each in recipients), default=0),
        }


Wills = Callable[[Running, Publication, str], None]


class Brokers:
    """All brokers of a world. ``on_will`` hears of wills that a broker gives to its log, with their ids; ``on_end`` of
    brokers whose process has ended, or is another broker from now on."""

    def __init__(self, world: World, nodes: tuple[Address, ...]) -> None:
        self.world = world
        self.nodes = nodes
        self.on_will: list[Wills] = []
        self.on_end: list[Callable[[Running], None]] = []
        self.ended_us: dict[str, int] = {}  # name → when a process that had it ended last
        self._running: dict[Address, Running] = {}
        world.observers.on_life(self._on_life)

    def began(self, node: Address, process: SimulatedProcess, broker: Broker) -> None:
        """A process runs this broker from now on."""
        self._ended(node)
        running = self._running[node] = Running(self.world, node, process, broker)
        message_log = broker.parts.message_log
        commit = message_log.commit

        def tapped(
            publication: Publication, record_id: str, stored: Stored, behind: int | None = None
        ) -> None:
            if publication.topic.startswith(WILLS):
                self._give_out(running, publication, record_id)
            commit(publication, record_id, stored, behind)

        message_log.commit = tapped  # type: ignore[method-assign]

    def _give_out(self, running: Running, publication: Publication, record_id: str) -> None:
        """Tell of a will. Who calls is within a process, whose errors are its own: a breach is told by the world."""
        try:
            for hook in self.on_will:
                hook(running, publication, record_id)
        except InvariantBroken as broken:
            self.world.at(self.world.now_us, partial(_raise, broken))

    def _on_life(self, node: Address, happening: str) -> None:
        if happening in ("crashed", "stopped"):
            self._ended(node)

    def _ended(self, node: Address) -> None:
        dead = self._running.pop(node, None)
        if dead is not None:
            self.ended_us[dead.name] = self.world.now_us
            for hook in self.on_end:
                hook(dead)

    def running(self) -> list[Running]:
        """All that run now, in the order of their nodes."""
        return [self._running[node] for node in self.nodes if node in self._running]

    def at(self, node: Address) -> Running | None:
        return self._running.get(node)

    def named(self, name: str) -> list[Running]:
        return [each for each in self.running() if each.name == name]

    def is_running(self, one: Running) -> bool:
        return self._running.get(one.node) is one

    def is_calm(self) -> bool:
        """Whether nothing is wrong with the network and the store just now."""
        store = self.world.store
        return self.world.network.calm and not store.weather and not store.leaderless

    def is_awake(self, one: Running) -> bool:
        return self.world.node(one.node).status is Status.RUNNING

    def hears(self, one: Running) -> bool:
        """Whether a broker has the store and the bus to itself just now, as it should."""
        network, store = self.world.network, self.world.store
        cut = network.blocked(one.node, STORE) or network.blocked(STORE, one.node)
        return not cut and not store.weather and not store.leaderless and self.is_awake(one)

    def session(self, client: str) -> StoredSession | None:
        """What the store has of a client."""
        store = self.world.store
        cell = store.tables[SESSIONS.name].get(session_key(client), store.clock_us)
        return None if cell is None else decode_session(cell.value)

    def is_unkept(self, client: str, topic: str) -> bool:
        """Whether a client's stream is known to no coordinator, as its broker says, or its session."""
        session = self.session(client)
        stored = session is not None and topic in session.unkept_streams
        return stored or any(each.is_unkept(client, topic) for each in self.running())


def _raise(broken: InvariantBroken) -> None:
    raise broken


def stands_in_for(say: Say) -> tuple[str, int]:
    """For whom, and in which epoch."""
    epoch = say.facts["epoch"]
    assert isinstance(epoch, int)
    return str(say.facts["broker"]), epoch
