"""One broker, assembled: the exchange, its doors, what is durable, and its part in the network.

``broker.main`` gives it a real store, real sockets and a real process; the simulator gives it simulated ones. The
process provides clock and randomness (``runtime.machines.clock``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog

from tocsin.broker.channels.result_reader import ResultFiles
from tocsin.broker.entrance.readdressing import Mover
from tocsin.broker.entrance.redirects import Redirects
from tocsin.broker.entrance.websocket import framed
from tocsin.broker.identity import forget_link_secret
from tocsin.broker.links.link import LinkSecurity
from tocsin.broker.parts import Parts, Ports, Stored
from tocsin.broker.site import Site, Sockets
from tocsin.broker.survival.isolation import Isolation
from tocsin.broker.survival.replication import policy_of
from tocsin.broker.survival.summary import Fitness, Summaries, Weighing
from tocsin.broker.sys_topics import SysTopics
from tocsin.config import Settings
from tocsin.config.broker import LINK_LISTENER
from tocsin.core.budgets.budget import Budget, bounds_of
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.participant.participant import Participant, ParticipantState
from tocsin.core.coordination.participant.signals import (
    Adopted,
    AllDispatched,
    AwaitAll,
    AwaitDispatch,
    BackupsKnown,
    ClientsToMove,
    Deposed,
    DestinationsChanged,
    Dispatched,
    Leaving,
    Loaded,
    LoadMeasured,
    MeasureLinks,
    Orphaned,
    Promoted,
    Readdressed,
    RoleChanged,
    RoutesChanged,
    SendHome,
    StandDown,
    StandIn,
    StandInsChanged,
)
from tocsin.core.machine import Effect
from tocsin.core.survival.detection import Tuning, least_patience_us
from tocsin.model.network import BrokerInfo, Role, Scheme, broker_address
from tocsin.ports import Log, Store
from tocsin.runtime.host.score import Resources
from tocsin.runtime.machines.clock import now_us, token_hex
from tocsin.runtime.machines.driver import Driver
from tocsin.runtime.process import State
from tocsin.runtime.security.files import Guard
from tocsin.wire.internal.summaries import subject

REPORT_S: Final = 1.0
GRACE_S: Final = 0.5  # for clients to be told, and the coordinator, before the process ends
DRAIN_S: Final = 5.0  # for the sessions of those clients to be stored
STANDS_BY: Final = "this broker is recruited, and stands by from now on"
SERVES_AGAIN: Final = "this broker is released, and serves again"


class Host(Protocol):
    """The process that a broker runs in: a real one (``runtime.process``) or a simulated one."""

    @property
    def settings(self) -> Settings: ...

    @property
    def is_heard(self) -> bool:
        """Whether anybody hears the reports: figures are gathered for somebody only."""
        ...

    def report(self, state: State, **facts: object) -> None:
        """Say how the broker is; ``problem="…"`` among the facts says why it is degraded."""
        ...

    async def stopped(self) -> None:
        """Return once the broker is asked to stop."""
        ...


class Change(NamedTuple):
    """The next broker of a process: its role, and the lost broker whose place it takes, if any."""

    role: Role
    place: BrokerInfo | None = None


async def run_broker(
    host: Host,
    site: Site,
    store: Store,
    security: LinkSecurity,
    results: ResultFiles | None,
    fitness: Fitness | None = None,
    began: Callable[[Broker], None] = lambda broker: None,
) -> None:
    """Run one broker until its host asks it to stop. A standby takes the names of other brokers in between, as it is
    told: each time it starts again, under another name. An edge broker that is recruited starts again as a standby.
    ``began`` is told of each. Without ``results`` the pipeline is asked for them.
    """
    commands = await store.log(StoreNames(host.settings.network).commands)
    role, place = site.addresses.info.role, None
    while True:
        stored = await Stored.open(store, host.settings)
        broker = Broker(host, site, store, commands, stored, security, results, place, fitness, role)
        await broker.open()
        began(broker)
        change = await broker.run()
        if change is None:
            return
        role, place = change


class Broker:
    """One broker: its parts, wired together over a store, a host, and sockets that listen."""

    def __init__(
        self,
        host: Host,
        site: Site,
        store: Store,
        commands: Log,
        stored: Stored,
        security: LinkSecurity,
        results: ResultFiles | None,
        place: BrokerInfo | None = None,
        fitness: Fitness | None = None,
        role: Role | None = None,
    ) -> None:
        """``place``: the lost broker that this standby replaces, under its name; ``role``: if it is not that of its
        settings any more."""
        settings = host.settings
        self._host = host
        self._site = site
        self._role = role or site.addresses.info.role
        self._place = place
        self._spare = site.addresses.info.id if place is not None else ""
        self._own = own = self._named(site.addresses.info)
        self._change: asyncio.Future[Change] = asyncio.get_running_loop().create_future()
        self._store = store
        self._table = stored.network
        places = StoreNames(settings.network)
        membership = settings.membership
        tuning = Tuning(
            phi=membership.threshold,
            least_us=membership.least_ms * 1_000,
            most_us=membership.suspect_after_ms * 1_000,
            heartbeat_us=membership.beat_ms * 1_000,
            asks=True,
        )
        self._member = Participant(
            own,
            places,
            tuning.heartbeat_us,
            tuning.most_us,
            least_patience_us(tuning, tuning.heartbeat_us),
            substitute=place is not None,
        )
        self._driver = Driver(
            self._member,
            broker_address(own.id),
            store,
            network=settings.network,
            own=self._carry_out,
            logs={places.commands.name: commands},
        )
        self.parts = Parts(self._ports(security, results), stored)
        self.sys_topics = SysTopics(self.parts)
        self._fitness = fitness or Resources(
            settings, self._spare or own.id, own.cluster, standby=own.role == Role.STANDBY
        )
        self._mover = Mover(site, f"{own.id}:address", self._open_doors, self._readdressed)
        self._shut: dict[str, Callable[[], None]] = {}  # what closes each open listener for clients
        self._log = structlog.get_logger()
        self._sent_away = 0  # clients that were told of another broker

    @property
    def info(self) -> BrokerInfo:
        """The broker as the others know it, for looking."""
        return self._own

    @property
    def member(self) -> Participant:
        """The broker's part in the network, for looking."""
        return self._member

    @property
    def backs(self) -> tuple[str, ...]:
        """The brokers of its cluster whose backup it is, for looking."""
        return self._member.picture.backs_locally

    async def open(self) -> None:
        """Read what has to be known before anything else."""
        await self.parts.open()
        self.parts.channels.backend.count(False)  # until a leader does

    def _ports(self, security: LinkSecurity, results: ResultFiles | None) -> Ports:
        settings = self._host.settings
        return Ports(
            own=self._own,
            incarnation=token_hex(6),
            settings=settings,
            guard=Guard(settings),
            policy=policy_of(settings.replication),
            budget=Budget(bounds_of(settings.budgets)),
            others=tuple(each.id for each in settings.brokers),
            asks=bool(
                settings.access.users or settings.tls.client_ca or settings.access.registration != "off"
            ),
            borrowed=bool(self._spare),
            security=security,
            results=results,
            member=self._member,
            post=self._driver.post,
            refuge=self._refuge,
            destinations=self._destinations,
            redirects=self._redirects,
        )

    def _redirects(self, isolation: Isolation) -> Redirects:
        return Redirects(self._own, self._driver.post, self._destinations, isolation.found_at)

    def _named(self, info: BrokerInfo) -> BrokerInfo:
        """This process as others know it: under its own name, or that of the broker whose place it has."""
        place = self._place
        if place is None:
            return msgspec.structs.replace(info, role=self._role)
        # Its certificate stays its own: peers learn from the coordinator's log which broker has the name.
        return msgspec.structs.replace(
            info,
            id=place.id,
            cluster=place.cluster,
            role=place.role,
            tier=place.tier,
            certified=info.id,
            lent_by=info.cluster,
        )

    def _readdressed(self, info: BrokerInfo) -> None:
        named = self._named(info)
        self._driver.post(Readdressed(info=named, cause=f"{self._own.id}:address"))
        self.parts.exchange.requests.arriving.moved(named)

    async def _open_doors(self, listening: Sockets) -> None:
        """Let peers and clients in by these sockets, and no longer by earlier ones of the same names."""
        if LINK_LISTENER in listening:
            self.parts.link_listener.open(listening[LINK_LISTENER])
        web = framed(self.parts.listener)
        for name, tls, wrap in (
            ("port", False, None),
            ("tls_port", True, None),
            ("ws_port", False, web),
            ("wss_port", True, web),
        ):
            if name in listening:
                shut_before = self._shut.get(name)
                self._shut[name] = await self.parts.listener.open(listening[name], tls=tls, wrap=wrap)
                if shut_before is not None:
                    shut_before()

    async def _attend(self, listening: Sockets) -> None:
        """Let clients in; then say how it goes, for ever. Subscribers may have to wait for retained messages."""
        await self._open_doors(listening)
        forgotten = False
        while True:
            self._weigh()
            self._report()
            if not forgotten and self._member.state is not ParticipantState.JOINING:
                forgotten = await forget_link_secret(self._table)
            await asyncio.sleep(REPORT_S)

    async def run(self) -> Change | None:
        """Until the process is asked to stop (None), or is to take another's place or role, or its own again."""
        settings = self._host.settings
        scoring = settings.scoring
        weighing = Weighing(
            settings.recovery.capacity,
            scoring.standby_weights(),
            scoring.bandwidth_need,
            scoring.configuration,
            scoring.changed(standby=True),
            settings.recovery.capacity_bytes_per_s,
        )
        delays = self.parts.exchange.peers.delays.all
        summaries = Summaries(
            self.parts.held,
            weighing,
            self._fitness,
            self.parts.probes,
            delays,
            drains=lambda: self.parts.removal.drains,
            rates=self.parts.rates.look,
        )
        serving = self._store.bus.serve(subject(settings.network, self._own.id), summaries.answer)
        async with serving:
            await self._run(self._site.begin())
        return self._change.result() if self._change.done() else None

    async def _run(self, listening: Sockets) -> None:
        parts = self.parts
        tasks = (
            asyncio.create_task(self._attend(listening)),
            asyncio.create_task(self._mover.run()),
            asyncio.create_task(self._driver.run()),
            asyncio.create_task(parts.run()),
            asyncio.create_task(self.sys_topics.run()),
            asyncio.create_task(self._fitness.run()),
            *([asyncio.create_task(self._measure())] if self._own.role is Role.ROUTING else ()),
            asyncio.create_task(parts.isolation.run(self._table)),
            asyncio.create_task(parts.listener.ending.wait()),
            asyncio.create_task(parts.link_listener.ending.wait()),
            asyncio.create_task(self._host.stopped()),
        )
        try:
            await asyncio.wait((*tasks, self._change), return_when=asyncio.FIRST_COMPLETED)
            for task in tasks[:-1]:
                if task.done():
                    task.result()  # a bug of ours: let it be seen
            for task in tasks[:2]:
                task.cancel()  # they may be about to open a listener
            await self._stop()
            for each in listening.values():
                each.close()  # no more than those that were never opened
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            parts.close()

    async def _stop(self) -> None:
        self._host.report("stopping")
        clients = self.parts.listener.clients
        await self.parts.listener.close()
        await self.parts.link_listener.close()
        self.parts.registry.release()
        self._driver.post(Leaving(cause=f"{self._own.id}:stop"))
        await self._driver.flush()
        await self.parts.isolation.leave(self._table, GRACE_S)
        await self.parts.drain(DRAIN_S)
        self.parts.exchange.peers.close()
        self.parts.probes.close()
        await asyncio.sleep(GRACE_S if clients else 0)

    async def _measure(self) -> None:
        """Tell the coordinator what this broker carries, if it is in a tier, for ever."""
        carrying = self.parts.exchange.carrying
        while True:
            measured = await carrying.measured()
            busy = self._fitness.busy(measured.messages_s) if measured is not None else 0.0
            self._driver.post(LoadMeasured(measured=measured, busy=busy, cause=f"{self._own.id}:carried"))
            await asyncio.sleep(REPORT_S)

    def _weigh(self) -> None:
        most, clients = self._host.settings.limits.connections_max, self.parts.listener.clients
        refuses, cause = self.parts.removal.drains, f"{self._own.id}:load"
        self._driver.post(Loaded(load=clients * 1_000 // most, clients=clients, refuses=refuses, cause=cause))
        self._look_at_links()

    def _look_at_links(self, *, asked: bool = False) -> None:
        self._driver.post(self.parts.exchange.peers.seen(f"{self._own.id}:links", asked=asked))

    def _report(self) -> None:
        if self._member.state is ParticipantState.JOINING:
            self._host.report("starting", problem="waiting for the coordinator's routes")
            return
        facts = self._facts() if self._host.is_heard else {}
        away = [
            f"{link.info.id} ({link.problem}{f'; by way of {link.detour[0]}' if link.detour else ''})"
            for link in self.parts.exchange.peers.failing()
        ]
        lacking = self.parts.replication.problem()
        problems = [f"no link to {', '.join(away)}"] if away else []
        late = self.parts.retained.problem()
        doors = (self.parts.listener.guard.problem(), self.parts.link_listener.problem)
        others = (lacking, self.parts.isolation.problem(), late, self._mover.problem, *doors)
        problems += [each for each in others if each is not None]
        if problems:
            self._host.report("degraded", problem="; ".join(problems), **facts)
        else:
            self._host.report("ready", **facts)

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"clients": self.parts.listener.clients, **self.parts.statistics()}
        if self._spare:
            facts["stands_for"] = self._own.id
        if self.parts.removal.drains:
            facts["drains"] = True
        return facts

    # ── what the parts ask of each other ────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case RoutesChanged(added=added, removed=removed, peers=peers, quiet=quiet, tiers=tiers):
                self.parts.exchange.change_routes(added, removed, peers, quiet, tiers)
                self._report()
            case AwaitDispatch(position=position, cause=cause):
                dispatched = Dispatched(position=position, cause=cause)
                message_log = self.parts.message_log
                message_log.when_dispatched(position, lambda: self._driver.post(dispatched))
            case AwaitAll(number=number, cause=cause):
                all_dispatched = AllDispatched(number=number, cause=cause)
                self.parts.message_log.when_all_dispatched(lambda: self._driver.post(all_dispatched))
            case Promoted(place=place) if self._own.role == Role.STANDBY and not self._change.done():
                self._log.warning("a standby takes the place of a broker that is gone", broker=place.id)
                self._change.set_result(Change(self._role, place))
            case Deposed() if not self._change.done():
                self._log.warning("the original broker is back; standing down", broker=self._own.id)
                self._change.set_result(Change(self._role))
            case RoleChanged(role=Role.STANDBY) if self.parts.listener.clients:
                self._weigh()  # one has come since it was counted
            case RoleChanged(role=role) if not self._change.done():
                self._log.warning(STANDS_BY if role == Role.STANDBY else SERVES_AGAIN, broker=self._own.id)
                self._change.set_result(Change(role))
            case Promoted() | Deposed() | RoleChanged():
                pass  # it is under way already
            case BackupsKnown(local=local, remote=remote, locally=locally, remotely=remotely):
                self.parts.replication.set_backups(local, remote)
                self.parts.replication.set_primaries((*locally, *remotely))
                self.parts.gossip.backs(locally)
            case StandInsChanged(lost=lost):
                self.parts.losses.told(lost)
            case StandIn(broker=broker, epoch=epoch):
                self.parts.takeovers.stand_in(broker, epoch)
            case StandDown(broker=broker):
                self.parts.takeovers.stand_down(broker)
            case Orphaned(told=told):
                self.parts.channels.backend.count(False)
                self.parts.orphans.count(False)
                self.parts.isolation.orphaned(told)
            case Adopted():
                self.parts.channels.backend.count(True)
                self.parts.orphans.count(True)
                self.parts.isolation.adopted()
            case MeasureLinks():
                self.parts.exchange.peers.measure(lambda: self._look_at_links(asked=True))
            case DestinationsChanged():
                self.parts.listener.tell_visitors()
            case ClientsToMove(moves=moves):
                if self.parts.removal.told(moves):
                    self._weigh()  # who is here now, and that nobody is let in
            case SendHome(client=client, server_reference=reference):
                self.parts.clients.send_home(client, reference)
            case _:
                self.parts.exchange.apply_coordination(effect)

    def _refuge(self, scheme: Scheme) -> str | None:
        self._sent_away += 1
        return self._member.refuge(scheme, self._sent_away, now_us())

    def _destinations(self, scheme: Scheme) -> list[str]:
        """Where clients of this broker can go: backups, refuges, and last the coordinators' doors."""
        found = self._member.destinations(scheme, self.parts.listener.clients, now_us())
        return list(dict.fromkeys((*found, *self._host.settings.door.addresses(scheme))))
