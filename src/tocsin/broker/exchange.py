"""The broker's middle: who is connected, where messages go, and the hot path between.

``publish`` and ``relay`` look a topic up in the forwarding table (``core.forwarding``) and put its frames into the
outbox (``broker.fanout``). Messages of our own clients take the **origin** routes, messages from a link the
**transit** routes, except those into the cluster that they come from (``core.routing`` says why). What groups get of
them is the affair of ``broker.shares``, and of what the log brings that of ``broker.groups``. Queries are asked through
``queries``, and what clients publish comes through their ``broker.source``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import structlog
from mqtt5 import PublishPacket

from tocsin.broker.carriage import Carriage
from tocsin.broker.durability import Durability
from tocsin.broker.fanout import Group, Outbox, Outlet
from tocsin.broker.frames import Frames, frame_of
from tocsin.broker.interests import Interests
from tocsin.broker.links import Link
from tocsin.broker.neighbourhood import PREFIX as NEAR
from tocsin.broker.peers import Peers
from tocsin.broker.queries import Queries, QueriesChanged
from tocsin.broker.routes import Routes
from tocsin.broker.shares import Shares
from tocsin.broker.sources import Sources
from tocsin.broker.views import Only, view_of
from tocsin.broker.views import Subscriber as Subscriber
from tocsin.config import Budgets
from tocsin.core.budget import Budget, bounds_of
from tocsin.core.channel_request import is_channel
from tocsin.core.coordination.signals import (
    ClearTo,
    DetoursChanged,
    QuerySetKnown,
    Settled,
    StreamChanged,
    StreamJoined,
    StreamLeft,
    StreamRefused,
    StreamsDescribed,
)
from tocsin.core.forwarding import Fanout, ForwardingTable, Subscription
from tocsin.core.grant import Grant, grant
from tocsin.core.inquiry import is_inquiry
from tocsin.core.machine import Effect
from tocsin.model.network import BrokerInfo, Route
from tocsin.model.publication import Publication
from tocsin.model.subjects import is_critical
from tocsin.ports import Entry
from tocsin.wire.carriage import TOPIC as CARRIED
from tocsin.wire.codec import V5, PublishRun
from tocsin.wire.frames import forward_frame
from tocsin.wire.topics import ONE_PREFIX

LIVE: Final = 1 << 62  # the position of a message that is in no log: later than every subscription


class Counts:
    """What the exchange has done, for reports."""

    __slots__ = ("committed", "dropped", "published", "relayed")

    def __init__(self) -> None:
        self.published = 0  # QoS 0 messages from clients
        self.committed = 0  # QoS 1 and 2 messages from clients
        self.relayed = 0  # messages from links
        self.dropped = 0  # messages that found an outlet full, absent or unable to take them


class Exchange:
    """See the module's text."""

    def __init__(
        self,
        outbox: Outbox,
        make_link: Callable[[BrokerInfo], Link],
        interests_changed: Callable[[tuple[str, ...], tuple[str, ...]], None],
        *,
        cluster: str,
        queries_changed: QueriesChanged = lambda added, removed, user: None,
        filters_max: int,
        budget: Budget | None = None,
    ) -> None:
        self.counts = Counts()
        self.budget = budget or Budget(bounds_of(Budgets()))  # of bytes that clients make us hold
        self.durability: Durability  # set by who made both
        self.sources: Sources  # same
        self.peers = Peers(make_link)
        self.links = self.peers.links
        self._table: ForwardingTable[Subscriber] = ForwardingTable(permits=_permits)
        self.queries = Queries(self._table, self._tell, queries_changed)
        self.routes = Routes(self._table, self.peers, lambda: self.carriage.links_changed())
        # Hears words of the cluster's: from whom, as its certificate says, on which topic, and what.
        self.near: Callable[[str, str, bytes], None] = lambda peer, topic, payload: None
        self.apart: Callable[[], dict[str, int]] = dict  # figures of a broker that no leader hears
        self.carriage = Carriage(cluster, self.links, self, self.lose)
        self._shares = Shares(cluster, self.links, self._add_each, self.lose)
        self.outbox = outbox
        self.interests = Interests(self._table, interests_changed, filters_max)
        self._log = structlog.get_logger()

    # ── the hot path ────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, source: Subscriber, topic: str, packet: PublishPacket) -> None:
        """A QoS 0 message of one of our own clients."""
        self.counts.published += 1
        fanout = self._table.resolve(topic)
        if packet.retain:
            self._forward_retained(source.client_id, topic, packet, fanout.origin)
        else:
            self._forward(fanout, packet, source if source in fanout.no_local else None, fanout.origin)
        if fanout.shares:
            self._shares.give(fanout.shares, packet)

    def relay(self, cluster: str, topic: str, packet: PublishPacket, peer: str = "") -> None:
        """A message that came over a link from a broker of this cluster. ``peer``: the name in the certificate of who
        sent it; empty if it was carried by others, who cannot vouch for it."""
        if topic == CARRIED:
            self.carriage.take(packet)
            return
        if topic.startswith(NEAR):
            self.near(peer, topic, packet.payload)
            return
        self.counts.relayed += 1
        if topic.startswith(ONE_PREFIX):
            topic = topic.removeprefix(ONE_PREFIX)
            self.outbox.begin()
            self._shares.pass_on(self._table.resolve(topic).shares, topic, cluster, packet)
            return
        fanout = self._table.resolve(topic)
        onward = [peer for peer in fanout.transit if self.links[peer].info.cluster != cluster]
        if packet.retain:
            self._forward_retained("", topic, packet, onward)
            return
        self._forward(fanout, packet, None, onward)

    def take(self, entry: Entry, publication: Publication) -> None:
        """An entry of the message log: to every client here that wants it."""
        waited_s = max(0.0, time.time() - entry.at_us / 1e6)
        self.durability.groups.arrived(entry, publication)
        if publication.retain:
            self.durability.retained.saw(publication, entry.position, entry.at_us / 1e6)
        wanted = self.queries.wanted(publication)
        if not wanted or publication.expired(waited_s):
            return
        self.outbox.begin()
        frames = Frames(publication, waited_s)
        critical = is_critical(entry.subject)
        for target, subscriptions in wanted:
            granted = grant(subscriptions, publication, entry.position, target.client_id)
            if granted is None:
                continue
            if granted.qos:
                target.attendant.offer(entry, critical, granted, frames)
            else:
                self._add_each((target,), frames.of(target.version, granted), None)

    def _forward_retained(self, client: str, topic: str, packet: PublishPacket, peers: Sequence[str]) -> None:
        """A QoS 0 message to be retained: some subscribers want to see that it is."""
        self.outbox.begin()
        publication = Publication.of(packet, topic, client)
        frames = Frames(publication, 0)
        for target, subscriptions in self._table.wanted(topic):
            granted = grant(subscriptions, publication, LIVE, target.client_id)
            if granted is not None:
                self._add_each((target,), frames.of(target.version, granted), None)
        if peers:
            frame = forward_frame(packet, V5, retain=True)
            self._add_each([self.links[peer] for peer in peers], frame, None)

    def publish_run(self, source: Subscriber, run: PublishRun) -> None:
        """Messages of one of our own clients on one topic."""
        fanout = self._table.resolve(run.topic)
        only = fanout.view
        if type(only) is not Only:
            only = fanout.view = Only(fanout)
        if len(run.frames) <= only.send_max_bytes and run.version == only.version:
            outbox = self.outbox
            outbox.begin()
            outbox.add(only.group, run.frames, run.count)
            self.counts.published += run.count
            return
        alike = source not in fanout.no_local and not fanout.shares
        if alike and self._forward_run(fanout, run, fanout.origin):
            self.counts.published += run.count
        else:
            for packet in run.packets():
                self.publish(source, run.topic, packet)

    def passes_whole(self, source: Subscriber, run: PublishRun) -> bool:
        """Whether the bytes of a run go on as they are, so that it costs no more than one message."""
        fanout = self._table.resolve(run.topic)
        view = view_of(fanout.audience)
        if source in fanout.no_local or fanout.shares or fanout.identified or view.aliased:
            return False
        if fanout.origin and run.version != V5:
            return False
        return all(version == run.version for version, _, _ in view.groups)

    def relay_run(self, cluster: str, run: PublishRun) -> None:
        """Messages on one topic that came over a link."""
        fanout = self._table.resolve(run.topic)
        onward = [peer for peer in fanout.transit if self.links[peer].info.cluster != cluster]
        if self._forward_run(fanout, run, onward):
            self.counts.relayed += run.count
        else:
            for packet in run.packets():
                self.relay(cluster, run.topic, packet)

    def _forward_run(self, fanout: Fanout[Subscriber], run: PublishRun, peers: Sequence[str]) -> bool:
        """Pass the bytes on as they came; False, and nothing is done, if somebody needs other ones."""
        frames, count, own = run.frames, run.count, run.version
        size = len(frames)
        view = view_of(fanout.audience)
        groups = view.groups
        for version, _, send_max_bytes in groups:
            if version != own or size > send_max_bytes:
                return False
        if fanout.identified or view.aliased:
            return False
        if peers and (own != V5 or any(size > self.links[peer].send_max_bytes for peer in peers)):
            return False
        outbox = self.outbox
        outbox.begin()
        for _, group, _ in groups:
            outbox.add(group, frames, count)
        for peer in peers:
            outbox.add(self.links[peer].group, frames, count)
        return True

    def _forward(
        self,
        fanout: Fanout[Subscriber],
        packet: PublishPacket,
        excluded: Subscriber | None,
        peers: Sequence[str],
    ) -> None:
        outbox = self.outbox
        outbox.begin()
        view = view_of(fanout.audience)
        frame_v5: bytes | None = None
        for version, group, send_max_bytes in view.groups:
            frame = forward_frame(packet, version)
            if version == V5:
                frame_v5 = frame
            if excluded is None and len(frame) <= send_max_bytes:
                outbox.add(group, frame)
            else:
                self._add_each(group.members, frame, excluded)
        if view.aliased:
            frame_v5 = frame_v5 or forward_frame(packet, V5)
            self._add_each(view.aliased, frame_v5, excluded)
        for target, identifiers in fanout.identified:
            ids = identifiers if target.version == V5 else ()  # 3.1.1 cannot say them
            self._add_each((target,), forward_frame(packet, target.version, subscription_ids=ids), excluded)
        if peers:
            frame = frame_v5 or forward_frame(packet, V5)
            self._add_each([self.links[peer] for peer in peers], frame, None)

    def _add_each(self, outlets: Iterable[Outlet], frame: bytes, excluded: Outlet | None) -> None:
        for outlet in outlets:
            if outlet is excluded:
                continue
            if len(frame) > outlet.send_max_bytes:
                self.counts.dropped += 1
            else:
                self.outbox.add(outlet.group, outlet.aliased(frame))

    def lose(self, messages: int) -> None:
        """Messages found nobody."""
        self.counts.dropped += messages

    def announce(self, publication: Publication) -> None:
        """A QoS 0 message that no connection sends: a will after its delay."""
        fanout = self._table.resolve(publication.topic)
        packet = publication.packet()
        self._forward(fanout, packet, None, fanout.origin)
        self._shares.give(fanout.shares, packet)

    def say(self, publication: Publication) -> None:
        """A message about this broker, to whoever listens here, now or later."""
        self.durability.retained.remember(publication)
        fanout = self._table.resolve(publication.topic)
        packet = publication.packet()
        self._forward(fanout, packet, None, ())
        self._shares.give_here(fanout.shares, packet)

    def _tell(self, target: Subscriber, name: str, payload: bytes) -> None:
        """A message of ours to one client, under the name of one of its subscriptions."""
        self.outbox.begin()
        subscription = target.attendant.subscriptions.get(name)
        identifier = None if subscription is None else subscription.identifier
        granted = Grant(0, () if identifier is None else (identifier,), False)
        frame = frame_of(Publication(name, payload, 0, ""), target.version, granted)
        self._add_each((target,), frame, None)

    def queue(self, group: Group, frames: bytes, messages: int) -> None:
        """Frames for one client, with this tick's others."""
        self.outbox.begin()
        self.outbox.add(group, frames, messages)

    def outlet_changed(self) -> None:
        """An outlet has another descriptor than before, or none."""
        self.outbox.outlet_changed()

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self, target: Subscriber, topic_filter: str, subscription: Subscription, *, bound: bool = True
    ) -> bool:
        """False if that is one filter too many."""
        if is_channel(topic_filter):
            self.durability.channels.subscribe(target, topic_filter, subscription)
            return True
        if not is_inquiry(topic_filter):
            return self.interests.subscribe(target, topic_filter, subscription, bound=bound)
        self.queries.subscribe(target, topic_filter, subscription)
        return True

    def unsubscribe(self, target: Subscriber, topic_filter: str) -> None:
        if is_inquiry(topic_filter):
            self.queries.unsubscribe(target, topic_filter)
        elif is_channel(topic_filter):
            self.durability.channels.unsubscribe(target, topic_filter)
        else:
            self.interests.unsubscribe(target, topic_filter)

    def forget(self, target: Subscriber) -> None:
        """The target is gone; so is all that it subscribed to."""
        self.durability.channels.forget(target)
        self.queries.forget(target)
        self.interests.forget(target)

    def access_changed(self) -> None:
        """What clients may receive is no longer what it was."""
        self._table.forget()
        self.queries.listings.access_changed()

    # ── the coordinator ─────────────────────────────────────────────────────────────────────────────────────

    def held(self) -> Iterator[tuple[str, int]]:
        """The filters, groups and queries of clients here, each with how many are subscribed."""
        return self._table.held()

    def heed(self, effect: Effect) -> None:
        """What the participant says of streams, queries and links."""
        match effect:
            case StreamJoined() | StreamChanged() | StreamLeft():
                self.queries.turn(effect)
            case QuerySetKnown():
                self.queries.know(effect)
            case StreamsDescribed(streams=streams, whole=whole):
                self.sources.described(streams, whole=whole)
            case StreamRefused(subject=query, problem=problem, ticket=0):
                self.queries.refuse(query, problem)
            case StreamRefused(subject=topic, problem=problem, ticket=ticket):
                self.sources.refuse(ticket, topic, problem)
            case DetoursChanged(around=around):
                self.carriage.change(around)
            case Settled(ticket=ticket):
                self.sources.settle(ticket)
            case ClearTo(ticket=ticket):
                self.sources.clear(ticket)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    # ── routes ──────────────────────────────────────────────────────────────────────────────────────────────

    def change_routes(
        self, added: Iterable[Route], removed: Iterable[Route], peers: Iterable[BrokerInfo]
    ) -> None:
        """Have these routes, and a link to each of these peers."""
        self.routes.change(added, removed, peers)

    def statistics(self) -> dict[str, int]:
        return {
            "published": self.counts.published + self.counts.committed,
            "relayed": self.counts.relayed,
            "dropped": self.counts.dropped,
            "links": len(self.links),
            "links_up": sum(link.up for link in self.links.values()),
            "detours": self.carriage.detours,
            "carried": self.carriage.carried,
            "sent_around": self.carriage.around,
            **self._table.statistics(),
            **self.queries.statistics(),
            **self.durability.channels.statistics(),
            **self.durability.replicating.statistics(),
            **self.sources.statistics(),
            **self.apart(),
        }


def _permits(target: Subscriber, topic: str) -> bool:
    return target.may_receive(topic)
