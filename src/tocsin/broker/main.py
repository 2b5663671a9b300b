"""A broker process: the substrate, membership, the exchange and the listener, put together."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from tocsin.broker.apart import Apart
from tocsin.broker.durability import Durability
from tocsin.broker.exchange import Exchange
from tocsin.broker.fanout import Outbox
from tocsin.broker.figures import Figures
from tocsin.broker.identity import forget_link_secret, info_of, link_security, results_directory
from tocsin.broker.link_door import LinkDoor
from tocsin.broker.links import Link, LinkSecurity
from tocsin.broker.listener import Listener, listening_socket
from tocsin.broker.replicating import policy_of
from tocsin.broker.sources import Sources
from tocsin.broker.summary import Summaries
from tocsin.broker.visitors import Visitors
from tocsin.broker.websocket import framed
from tocsin.core.admission import Admission
from tocsin.core.budget import Budget, bounds_of
from tocsin.core.coordination.participant import Participant
from tocsin.core.coordination.places import Places
from tocsin.core.coordination.signals import (
    Adopted,
    AwaitDispatch,
    BackupsKnown,
    BecomePlace,
    Deposed,
    Dispatched,
    InterestsChanged,
    Leaving,
    Loaded,
    MeasureLinks,
    Orphaned,
    QueriesChanged,
    RefugesChanged,
    RoutesChanged,
    SendHome,
    StandDown,
    StandIn,
)
from tocsin.core.machine import Effect
from tocsin.core.session_quota import SessionQuota
from tocsin.errors import SettingError
from tocsin.model.message import broker_address
from tocsin.model.network import BrokerInfo, Role, Scheme
from tocsin.ports import Log, Store, Table, TableSpec
from tocsin.runtime.driver import Driver
from tocsin.runtime.guard import Guard
from tocsin.runtime.process import Process
from tocsin.runtime.pump import now_us
from tocsin.runtime.resources import Resources
from tocsin.store.jetstream import JetStreamStore
from tocsin.store.results import ResultsReader
from tocsin.wire.summaries import subject

REPORT_S: Final = 1.0
GRACE_S: Final = 0.5  # for clients to be told, and the coordinator, before the process ends
DRAIN_S: Final = 5.0  # for the sessions of those clients to be stored


async def serve(process: Process, broker_id: str) -> None:
    """Run one broker until the process is asked to stop."""
    settings = process.settings
    configured = settings.broker(broker_id)
    if configured is None:
        known = ", ".join(broker.id for broker in settings.brokers)
        raise SettingError(
            "brokers", broker_id, "command line", "there is no such broker", f"Name one of {known}"
        )
    process.report("starting")
    security = link_security(settings, broker_id)
    listening = {
        name: listening_socket(configured.host_of(name), port, broker_id)
        for name, port in configured.ports().items()
    }
    store = await JetStreamStore.open(settings.nats, "broker", name=f"broker {broker_id}")
    store.shares = settings.shares.by_name(settings.network)
    try:
        table = await store.table(TableSpec(name=f"{settings.network}-network"))
        chosen = {name: each.getsockname()[1] for name, each in listening.items()}
        own = info_of(msgspec.structs.replace(configured, **chosen))
        commands = await store.log(Places(settings.network).commands)
        place: BrokerInfo | None = None
        while True:
            broker = _Broker(process, own, store, commands, table, security, place)
            await broker.open()
            change = await broker.run(listening)
            if change is None:
                return
            (place,) = change
            listening = {
                name: listening_socket(configured.host_of(name), port, broker_id)
                for name, port in chosen.items()
            }
    finally:
        await store.close()


class _Broker:
    """The parts of one broker, wired together."""

    def __init__(
        self,
        process: Process,
        own: BrokerInfo,
        store: Store,
        commands: Log,
        table: Table,
        security: LinkSecurity,
        place: BrokerInfo | None = None,
    ) -> None:
        """``place``: the broker that is gone and whose place this one, a standby, takes under that one's name."""
        settings = process.settings
        self._process = process
        self._spare = own.id if place is not None else ""
        if place is not None:
            # Its certificate stays its own: peers learn from the coordinator's log who holds the place.
            own = msgspec.structs.replace(
                own, id=place.id, cluster=place.cluster, role=place.role, certified=own.id
            )
        self._own = own
        self._change: asyncio.Future[tuple[BrokerInfo | None]] = asyncio.get_running_loop().create_future()
        self._store = store
        self._table = table
        places = Places(settings.network)
        self._member = Participant(
            own,
            places,
            settings.membership.beat_ms * 1_000,
            settings.membership.suspect_after_ms * 1_000,
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
        self._exchange = Exchange(
            Outbox(asyncio.get_running_loop().call_soon),
            self._make_link,
            self._interests_changed,
            cluster=own.cluster,
            queries_changed=self._queries_changed,
            filters_max=settings.limits.filters_max,
            budget=Budget(bounds_of(settings.budgets)),
        )
        self._exchange.sources = Sources(
            lambda event: self._exchange.peers.when_settled(partial(self._driver.post, event)),
            lambda: self._exchange.durability.journal.newest,
            broker=own.id,
            cluster=own.cluster,
            streams_max=settings.limits.streams_per_client,
            metadata_max_bytes=settings.limits.metadata_max_bytes,
        )
        self._apart = Apart(own, self._exchange, self._member)
        self._security = security
        self._link_door = LinkDoor(security, settings.limits, self._exchange)
        guard = Guard(settings)
        admission = Admission(settings.limits.connections_max, guard.policy)
        self._listener = Listener(
            own,
            settings.limits,
            self._exchange,
            admission,
            guard,
            access_changed=self._exchange.access_changed,
            elsewhere=self._elsewhere,
            visitors=Visitors(own, self._driver.post, self._all_elsewhere, self._apart.stands_in_for),
        )
        self._resources = Resources(settings, self._spare or own.id, own.cluster)
        self._log = structlog.get_logger()
        self._sent_away = 0  # clients that were told of another broker

    async def open(self) -> None:
        """Open what the store has of the network."""
        settings = self._process.settings
        self._exchange.durability = await Durability.open(
            self._store,
            network=settings.network,
            broker=self._own.id,
            life=secrets.token_hex(6),
            keep_s=settings.messages.keep_s,
            keep_bytes=settings.messages.keep_bytes,
            commits_max=settings.limits.inflight_commits_max,
            retained_max=settings.limits.retained_max,
            retained_bytes=settings.budgets.retained_bytes,
            retained_user_bytes=settings.budgets.retained_bytes * settings.budgets.user_percent // 100,
            groups_max=settings.limits.groups_max,
            members_max=settings.limits.group_members_max,
            budget=self._exchange.budget,
            results=ResultsReader(results_directory(settings)),
            replication=policy_of(settings.replication),
            quota=SessionQuota(
                settings.limits.sessions_max,
                settings.shares.sessions_bytes,
                settings.limits.sessions_user_percent,
            ),
            will_grace_s=settings.recovery.will_grace_s,
            others=[each.id for each in settings.brokers],
            has_users=bool(settings.access.users or settings.tls.client_ca),
            session_over=self._exchange.sources.session_over,
            dispatch=self._exchange.take,
            judging=self._exchange.queries.is_judging,
            announce=self._exchange.announce,
            pressure=self._listener.hold_back,
            unwanted=self._exchange.lose,
        )
        holding = self._exchange.durability.channels.holding
        holding.count(False)  # until a leader does
        durability, orphans = self._exchange.durability, self._exchange.durability.orphans
        orphans.here = lambda client: self._listener.has(client) or durability.ending(client)
        if self._spare:
            holding.borrow()
            orphans.borrowed = True
        self._exchange.durability.replicating.attend(self._listener)
        self._apart.open(self._listener)

    async def _attend(self, listening: Mapping[str, socket.socket]) -> None:
        """Let clients in; then say how it goes, for ever. Who asks for retained messages may have to wait for them."""
        self._link_door.open(listening["link_port"])
        web = framed(self._listener)
        for name, tls, wrap in (
            ("port", False, None),
            ("tls_port", True, None),
            ("ws_port", False, web),
            ("wss_port", True, web),
        ):
            if name in listening:
                await self._listener.open(listening[name], tls=tls, wrap=wrap)
        forgotten = False
        while True:
            self._weigh()
            self._report()
            if not forgotten and self._member.state != "joining":
                forgotten = await forget_link_secret(self._table)
            await asyncio.sleep(REPORT_S)

    async def run(self, listening: Mapping[str, socket.socket]) -> tuple[BrokerInfo | None] | None:
        """Until the process is asked to stop (None), or is to take another's place, or its own again."""
        summaries = Summaries(
            self._held,
            self._process.settings.recovery.capacity,
            self._resources.score,
            self._resources.terms,
            self._exchange.peers.delays.all,
        )
        serving = self._store.bus.serve(
            subject(self._process.settings.network, self._own.id), summaries.answer
        )
        async with serving:
            await self._run(listening)
        return self._change.result() if self._change.done() else None

    def _held(self) -> Iterator[tuple[str, int]]:
        """What clients here are subscribed to, and how many."""
        yield from self._exchange.held()
        yield from self._exchange.durability.channels.held()

    async def _run(self, listening: Mapping[str, socket.socket]) -> None:
        tasks = (
            asyncio.create_task(self._attend(listening)),
            asyncio.create_task(self._driver.run()),
            asyncio.create_task(
                self._exchange.durability.run(self._listener.let_go, self._store, self._listener.expel)
            ),
            asyncio.create_task(Figures(self._exchange, self._listener).run()),
            asyncio.create_task(self._resources.run()),
            asyncio.create_task(self._apart.run(self._table)),
            asyncio.create_task(self._process.stopped()),
        )
        try:
            await asyncio.wait((*tasks, self._change), return_when=asyncio.FIRST_COMPLETED)
            for task in tasks[:-1]:
                if task.done():
                    task.result()  # a bug of ours: let it be seen
            tasks[0].cancel()  # it may not have opened the door yet
            await self._stop()
            for each in listening.values():
                each.close()  # no more than those that were never opened
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stop(self) -> None:
        self._process.report("stopping")
        clients = self._listener.clients
        await self._listener.close()
        await self._link_door.close()
        self._exchange.sources.release()
        self._driver.post(Leaving(cause=f"{self._own.id}:stop"))
        await self._driver.flush()
        await self._apart.leave(self._table, GRACE_S)
        await self._exchange.durability.drain(DRAIN_S)
        self._exchange.peers.close()
        await asyncio.sleep(GRACE_S if clients else 0)

    def _weigh(self) -> None:
        most = self._process.settings.limits.connections_max
        self._driver.post(Loaded(load=self._listener.clients * 1_000 // most, cause=f"{self._own.id}:load"))
        self._look_at_links()

    def _look_at_links(self, *, asked: bool = False) -> None:
        self._driver.post(self._exchange.peers.seen(f"{self._own.id}:links", asked=asked))

    def _report(self) -> None:
        if self._member.state == "joining":
            self._process.report("starting", problem="waiting for the coordinator's routes")
            return
        facts: dict[str, Any] = {"clients": self._listener.clients, **self._exchange.statistics()}
        if self._spare:
            facts["stands_for"] = self._own.id
        away = [
            f"{link.info.id} ({link.problem}{f'; by way of {link.detour[0]}' if link.detour else ''})"
            for link in self._exchange.peers.failing()
        ]
        lacking = self._exchange.durability.replicating.problem()
        problems = [f"no link to {', '.join(away)}"] if away else []
        late = self._exchange.durability.retained.problem()
        others = (lacking, self._apart.problem(), late, self._listener.guard.problem())
        problems += [each for each in others if each is not None]
        if problems:
            self._process.report("degraded", problem="; ".join(problems), **facts)
        else:
            self._process.report("ready", **facts)

    # ── what the parts ask of each other ────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case RoutesChanged(added=added, removed=removed, peers=peers):
                self._exchange.change_routes(added, removed, peers)
                self._report()
            case AwaitDispatch(position=position, cause=cause):
                dispatched = Dispatched(position=position, cause=cause)
                journal = self._exchange.durability.journal
                journal.when_dispatched(position, lambda: self._driver.post(dispatched))
            case BecomePlace(place=place) if self._own.role == Role.STANDBY and not self._change.done():
                self._log.warning("a standby takes the place of a broker that is gone", broker=place.id)
                self._change.set_result((place,))
            case Deposed() if not self._change.done():
                self._log.warning("the broker is back in whose place this one was", broker=self._own.id)
                self._change.set_result((None,))
            case BecomePlace() | Deposed():
                pass  # it is under way already
            case BackupsKnown(local=local, remote=remote, locally=locally, remotely=remotely):
                self._exchange.durability.replicating.set_backups(local, remote)
                self._exchange.durability.replicating.set_primaries((*locally, *remotely))
                self._apart.backs(locally)
            case StandIn(broker=broker, epoch=epoch):
                self._exchange.durability.standing_in.stand_in(broker, epoch)
            case StandDown(broker=broker):
                self._exchange.durability.standing_in.stand_down(broker)
            case Orphaned(told=told):
                self._exchange.durability.channels.holding.count(False)
                self._apart.orphaned(told)
            case Adopted():
                self._exchange.durability.channels.holding.count(True)
                self._apart.adopted()
            case MeasureLinks():
                self._exchange.peers.measure(lambda: self._look_at_links(asked=True))
            case RefugesChanged():
                self._listener.tell_visitors()
            case SendHome(client=client, server_reference=reference):
                self._listener.send_home(client, reference)
            case _:
                self._exchange.heed(effect)

    def _elsewhere(self, scheme: Scheme) -> str | None:
        self._sent_away += 1
        return self._member.elsewhere(scheme, self._sent_away, now_us())

    def _all_elsewhere(self, scheme: Scheme) -> list[str]:
        return self._member.all_elsewhere(scheme, self._listener.clients, now_us())

    def _interests_changed(self, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        cause = f"{self._own.id}:interest {(added or removed)[0]}"
        self._driver.post(InterestsChanged(added=added, removed=removed, cause=cause))
        self._apart.wants(added, removed)

    def _queries_changed(
        self, added: tuple[tuple[str, str], ...], removed: tuple[str, ...], user: str
    ) -> None:
        cause = f"{self._own.id}:query {added[0][0] if added else removed[0]}"
        self._driver.post(QueriesChanged(added=added, removed=removed, user=user, cause=cause))

    def _make_link(self, peer: BrokerInfo) -> Link:
        return Link(
            self._own,
            peer,
            self._security,
            outbound_max_bytes=self._process.settings.limits.outbound_max_bytes,
            dropped=self._count_dropped,
        )

    def _count_dropped(self, messages: int) -> None:
        self._exchange.counts.dropped += messages
