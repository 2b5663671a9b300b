"""The brokers that run, as promises look at them: whom they have, what they copy, what they believe.

Nothing here changes anything. All that promises know of a broker's inside is in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec

from tocsin.broker.assembly import Broker
from tocsin.broker.delivery.message_log import Stored
from tocsin.broker.links.link import Link
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import ClientsChanged
from tocsin.core.coordination.participant.submission import CLEAR_US
from tocsin.core.delivery.stored_session import StoredSession, decode_session, session_key
from tocsin.core.forwarding.table import Leads
from tocsin.core.machine import Effect, Event, Say
from tocsin.core.replication.gamma import Copy
from tocsin.core.replication.recipient import Recipient
from tocsin.model.network import Address
from tocsin.model.network import Role as BrokerRole
from tocsin.model.publication import Publication
from tocsin.ports import Entry
from tocsin.sim.network import STORE
from tocsin.sim.node import Status
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import SESSIONS
from tocsin.sim.runs.invariants import InvariantBroken
from tocsin.sim.scenarios.survival.programs import WILLS
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Streams
from tocsin.wire.internal.replication import Bequest, Role

STANDS_IN: Final = "stands in for a broker that is gone"
PLACE_TAKEN: Final = "a standby takes the place of a broker that is gone"
RESTARTED: Final = "a broker is back that forgot its clients"
LEFT_BEHIND: Final = "a backup does not answer in time; the broker goes on without it"


class ServedClient(msgspec.Struct, frozen=True):
    """One connection of a client, as its broker has it: the session and its epoch, and the id of its will."""

    client: str
    node: Address
    broker: str  # whose name the process has
    session: str
    epoch: int
    will_id: str  # empty: it has none
    since_us: int  # when it was looked at


class _Declared(NamedTuple):
    number: int  # of the command
    until_us: int  # by the broker's clock: then messages need not wait any longer


class Clearance:
    """The streams that a broker declared last, and whether their messages still have to wait until others know them.

    Such a stream is **clear** when a leader has said that everybody concerned knows it. Until then messages may go on
    if no leader was heard lately, CLEAR_US later, or when the broker joins again.
    """

    def __init__(self, member: Participant) -> None:
        self._member = member
        self._declared: dict[str, _Declared] = {}  # by topic
        self._incarnation = member.incarnation
        self._now_us = 0
        self._handle = member.handle
        member.handle = self._tapped  # type: ignore[method-assign]

    def _tapped(self, event: Event, now_us: int) -> list[Effect]:
        member, outgoing = self._member, self._member._submission._outgoing
        self._now_us = now_us
        self._declared = {topic: each for topic, each in self._declared.items() if not self._is_clear(each)}
        if isinstance(event, ClientsChanged) and isinstance(event.command, Streams):
            for topic, _ in event.command.changes:
                self._declared[topic] = _Declared(outgoing.last + 1, now_us + CLEAR_US)
            if not member._heartbeat.is_led(now_us):
                self._let_go(now_us)
        effects = self._handle(event, now_us)
        if self._incarnation != member.incarnation:
            self._incarnation = member.incarnation
            self._let_go(now_us, outgoing.last)  # all is said again, under other numbers
        return effects

    def _let_go(self, now_us: int, number: int | None = None) -> None:
        self._declared = {
            topic: _Declared(each.number if number is None else number, min(now_us, each.until_us))
            for topic, each in self._declared.items()
        }

    def _is_clear(self, declared: _Declared) -> bool:
        return declared.number <= min(self._member._clear_to, self._member._effective)

    def is_let_go(self, topic: str) -> bool:
        """Whether messages of a stream may go on though it is not clear."""
        declared = self._declared.get(topic)
        return declared is not None and not self._is_clear(declared) and self._now_us >= declared.until_us


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
        self.clearance = Clearance(broker.member)
        self._heard: dict[
            str, tuple[int, str]
        ] = {}  # client → when it came to which broker, as was heard last
        takeovers = broker.parts.takeovers
        came = takeovers.came

        def tapped(client: str, at: str, owner: str = "") -> None:
            self._heard[client] = (world.now_us, at)
            came(client, at, owner)

        takeovers.came = tapped  # type: ignore[method-assign, assignment]

    @property
    def name(self) -> str:
        return self.broker._own.id

    @property
    def is_standby(self) -> bool:
        """Whether it waits for somebody's place."""
        return self.broker._own.role == BrokerRole.STANDBY

    @property
    def member(self) -> Participant:
        return self.broker._member

    def served(self, client: str) -> ServedClient | None:
        """The connection by which a client is here, if it has its session."""
        here = self._parts.clients.present.get(client)
        if here is None or not here.delivery.here:
            return None
        delivery = here.delivery
        session, epoch, now_us = delivery.session, delivery.session_epoch, self._world.now_us
        return ServedClient(client, self.node, self.name, session, epoch, here.will_id, now_us)

    def passes_by(self, client: str, publication: Publication) -> bool:
        """Whether a client is here that has got all of the log so far, and does not get this message next."""
        here = self._parts.clients.present.get(client)
        if here is None or not here.delivery.here or not here.delivery._machine.level:
            return False
        return all(target is not here for target, _ in self._parts.exchange.queries.wanted(publication))

    @property
    def clients(self) -> tuple[str, ...]:
        """Those that are here with their sessions."""
        present = self._parts.clients.present
        return tuple(client for client, each in present.items() if each.delivery.here)

    @property
    def drains(self) -> bool:
        """Whether it is being emptied, and takes no new clients."""
        return self._parts.removal.drains

    @property
    def clientele(self) -> dict[str, dict[str, object]]:
        """The state that backups should have: the clients, with all their subscriptions."""
        state = self._replication.client_state
        return {
            each: {name: state.option(each, name) for name in state.names(each)} for each in state.clients()
        }

    def head(self, client: str) -> object:
        return self._replication.client_state.head(client)

    @property
    def recipients(self) -> Mapping[Role, Recipient]:
        return self._replication.primary.recipients

    def says_all_of(self, client: str, backup: Recipient) -> bool:
        """Whether a backup has answered for all that there was to say of a client."""
        if not backup.whole or backup.degraded or backup.declined:
            return False
        return all(client not in each for each in (backup._dirty, backup._flying, backup._pending))

    @property
    def links(self) -> Mapping[str, Link]:
        """Its links, by the peer that they lead to."""
        return self._parts.exchange.peers.links

    @property
    def copies(self) -> Mapping[str, Copy]:
        """The copies of other brokers' clients, by broker."""
        return self._replication.backup.copies

    @property
    def stands_in_for(self) -> tuple[str, ...]:
        return self._parts.takeovers.brokers

    @property
    def covers(self) -> tuple[str, ...]:
        """The brokers whose messages it has sent to itself as well."""
        return self._parts.covers.machine.covers

    @property
    def leads(self) -> Leads:
        """The routes that do not lead to the peers that they name."""
        return self._parts.exchange._table._leads

    @property
    def is_cut_off(self) -> bool:
        """Whether clients are served provisionally: what they are told is not stored."""
        return self._parts.provisional.cut_off

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
        """When it was last told that a client came to a broker, and to which."""
        return self._heard.get(client, (0, ""))

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
Dispatch = Callable[[Running, Entry, Publication], None]


class Brokers:
    """All brokers of a world. ``on_will`` hears of wills that a broker gives to its log, with their ids; ``on_unclear``
    of messages that were let go before their streams were clear, as a broker hands them to its clients; ``on_end`` of
    brokers whose process has ended, or is another broker from now on."""

    def __init__(self, world: World, nodes: tuple[Address, ...]) -> None:
        self.world = world
        self.nodes = nodes
        self.on_will: list[Wills] = []
        self.on_unclear: list[Dispatch] = []
        self.on_end: list[Callable[[Running], None]] = []
        self.uncertain_until_us = (
            0  # a machine has moved: some do not know yet that their connections bring nothing
        )
        self.ended_us: dict[str, int] = {}  # name → when a process that had it ended last
        self._running: dict[Address, Running] = {}
        self._unclear: dict[
            str, None
        ] = {}  # ids of messages that were let go before their streams were clear
        world.observers.on_happening(self._on_happening)

    def began(self, node: Address, process: SimulatedProcess, broker: Broker) -> None:
        """A process runs this broker from now on."""
        self._ended(node)
        running = self._running[node] = Running(self.world, node, process, broker)
        message_log = broker.parts.message_log
        commit, take = message_log.commit, broker.parts.exchange.dispatch

        def tapped(
            publication: Publication, record_id: str, stored: Stored, behind: int | None = None
        ) -> None:
            if publication.topic.startswith(WILLS):
                self._give_out(running, publication, record_id)
            if running.clearance.is_let_go(publication.topic):
                self._unclear[record_id] = None
            commit(publication, record_id, stored, behind)

        def taken(entry: Entry, publication: Publication) -> bool:
            if entry.id in self._unclear:
                for hook in self.on_unclear:
                    hook(running, entry, publication)
            return take(entry, publication)

        message_log.commit = tapped  # type: ignore[method-assign]
        broker.parts.exchange.dispatch = taken  # type: ignore[method-assign]

    def _give_out(self, running: Running, publication: Publication, record_id: str) -> None:
        """Tell of a will. The caller runs inside a simulated process, which handles its own errors. So the world
        reports a breach."""
        try:
            for hook in self.on_will:
                hook(running, publication, record_id)
        except InvariantBroken as broken:
            self.world.at(self.world.now_us, partial(_raise, broken))

    def _on_happening(self, node: Address, happening: str) -> None:
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
        if self.world.now_us < self.uncertain_until_us:
            return False
        return self.world.network.calm and not store.weather and not store.leaderless

    def is_awake(self, one: Running) -> bool:
        return self.world.node(one.node).status is Status.RUNNING

    def hears(self, one: Running) -> bool:
        """Whether a broker has the store and the bus to itself just now, as it should."""
        network, store = self.world.network, self.world.store
        cut = network.blocked(one.node, STORE) or network.blocked(STORE, one.node)
        return not cut and not store.weather and not store.leaderless and self.is_awake(one)

    def session(self, client: str) -> StoredSession | None:
        """The stored session of a client."""
        store = self.world.store
        cell = store.tables[SESSIONS.name].get(session_key(client), store.clock_us)
        return None if cell is None else decode_session(cell.value)


def _raise(broken: InvariantBroken) -> None:
    raise broken


def stands_in_for(say: Say) -> tuple[str, int]:
    """For whom, and in which epoch."""
    epoch = say.facts["epoch"]
    assert isinstance(epoch, int)
    return str(say.facts["broker"]), epoch
