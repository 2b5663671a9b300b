"""The parts of one broker, wired together over a store, links and a participant.

Each part is given what it needs when it is made, and none is changed afterwards to know another. So they are made in
the order of their knowledge:

    who is in (``entrance.clients``), counts, budget
      → the log, retained messages, channels, groups           what the store has
      → replication, sessions, provisional service             what outlives a connection
      → the exchange, wills, takeovers, gossip                 what goes on without one
      → the way in and out, the doors                          connections

Where two parts have something to say to each other, the one that is made first is given a method of ``Parts``, which
passes it on (``_came_back`` …), or the other one's method as an argument of what it runs (``MessageLog.follow``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from tocsin.broker.channels.backend_subscriptions import BackendSubscriptions
from tocsin.broker.channels.channels import Channels
from tocsin.broker.channels.pulls import Pulls
from tocsin.broker.channels.result_reader import ResultFiles, ResultSource
from tocsin.broker.channels.results import Results
from tocsin.broker.channels.standby_cells import StandbyCellWriter
from tocsin.broker.client import Client
from tocsin.broker.delivery.announcements import Arrivals
from tocsin.broker.delivery.durable import Durable
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.delivery.session_census import SessionCensus
from tocsin.broker.delivery.session_lifecycle import (
    Deliveries,
    Departures,
    Endings,
    RecordPrefixes,
    SessionEntry,
)
from tocsin.broker.delivery.session_store import Sessions
from tocsin.broker.delivery.wills import WillInquiries, WillPublisher, Wills
from tocsin.broker.entrance.clients import Clients
from tocsin.broker.entrance.listener import Listener
from tocsin.broker.entrance.ownership import Ownership
from tocsin.broker.entrance.passed_on import PassedOnClient
from tocsin.broker.entrance.redirects import Redirects
from tocsin.broker.entrance.registrar import Registrar
from tocsin.broker.forwarding.exchange import Counts, Exchange
from tocsin.broker.forwarding.fanout import Outbox
from tocsin.broker.links.link import Link, LinkSecurity, LinkWatcher
from tocsin.broker.links.listener import IncomingConnection, LinkListener
from tocsin.broker.links.pool import LinkPool
from tocsin.broker.links.probes import Probes
from tocsin.broker.links.turned import OutwardCall, TurnedConnections
from tocsin.broker.retained.table import Retained, retained_table
from tocsin.broker.retained.writer import RetainedWriter
from tocsin.broker.shared.groups import Groups
from tocsin.broker.streams.registry import WILL, StreamRegistry
from tocsin.broker.survival.covering import Covers
from tocsin.broker.survival.isolation import ClusterGossip, Isolation
from tocsin.broker.survival.losses import Losses
from tocsin.broker.survival.moving_out import Removal
from tocsin.broker.survival.orphans import Orphans
from tocsin.broker.survival.provisional import Provisional
from tocsin.broker.survival.rates import RateMeter
from tocsin.broker.survival.replication import Replicating
from tocsin.broker.survival.takeover import Takeovers
from tocsin.broker.survival.witnesses import Witnesses
from tocsin.config import Settings
from tocsin.core.access.accounts import accounts_table
from tocsin.core.access.registration import Registration, terms_of
from tocsin.core.budgets.budget import Budget
from tocsin.core.budgets.session_quota import SessionQuota
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.participant.signals import (
    InterestsChanged,
    LinksEnded,
    MessageRead,
    QueriesChanged,
)
from tocsin.core.delivery.stored_session import StoredSession, kept_s
from tocsin.core.filters import interest_of
from tocsin.core.links.incoming import PROPERTY_EXTRA
from tocsin.core.links.signals import Ending as LinkEnding
from tocsin.core.machine import Event
from tocsin.core.quality.judging import offer_in
from tocsin.core.replication.gamma import Left
from tocsin.core.replication.signals import Policy
from tocsin.core.streams.query_topics import filters_of
from tocsin.core.survival.announcements import ArrivalClock
from tocsin.core.survival.takeover import TakeoverMachine
from tocsin.model.channel_names import ChannelNames
from tocsin.model.network import BrokerInfo, Scheme
from tocsin.model.publication import Publication
from tocsin.model.results import Notice
from tocsin.model.stream import DEMAND, Metadata
from tocsin.model.subjects import messages_log
from tocsin.ports import Bus, Cell, Entry, Log, Store, Table, TableSpec
from tocsin.query import parse
from tocsin.results.reader import Result
from tocsin.runtime.machines.clock import now_us, wall_us
from tocsin.runtime.machines.tasks import Ending, Tasks
from tocsin.runtime.network.streams import open_within
from tocsin.runtime.security.audit import Audit
from tocsin.runtime.security.files import Changed, Guard
from tocsin.wire.internal.quality import UNMATCHED, WORD


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The logs and tables of a network, as a broker has opened them."""

    bus: Bus
    network: Table
    messages: Log
    notices: Log
    retained: Table
    sessions: Table
    groups: Table
    catalogue: Table
    subscriptions: Table
    accounts: Table | None = None  # None: nobody registers

    @classmethod
    async def open(cls, store: Store, settings: Settings) -> Stored:
        network, channels = settings.network, ChannelNames(settings.network)
        keep_s, keep_bytes = settings.messages.keep_s, settings.messages.keep_bytes
        return cls(
            bus=store.bus,
            network=await store.table(TableSpec(name=f"{network}-network")),
            messages=await open_within(store, messages_log(network, keep_s, keep_bytes)),
            retained=await store.table(retained_table(network)),
            sessions=await store.table(TableSpec(name=f"{network}-sessions")),
            groups=await store.table(TableSpec(name=f"{network}-groups")),
            catalogue=await store.table(channels.catalogue),
            subscriptions=await store.table(channels.subscriptions),
            notices=await store.log(channels.notices),
            accounts=await store.table(accounts_table(network))
            if settings.access.registration != "off"
            else None,
        )


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The inputs from which a broker is made."""

    own: BrokerInfo
    incarnation: str  # differs at every start of the broker
    settings: Settings
    guard: Guard  # users, rules, certificates
    policy: Policy  # of replication
    budget: Budget  # of bytes that clients make the broker hold
    others: tuple[str, ...]  # the names that other brokers may have
    asks: bool  # clients can prove who they are, so that other brokers are asked whose a client id is
    borrowed: bool  # the process has another broker's name
    security: LinkSecurity
    results: ResultFiles | None  # None: the pipeline is asked for results
    member: Participant
    post: Callable[[Event], None]  # hands an event to the participant
    refuge: Callable[[Scheme], str | None]  # the server for a client of some scheme that there is no room for
    destinations: Callable[[Scheme], list[str]]  # the servers for clients of a broker that is lost or stops
    redirects: Callable[[Isolation], Redirects | None]


class Parts:
    """The parts of one broker."""

    def __init__(self, ports: Ports, stored: Stored) -> None:
        self._ports = ports
        self._stored = stored
        self._network, self._broker = ports.settings.network, ports.own.id
        self.clients = Clients(ports.own, ports.guard)
        self.counts = Counts()
        self._ending = Ending()
        self.tasks = Tasks("the broker", self._ending.fail)  # finished before the broker ends
        self.prefixes = RecordPrefixes(self._broker, ports.incarnation)
        self.endings = Endings()
        self._clock = ArrivalClock()
        self._make_what_is_stored()
        self._make_channels()
        self._make_groups()
        self._make_sessions()
        self._make_exchange()
        self._make_survival()
        self._make_doors()

    async def open(self) -> None:
        """Read what has to be known before anything else."""
        await self.message_log.open()
        await self.groups.open()
        await self.channels.backend.open()
        await self.channels.results.open()

    # ── making ──────────────────────────────────────────────────────────────────────────────────────────────

    def _make_what_is_stored(self) -> None:
        stored, settings = self._stored, self._ports.settings
        limits, bytes_max = settings.limits, settings.budgets.retained_bytes
        self.message_log = MessageLog(
            stored.messages,
            self._network,
            records_max=limits.inflight_commits_max,
            pressure=self.clients.hold_back,
            keep_s=settings.messages.keep_s,
            keep_bytes=settings.messages.keep_bytes,
            mode=settings.messages.read,
            will_noted=self._will_noted,
        )
        self._asked: dict[str, tuple[str, ...]] = {}  # query that is asked here → for what the log is read
        user_max = bytes_max * settings.budgets.user_percent // 100
        self.retained = Retained(
            stored.retained,
            limits.retained_max,
            bytes_max,
            user_max,
            held_max=settings.budgets.retained_held_bytes,
            spawn=self.tasks.spawn,
        )
        self.retained_writer = RetainedWriter(self.retained, self.message_log, self.tasks.spawn)

    def _make_channels(self) -> None:
        stored, names = self._stored, ChannelNames(self._network)
        self.orphans = Orphans(
            stored.sessions, self._broker, here=self._is_served, borrowed=self._ports.borrowed
        )
        backend = BackendSubscriptions(
            stored.catalogue,
            stored.subscriptions,
            stored.sessions,
            stored.groups,
            stored.bus,
            network=self._network,
            broker=self._broker,
            saw=self._saw,
            altered=self._channel_altered,
            borrowed=self._ports.borrowed,
        )
        source = ResultSource(self._ports.results, stored.bus, names.service("results"))
        results = Results(
            stored.notices,
            names.notices_subject,
            source,
            self._broker,
            unseen=self._unseen,
        )
        self.channels = Channels(backend, results, self._network)
        self._standing_by = StandbyCellWriter(backend, warm=source.warm)

    def _make_groups(self) -> None:
        ports, limits = self._ports, self._ports.settings.limits
        self.groups = Groups(
            self._stored.groups,
            self.message_log,
            self.channels,
            incarnation=f"{self._broker}.{ports.incarnation}",
            groups_max=limits.groups_max,
            members_max=limits.group_members_max,
            unwanted=self.counts.drop,
            budget=ports.budget,
        )

    def _make_sessions(self) -> None:
        ports, stored, bus = self._ports, self._stored, self._stored.bus
        settings, limits = ports.settings, ports.settings.limits
        self.replication = Replicating(
            bus,
            self.clients,
            self._standing_by,
            network=self._network,
            broker=self._broker,
            wills_left=self._came_back,
            queries_prepared=self._queries_prepared,
            policy=ports.policy,
            others=ports.others,
        )
        self.quota = SessionQuota(
            limits.sessions_max, settings.shares.sessions_bytes, limits.sessions_user_percent
        )
        self.sessions = Sessions(
            stored.sessions,
            bus,
            network=self._network,
            broker=self._broker,
            over=self._session_over,
            lost=lambda broker: broker in self._ports.member.picture.vacancies,
            backend=self.channels.backend,
            quota=self.quota,
        )
        self.provisional = Provisional(
            stored.sessions,
            self.clients,
            self.message_log,
            broker=self._broker,
            known=self.replication.known,
            ended=self.endings.ended,
            failed=self._ending.fail,
        )
        self.arrivals = Arrivals(
            bus,
            self.sessions,
            network=self._network,
            broker=self._broker,
            clock=self._clock,
            clients=self.clients,
            ended=self.endings.all_ended,
            spawn=self.tasks.spawn,
            failed=self._ending.fail,
        )
        self.ownership = Ownership(
            bus,
            network=self._network,
            broker=self._broker,
            others=ports.others,
            asks=ports.asks,
            holder=self.arrivals.holder,
            expel=self.clients.expel,
            isolated=self.provisional,
            stored=self.sessions.owner_of,
        )

    def _make_exchange(self) -> None:
        ports, limits = self._ports, self._ports.settings.limits
        self.turned = TurnedConnections()
        peers = LinkPool(
            self._make_link, self._tell_of_ended_links, self._link_known, make_call=self._make_call
        )
        self.turned.came = peers.hurry
        self.registry = StreamRegistry(
            partial(peers.when_settled, ports.post),
            self.message_log,
            broker=self._broker,
            cluster=ports.own.cluster,
            clock=self._clock,
            streams_max=limits.streams_per_client,
            metadata_max_bytes=limits.metadata_max_bytes,
            learned=self._stream_described,
        )
        self.exchange = Exchange(
            Outbox(asyncio.get_running_loop().call_soon),
            peers,
            self.counts,
            ports.budget,
            self.groups,
            self.retained,
            self.channels,
            self.registry,
            self._stored.bus,
            network=self._network,
            own=ports.own,
            gone=lambda: ports.member.picture.vacancies.keys(),
            interests_changed=self._interests_changed,
            queries_changed=self._queries_changed,
            filters_max=limits.filters_max,
            held_max_bytes=limits.outbound_max_bytes,
            failed=self._ending.fail,
            counts_ends=ports.settings.routing.balance in ("delay", "connections"),
            deadline=ports.settings.deadline,
            make_extra=self._make_extra,
        )
        self.rates = RateMeter(self.exchange.tallies, self.groups.counts, self.channels.counts)

    def _make_survival(self) -> None:
        ports, stored, member = self._ports, self._stored, self._ports.member
        backup = self.replication.backup
        self.witnesses = Witnesses(
            stored.bus,
            backup.sees_to,
            network=self._network,
            broker=self._broker,
            others=ports.others,
            spawn=self.tasks.spawn,
        )
        self.will_publisher = WillPublisher(
            self.message_log,
            self.retained_writer,
            self.replication.client_state,
            announce=self.exchange.announce,
            void=backup.note_void,
            prefix=self.prefixes.next,
        )
        self.will_inquiries = WillInquiries(stored.sessions, self.message_log, self.witnesses, self.tasks)
        takeover = TakeoverMachine(self.replication, ports.settings.recovery.will_grace_s)
        self.wills = Wills(
            self.will_publisher.publish,
            failed=self._ending.fail,
            aloud=self.will_publisher.say_aloud,
            alive=takeover.is_alive,
            inquire=self.will_inquiries.ask,
            settled=self.replication.will_settled,
            budget=ports.budget,
        )
        self.takeovers = Takeovers(takeover, self.replication, self.wills, failed=self._ending.fail)
        self.losses = Losses(self.exchange.publish_own)
        routes = self.exchange.routes
        self.gossip = ClusterGossip(
            ports.own,
            routes,
            self.takeovers,
            self.replication,
            lambda: member.interests,
            lambda: member.picture.vacancies.keys(),
            lambda broker, lost: self.losses.meanwhile(broker, lost=lost),
        )
        self.covers = Covers(
            ports.own,
            stored.bus,
            backup,
            routes,
            network=self._network,
            wants=self.exchange.interests.has,
            told=lambda: member.told,
            gone=lambda: member.picture.vacancies.keys(),
            spawn=self.tasks.spawn,
            failed=self._ending.fail,
        )
        self.isolation = Isolation(self.gossip, self.provisional, self.takeovers, routes, member.picture)

    def _make_doors(self) -> None:
        ports, limits = self._ports, self._ports.settings.limits
        deliveries = Deliveries(
            self.message_log, self.sessions, self.groups, self.channels, self.replication, self.provisional
        )
        self.session_entry = SessionEntry(
            self._broker,
            self.clients,
            self.message_log,
            self.sessions,
            self.arrivals,
            self.endings,
            self.ownership,
            self.provisional,
            self.replication,
            self.takeovers,
            self.covers,
            self.orphans,
        )
        self.departures = Departures(
            self.message_log,
            self.sessions,
            self.endings,
            self.orphans,
            self.wills,
            self.provisional,
            self.replication,
        )
        self.durable = Durable(
            message_log=self.message_log,
            retained=self.retained,
            retained_writer=self.retained_writer,
            groups=self.groups,
            channels=self.channels,
            pulls=Pulls(self.channels),
            replication=self.replication,
            provisional=self.provisional,
            quota=self.quota,
            wills=self.wills,
            will_publisher=self.will_publisher,
            prefixes=self.prefixes,
            deliveries=deliveries,
            session_entry=self.session_entry,
            departures=self.departures,
        )
        self.registrar = self._make_registrar()
        self.listener = Listener(
            ports.own,
            limits,
            self.clients,
            self.exchange,
            self.durable,
            self.ownership,
            ports.guard,
            self.losses,
            rights_changed=self._rights_changed,
            refuge=ports.refuge,
            destinations=ports.destinations,
            redirects=ports.redirects(self.isolation),
            registrar=self.registrar,
        )
        self.removal = Removal(self._broker, self.listener, ports.settings.balance.rest_s)
        self.link_listener = LinkListener(
            ports.security,
            limits,
            self.exchange,
            self.gossip.hear,
            lambda transport: PassedOnClient(self.listener.make, transport),
            self.turned,
            self.exchange.peers.dial_again,
        )
        self.probes = Probes(ports.own, ports.security)

    def _make_registrar(self) -> Registrar | None:
        settings, users, table = self._ports.settings, self._ports.guard.users, self._stored.accounts
        if users is None or users.registered is None or table is None:
            return None
        audit = Audit(settings.state)

        def write(address: str, action: str, name: str, outcome: str, problem: str) -> None:
            audit.write(address or "a client", action, name, "", outcome, problem, f"at {self._broker}")

        return Registrar(
            Registration(terms_of(settings), users.registered),
            users,
            table,
            write,
            changed=self._users_changed,
            failed=self._ending.fail,
        )

    def _make_call(self, peer: BrokerInfo) -> OutwardCall | None:
        own = self._ports.own
        if peer.dials(own):
            return None
        return OutwardCall(own, peer, self._ports.security, lambda: IncomingConnection(self.link_listener))

    def _make_link(self, peer: BrokerInfo, quiet: bool, watcher: LinkWatcher) -> Link:
        waits = None if self._ports.own.dials(peer) else partial(self.turned.take, peer.certificate_name)
        outbound_max_bytes = self._ports.settings.limits.outbound_max_bytes
        return Link(
            self._ports.own,
            peer,
            self._ports.security,
            outbound_max_bytes=outbound_max_bytes,
            dropped=self.counts.drop,
            watcher=watcher,
            waits=waits,
            quiet=quiet,
        )

    def _make_extra(self, peer: BrokerInfo, which: str, watcher: LinkWatcher) -> Link:
        """A further connection to a broker, for copies: what it cannot send at once is of no use."""
        return Link(
            self._ports.own,
            peer,
            self._ports.security,
            outbound_max_bytes=0,
            dropped=lambda messages: None,
            watcher=watcher,
            said=((PROPERTY_EXTRA, which),),
        )

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Commit, follow, watch and answer, for as long as the broker lives."""
        bus, requests, quality = self._stored.bus, self.exchange.requests, self.exchange.words
        census = SessionCensus(self._stored.sessions, self.quota, broker=self._broker)
        async with (
            bus.serve(self.sessions.hand_over_subject(self._broker), self.session_entry.hand_over),
            bus.serve(self.witnesses.subject, self.witnesses.answer),
            bus.serve(self.ownership.subject(self._broker), self.ownership.answer),
            bus.serve(self.exchange.copies.subject, self.exchange.copies.answer),
            bus.subscribe(self.arrivals.subject) as words,
            bus.subscribe(self.covers.subject) as covers,
            bus.subscribe(requests.subject) as unmatched,
            bus.subscribe(requests.leased.subject) as words_of_all,
            bus.subscribe(requests.resending.subject) as words_for_us,
            asyncio.TaskGroup() as group,
        ):
            for work in (
                self.session_entry.hear(words),
                self.covers.hear(covers),
                quality.hear(unmatched, UNMATCHED.read, requests.hear),
                quality.hear(words_of_all, WORD.read, self.exchange.hear),
                quality.hear(words_for_us, WORD.read, self.exchange.hear),
                quality.speak(),
                self.ownership.run(),
                self.message_log.commit_all(),
                self.message_log.follow(self._take, self._judges),
                self.message_log.find_ends(),
                census.run(self._stored.network),
                self.message_log.remember(),
                self.retained.watch(),
                self.groups.run(),
                self.channels.backend.run(),
                self.channels.results.follow(self._dispatch),
                self.rates.run(),
                self.replication.run(self.gossip.detour),
                self.orphans.run(self._session_over),
                *([] if self.registrar is None else [self.registrar.run()]),
                self._ending.wait(),
            ):
                group.create_task(work)

    def _dispatch(self, place: int, notice: Notice, result: Result) -> None:
        """A result that a notice has brought."""
        self.channels.dispatch(place, notice, result)
        self.groups.result(place, notice, result)

    def _unseen(self, notice: Notice) -> set[str]:
        """The ks whose results in a notice may be in other brokers' files alone."""
        return self.channels.backend.machine.unseen(notice.seen) | self.groups.unseen(notice)

    def _judges(self) -> bool:
        """Whether it has to be known what was said of the stream of an entry of the message log."""
        exchange = self.exchange
        doubt = self._ports.member.in_doubt(now_us())
        return exchange.queries.is_judging() or exchange.requests.compares or doubt

    def _take(self, entry: Entry, publication: Publication) -> bool:
        """A message that the log has brought; whether anybody here wants it."""
        member = self._ports.member
        if member.picture.sets and publication.resolved and member.in_doubt(now_us()):
            metadata = publication.metadata
            self._ports.post(MessageRead(topic=publication.topic, metadata=metadata, cause=entry.id))
        if entry.id.endswith(WILL):
            self._will_noted(publication.client, entry.id)
        return self.exchange.dispatch(entry, publication)

    def _will_noted(self, client: str, will: str) -> None:
        """The log has a will."""
        self.replication.will_published(self.clients.present.get(client), will)

    async def drain(self, deadline_s: float) -> None:
        """Let everything that ended be stored."""
        self.covers.close()
        self.exchange.requests.close()
        self.exchange.copies.close()
        self.arrivals.forget()
        await self.endings.drain(deadline_s)
        await self.tasks.drain(deadline_s)
        await self.groups.drain(deadline_s)

    def close(self) -> None:
        """The broker is over, though its process may go on: a standby takes a place, or gives it back. Nothing that was
        to happen later may happen now."""
        self.wills.close()
        self.exchange.carrying.close()
        self.takeovers.close()
        self.tasks.close()

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    def held(self) -> Iterator[tuple[str, int]]:
        """The subscriptions of clients here that a plan counts, and their numbers."""
        yield from self.exchange.held()
        yield from self.channels.held()
        yield from self.groups.held()

    def statistics(self) -> dict[str, int]:
        return {
            **self.exchange.statistics(),
            **self.replication.statistics(),
            **self.isolation.statistics(),
            "watchers": len(self.losses.watchers),
            **self.covers.statistics(),
        }

    # ── what one part tells another ─────────────────────────────────────────────────────────────────────────

    def _is_served(self, client: str) -> bool:
        """Whether a client's connection is, or ends, here."""
        return self.clients.has(client) or self.endings.ending(client)

    def _saw(self, cell: Cell, session: StoredSession) -> None:
        """A scan has found a stored session."""
        self.orphans.saw(session)
        if session.home == self._broker:
            kept = kept_s(session)
            until_us = None if kept is None else wall_us() + kept * 1_000_000
            self.quota.found(session.client, session.owner, len(cell.value), until_us)

    def _session_over(self, session: StoredSession) -> None:
        """A stored session is no more."""
        self.quota.over(session.client)
        self.groups.session_over(session)
        self.channels.backend.over(session)
        self.replication.over(session)
        self.registry.session_over(session.client)
        self.exchange.requests.rings.session_over(session.client)

    def _channel_altered(self, channel: str) -> None:
        """A channel is defined, or is another."""
        self.groups.altered(channel)

    def _came_back(self, primary: str, wills: tuple[Left, ...]) -> None:
        """A broker is back that has forgotten these wills."""
        self.takeovers.restarted(primary, wills)

    def _queries_prepared(self, primary: str, names: tuple[str, ...], wanted: bool) -> None:
        """Clients of a broker that this one backs locally have these queries, or no longer."""
        self.exchange.queries.stand_by(primary, names, wanted=wanted)

    def _stream_described(self, topic: str, keys: Metadata, publishers: Collection[Client]) -> None:
        """What is said of a stream that these clients publish here."""
        self.exchange.requests.promise(topic, offer_in(keys), publishers)

    def _users_changed(self, names: frozenset[str]) -> None:
        """Users who registered are gone, or have another password."""
        self.listener.guard_changed(Changed(users=names))

    def _read_for_queries(self, added: Mapping[str, str], removed: Collection[str]) -> None:
        """A message tells by itself which queries it is for: those are read that some query can be true of. Who wants a
        filter (``$wanted``) no message tells."""
        before = [self._asked.pop(each) for each in removed if each in self._asked]
        for each, text in added.items():
            if each not in self._asked and not each.startswith(DEMAND):
                self._asked[each] = filters_of(parse(text))
                for topic_filter in self._asked[each]:
                    self.message_log.want(topic_filter)
        for filters in before:
            for topic_filter in filters:
                self.message_log.unwant(topic_filter)

    def _rights_changed(self) -> None:
        """The rules of access are others."""
        self.replication.rights_changed()
        self.exchange.access_changed()

    def _link_known(self, peer: str, up: bool) -> None:
        self.exchange.carrying.link_seen(peer, up)

    def _tell_of_ended_links(self, ended: Mapping[str, LinkEnding]) -> None:
        closed = tuple(peer for peer, how in ended.items() if how is LinkEnding.CLOSED)
        refused = tuple(peer for peer, how in ended.items() if how is LinkEnding.REFUSED)
        self._ports.post(LinksEnded(closed=closed, refused=refused, cause=f"{self._broker}:links"))

    def _interests_changed(self, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        cause = f"{self._broker}:interest {(added or removed)[0]}"
        for each in added:
            self.message_log.want(interest_of(each).pattern)
        for each in removed:
            self.message_log.unwant(interest_of(each).pattern)
        self._ports.post(InterestsChanged(added=added, removed=removed, cause=cause))
        self.gossip.wants(added, removed)

    def _queries_changed(
        self, added: tuple[tuple[str, str], ...], removed: tuple[str, ...], user: str
    ) -> None:
        cause = f"{self._broker}:query {added[0][0] if added else removed[0]}"
        self._read_for_queries(dict(added), removed)
        self._ports.post(QueriesChanged(added=added, removed=removed, user=user, cause=cause))
