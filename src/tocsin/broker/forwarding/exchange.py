"""The broker's middle: the connected clients, the routes of messages, and the hot path between.

``publish`` and ``relay`` look a topic up in the forwarding table (``core.forwarding.table``) and put its frames into
the outbox (``broker.forwarding.fanout``). Messages of our own clients take the **origin** routes, messages from a link
the **transit** routes, except those into the cluster that they come from (``core.forwarding.routes`` says why). A
message that comes to a routing broker from its own cluster is to be carried. Its clients get it apart, in a frame whose
topic is **marked** (HERE_PREFIX) and which is not passed on.
``broker.shared.qos0`` gives groups their part of them, and ``broker.shared.groups`` their part of the log. Queries are
asked through ``queries``, and what clients publish comes through their ``broker.connection.publish``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, final

import structlog
from mqtt5 import PublishPacket

from tocsin.broker.channels.channels import Channels
from tocsin.broker.client import Client
from tocsin.broker.forwarding.fanout import Outbox, Outlet, OutletSet
from tocsin.broker.forwarding.routes import Routes
from tocsin.broker.links.extra import MakeExtra
from tocsin.broker.links.link import Link, LinkWatcher
from tocsin.broker.links.pool import LinkPool
from tocsin.broker.links.relay import Relay
from tocsin.broker.quality.copies import Copies
from tocsin.broker.quality.flows import unstamped, with_stamp
from tocsin.broker.quality.requests import LIVE, Requests
from tocsin.broker.quality.words import Words
from tocsin.broker.retained.table import Retained
from tocsin.broker.shared.groups import Groups
from tocsin.broker.shared.qos0 import Shares
from tocsin.broker.streams.queries import Queries, QueriesChanged
from tocsin.broker.streams.registry import StreamRegistry
from tocsin.broker.tiers.carrying import Carrying
from tocsin.config import Deadline
from tocsin.core.budgets.budget import Budget
from tocsin.core.channels.channel_filter import ChannelFilter
from tocsin.core.coordination.participant.signals import (
    ChangesKnown,
    ChangesRouted,
    ChangesSettled,
    DemandKnown,
    DetoursChanged,
    QuerySetKnown,
    StreamChanged,
    StreamJoined,
    StreamLeft,
    StreamRefused,
    StreamsDescribed,
)
from tocsin.core.delivery.grant import Frames, Grant, frame_of, grant
from tocsin.core.filters import (
    ListingFilter,
    QueryFilter,
    RequestFilter,
    SharedFilter,
    StoredFilter,
    TopicFilter,
    UnreadableFilter,
    WantedFilter,
    topic_for,
)
from tocsin.core.forwarding.table import UNBEGUN, Audience, Fanout, ForwardingTable, Interests, Subscription
from tocsin.core.forwarding.tallies import Tallies
from tocsin.core.machine import Effect
from tocsin.core.quality.stamps import Stamp, is_stamped
from tocsin.core.session.bridging import Bridges
from tocsin.core.tiers.slots import Slots
from tocsin.model.network import BrokerInfo, Role, Route
from tocsin.model.publication import Publication
from tocsin.model.subjects import is_critical
from tocsin.ports import Bus, Entry
from tocsin.runtime.machines.clock import wall_s
from tocsin.runtime.machines.tasks import Failed
from tocsin.wire.internal.quality import Gives, Reaches, Seeks, Sees, Wishes, Word
from tocsin.wire.internal.relayed import TOPIC as CARRIED
from tocsin.wire.mqtt.codec import PublishRun
from tocsin.wire.mqtt.connect import V5, V311, Version
from tocsin.wire.mqtt.frames import forward_frame
from tocsin.wire.mqtt.topics import COPY_PREFIX, HERE_PREFIX, ONE_PREFIX, QUALITY_PREFIX

_NOBODY: Final = OutletSet()


@final
class View:
    """The recipients of a topic's messages, divided by the version in which they are spoken to. The forwarding table
    keeps it for as long as it is true.
    """

    __slots__ = ("aliased", "groups")

    def __init__(self, audience: Audience[Client]) -> None:
        self.aliased = [target.outlet for target in audience.targets if target.takes_aliases]
        self.groups: list[
            tuple[Version, OutletSet, int]
        ] = []  # and the largest frame that all of a group take
        for version in (V5, V311):
            targets = (t for t in audience.targets if t.version == version and not t.takes_aliases)
            members = [target.outlet for target in targets]
            if members:
                group = members[0].group if len(members) == 1 else OutletSet(*members)
                self.groups.append((version, group, min(each.send_max_bytes for each in members)))


def view_of(audience: Audience[Client]) -> View:
    view = audience.view
    if type(view) is View:
        return view
    audience.view = fresh = View(audience)
    return fresh


@final
class Only:
    """The single group that gets a topic's messages in the same bytes, if nobody else gets them; otherwise no run is
    small enough.
    """

    __slots__ = ("group", "send_max_bytes", "version")

    def __init__(self, fanout: Fanout[Client]) -> None:
        view = view_of(fanout.audience)
        others = (
            fanout.identified
            or fanout.no_local
            or fanout.shares
            or fanout.requesting
            or fanout.origin
            or fanout.origin_here
            or view.aliased
        )
        self.version: Version = V5
        self.group, self.send_max_bytes = _NOBODY, -1
        if len(view.groups) == 1 and not others:
            self.version, self.group, self.send_max_bytes = view.groups[0]


class Counts:
    """The message counters of a broker, for reports."""

    __slots__ = ("committed", "dropped", "published", "relayed")

    def __init__(self) -> None:
        self.published = 0  # QoS 0 messages from clients
        self.committed = 0  # QoS 1 and 2 messages from clients
        self.relayed = 0  # messages from links
        self.dropped = 0  # messages that found an outlet full, absent or unable to take them

    def drop(self, messages: int) -> None:
        """Messages found nobody."""
        self.dropped += messages


class Exchange:
    """Where the messages of one broker go. ``counts`` and ``budget`` are the broker's; ``peers`` are its links, and
    ``gone`` names the brokers that are lost; ``counts_ends``: where messages come from and go to is counted."""

    def __init__(
        self,
        outbox: Outbox,
        peers: LinkPool,
        counts: Counts,
        budget: Budget,
        groups: Groups,
        retained: Retained,
        channels: Channels,
        registry: StreamRegistry,
        bus: Bus,
        *,
        network: str,
        own: BrokerInfo,
        gone: Callable[[], Collection[str]],
        interests_changed: Callable[[tuple[str, ...], tuple[str, ...]], None],
        queries_changed: QueriesChanged,
        filters_max: int,
        held_max_bytes: int,
        failed: Failed,
        counts_ends: bool = False,
        deadline: Deadline | None = None,
        make_extra: MakeExtra | None = None,
    ) -> None:
        self.counts = counts
        self.budget = budget  # of bytes that clients make us hold
        self.registry = registry
        self.peers = peers
        self._groups = groups
        self._retained = retained
        self.bridges = Bridges()
        self._channels = channels
        self.links = self.peers.links
        self._table: ForwardingTable[Client] = ForwardingTable(
            permits=_permits,
            stirred=lambda: self.queries.demands.stirred(),
            registered=registry.is_registered,
        )
        registry.reregistered = self._table.reregister
        self.words = Words(bus)
        self.requests = Requests(
            network,
            own,
            self.words,
            add=self._add_one,
            keep=lambda query, user, wanted: self.queries.keep_offers(query, user, wanted),
            publishers=registry,
            gone=gone,
            find=lambda topic: self._table.resolve(topic).requesting,
        )
        self.queries = Queries(self._table, self._tell, queries_changed, self.requests)
        self.outbox = outbox
        self.carrying = Carrying(
            own.id,
            self._table,
            outbox,
            self.links,
            held_max_bytes=held_max_bytes,
            lost=counts.drop,
            failed=failed,
            counts_ends=counts_ends,
        )
        self.routes = Routes(
            own, self._table, self.peers, self.carrying, lambda: self.relays.links_changed(), gone
        )
        self.relays = Relay(own.cluster, self.links, self, counts.drop)
        self.copies = Copies(
            network,
            own,
            deadline or Deadline(),
            self.words,
            peers,
            make_extra or _makes_none,
            self.requests.flows,
            self.requests.budgets,
            self._first_hops,
            gone,
        )
        self.requests.flows.budgeted = self.copies.wanted
        self._shares = Shares(own.cluster, self.links, self._add_each, counts.drop)
        # Messages from this cluster's brokers are for others to carry, unless they are marked; "": there are none.
        self._carries_from = own.cluster if own.role is Role.ROUTING else ""
        self.interests = Interests(self._table, interests_changed, filters_max)
        self._log = structlog.get_logger()

    # ── the hot path ────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, source: Client, topic: str, packet: PublishPacket) -> None:
        """A QoS 0 message of one of our own clients."""
        self.counts.published += 1
        fanout = self._table.resolve(topic)
        if packet.retain:
            self._forward_retained(source.client_id, topic, packet, fanout.origin, fanout.origin_here)
        else:
            excluded = source.outlet if source in fanout.no_local else None
            self._forward(fanout, packet, excluded, fanout.origin, fanout.origin_here)
        if fanout.requesting and not packet.retain:
            self.requests.give(fanout.requesting, packet, topic, source.client_id)
        if fanout.shares:
            self._shares.give(fanout.shares, packet)

    def publish_stamped(self, source: Client, packet: PublishPacket, stamp: Stamp) -> None:
        """The same of a flow: the stamp is for brokers, and no client gets it."""
        self.counts.published += 1
        topic = packet.topic
        fanout = self._table.resolve(topic)
        excluded = source.outlet if source in fanout.no_local else None
        self._forward(fanout, packet, excluded, (), ())
        if fanout.origin or fanout.origin_here:
            self._add_peers(with_stamp(packet, stamp), None, fanout.origin, fanout.origin_here)
        copied = self.copies.topics.get(topic)
        if copied is not None:
            self.copies.send(copied, packet, stamp)
        if stamp.reliable:
            self.requests.keep_copy(Publication.of(packet, topic, source.client_id), stamp)
        if fanout.requesting:
            self.requests.give(fanout.requesting, packet, topic, source.client_id, stamp)
        if fanout.shares:
            self._shares.give(fanout.shares, packet)

    def relay(self, cluster: str, topic: str, packet: PublishPacket) -> None:
        """A message that came over a link from a broker of this cluster."""
        if topic[:1] == "$" and self._take_apart(topic, packet):
            return
        self.counts.relayed += 1
        ends = topic.startswith(HERE_PREFIX)
        if ends:
            topic = topic.removeprefix(HERE_PREFIX)
            packet = Publication.of(packet, topic, "").packet(retain=packet.retain)
        if topic.startswith(ONE_PREFIX):
            topic = topic.removeprefix(ONE_PREFIX)
            self.outbox.begin()
            shares = self._table.resolve(topic).shares
            self._shares.pass_on(shares, topic, packet, None if ends else cluster)
            return
        fanout = self._table.resolve(topic)
        if ends:
            onward, onward_here = [], []
        else:
            onward = self._into_others(fanout.transit, cluster)
            onward_here = self._into_others(fanout.transit_here, cluster)
            if onward:
                self.carrying.count(fanout, topic, cluster, onward, 1, len(packet.payload))
        if cluster == self._carries_from and not ends:
            self.outbox.begin()
            self._add_peers(packet, None, onward, onward_here)
        elif packet.retain:
            self._forward_retained("", topic, packet, onward, onward_here)
        elif packet.user_properties and is_stamped(packet.user_properties):
            bare, stamp = unstamped(packet, topic)
            self._forward(fanout, bare, None, (), ())
            self._add_peers(packet, None, onward, onward_here)
            if fanout.requesting:
                self.requests.give(fanout.requesting, bare, topic, "", stamp)
        else:
            self._forward(fanout, packet, None, onward, onward_here)
            if fanout.requesting:
                self.requests.give(fanout.requesting, packet, topic, "")

    def _take_apart(self, topic: str, packet: PublishPacket) -> bool:
        """Whether what came takes no routes: it is carried for others, or a copy."""
        if topic == CARRIED:
            self.relays.take(packet)
        elif topic.startswith(COPY_PREFIX):
            self._take_copy(topic.removeprefix(COPY_PREFIX), packet)
        else:
            return False
        return True

    def _take_copy(self, topic: str, packet: PublishPacket) -> None:
        """A copy came over a second way: nobody else gets it."""
        bare, stamp = unstamped(packet, topic)
        if stamp is not None:
            self.requests.give_copy(bare, topic, stamp)

    def _first_hops(self, topic: str) -> list[str]:
        """The brokers that messages of clients here go to."""
        fanout = self._table.resolve(topic)
        return [*fanout.origin, *fanout.origin_here]

    def hear(self, word: Word) -> None:
        """Another broker's word of quality."""
        if isinstance(word, Wishes | Seeks | Reaches | Gives | Sees):
            self.copies.hear(word)
        else:
            self.requests.heed(word)

    def _into_others(self, peers: Sequence[str], cluster: str) -> list[str]:
        """Those that are not in the cluster that a message comes from."""
        return [peer for peer in peers if self.links[peer].info.cluster != cluster]

    def dispatch(self, entry: Entry, publication: Publication) -> bool:
        """An entry of the message log: to every client here that wants it; whether any does."""
        waited_s = max(0.0, wall_s() - entry.at_us / 1e6)
        shared = bool(self._groups.local) and self._groups.arrived(entry, publication)
        if publication.retain:
            self._retained.saw(publication, entry.position, entry.at_us / 1e6)
        wanted = self.queries.wanted(publication)
        if self.requests.count:
            wanted = self.requests.judged(wanted, publication, sent_us=entry.at_us)
        if not wanted or publication.expired(waited_s):
            return shared or bool(wanted)
        self._table.count(publication.topic, len(publication.topic) + len(publication.payload))
        self.outbox.begin()
        frames = Frames(publication, waited_s)
        critical = is_critical(entry.subject)
        for target, subscriptions in wanted:
            granted = grant(subscriptions, publication, entry.position, target.client_id)
            if granted is None:
                continue
            if granted.qos:
                target.delivery.hand_in(entry, critical, granted, frames)
            elif self.requests.count:
                self.requests.send(target, subscriptions, granted, frames, publication)
            else:
                self._add_each((target.outlet,), frames.of(target.version, granted), None)
        return True

    def _forward_retained(
        self,
        client: str,
        topic: str,
        packet: PublishPacket,
        peers: Sequence[str],
        here: Sequence[str],
    ) -> None:
        """A QoS 0 message to be retained: some subscribers want to see that it is."""
        self.outbox.begin()
        publication = Publication.of(packet, topic, client)
        frames = Frames(publication, 0)
        for target, subscriptions in self.requests.judged(self._table.wanted(topic), publication):
            granted = grant(subscriptions, publication, LIVE, target.client_id)
            if granted is not None:
                self.requests.send(target, subscriptions, granted, frames, publication)
        self._table.count(topic, len(topic) + len(publication.payload))
        self._add_peers(packet, None, peers, here)

    def publish_run(self, source: Client, run: PublishRun) -> None:
        """Messages of one of our own clients on one topic."""
        fanout = self._table.resolve(run.topic)
        only = fanout.view
        if type(only) is not Only:
            only = fanout.view = Only(fanout)
        if len(run.frames) <= only.send_max_bytes and run.version == only.version:
            outbox = self.outbox
            outbox.begin()
            outbox.add(only.group, run.frames, run.count)
            tally, size = fanout.tally, len(run.frames)
            if tally.bytes:
                tally.bytes += size  # what ``add`` does, without the call
            else:
                tally.add(size)
            self.counts.published += run.count
            return
        alike = not (source in fanout.no_local or fanout.shares or fanout.requesting or fanout.origin_here)
        if alike and self._forward_run(fanout, run, fanout.origin):
            self.counts.published += run.count
        else:
            for packet in run.packets():
                self.publish(source, run.topic, packet)

    def passes_whole(self, source: Client, run: PublishRun) -> bool:
        """Whether the bytes of a run go on as they are, so that it costs no more than one message."""
        fanout = self._table.resolve(run.topic)
        view = view_of(fanout.audience)
        if source in fanout.no_local or fanout.shares or fanout.identified or view.aliased:
            return False
        if fanout.requesting or fanout.origin_here:
            return False
        if fanout.origin and run.version != V5:
            return False
        return all(version == run.version for version, _, _ in view.groups)

    def relay_run(self, cluster: str, run: PublishRun) -> None:
        """Messages on one topic that came over a link."""
        if run.topic.startswith("$"):
            for packet in run.packets():
                self.relay(cluster, run.topic, packet)
            return
        fanout = self._table.resolve(run.topic)
        onward = self._into_others(fanout.transit, cluster)
        alike = not self._into_others(fanout.transit_here, cluster)
        if alike and self._forward_run(fanout, run, onward, clients=cluster != self._carries_from):
            self.counts.relayed += run.count
            if onward:
                self.carrying.count(fanout, run.topic, cluster, onward, run.count, len(run.frames))
        else:
            for packet in run.packets():
                self.relay(cluster, run.topic, packet)

    def _forward_run(
        self, fanout: Fanout[Client], run: PublishRun, peers: Sequence[str], *, clients: bool = True
    ) -> bool:
        """Pass the bytes on as they came, to peers and perhaps to clients here; False, and nothing is done, if somebody
        needs other ones."""
        frames, count, own = run.frames, run.count, run.version
        size = len(frames)
        view = view_of(fanout.audience)
        groups = view.groups if clients else ()
        for version, _, send_max_bytes in groups:
            if version != own or size > send_max_bytes:
                return False
        if clients and (fanout.identified or fanout.requesting or view.aliased):
            return False
        outlets = [self._outlet(peer) for peer in peers]
        if outlets and (own != V5 or any(size > each.send_max_bytes for each in outlets)):
            return False
        outbox = self.outbox
        outbox.begin()
        for _, group, _ in groups:
            outbox.add(group, frames, count)
        if groups:
            tally = fanout.tally
            if tally.bytes:
                tally.bytes += size
            else:
                tally.add(size)
        for each in outlets:
            outbox.add(each.group, frames, count)
        return True

    def _forward(
        self,
        fanout: Fanout[Client],
        packet: PublishPacket,
        excluded: Outlet | None,
        peers: Sequence[str],
        here: Sequence[str],
    ) -> None:
        outbox = self.outbox
        outbox.begin()
        view = view_of(fanout.audience)
        frame_v5: bytes | None = None
        size = 0  # of a frame to a client here
        for version, group, send_max_bytes in view.groups:
            frame = forward_frame(packet, version)
            size = len(frame)
            if version == V5:
                frame_v5 = frame
            if excluded is None and len(frame) <= send_max_bytes:
                outbox.add(group, frame)
            else:
                self._add_each(group.members, frame, excluded)
        if view.aliased:
            frame_v5 = frame_v5 or forward_frame(packet, V5)
            size = len(frame_v5)
            self._add_each(view.aliased, frame_v5, excluded)
        for target, identifiers in fanout.identified:
            ids = identifiers if target.version == V5 else ()  # 3.1.1 cannot say them
            frame = forward_frame(packet, target.version, subscription_ids=ids)
            size = len(frame)
            self._add_each((target.outlet,), frame, excluded)
        if size:
            tally = fanout.tally
            if tally.bytes:
                tally.bytes += size  # what ``add`` does, without the call
            else:
                tally.add(size)
        if peers or here:
            self._add_peers(packet, frame_v5, peers, here)

    def _add_peers(
        self, packet: PublishPacket, frame: bytes | None, peers: Sequence[str], here: Sequence[str]
    ) -> None:
        """A message for peers that may pass it on, and for some that may not; ``frame`` is it, if that is known."""
        if peers:
            frame = frame or forward_frame(packet, V5, retain=packet.retain)
            self._add_each([self._outlet(peer) for peer in peers], frame, None)
        if here:
            marked = Publication.of(packet, HERE_PREFIX + packet.topic, "").packet(retain=packet.retain)
            frame = forward_frame(marked, V5, retain=packet.retain)
            self._add_each([self._outlet(peer) for peer in here], frame, None)

    def _outlet(self, peer: str) -> Outlet:
        """The link to a peer; or what holds the messages of a slot, or drops those for a peer that is no more."""
        link = self.links.get(peer)
        return self.carrying.outlet(peer) if link is None else link

    def _add_each(self, outlets: Iterable[Outlet], frame: bytes, excluded: Outlet | None) -> None:
        for outlet in outlets:
            if outlet is excluded:
                continue
            if len(frame) > outlet.send_max_bytes:
                self.counts.dropped += 1
            else:
                self.outbox.add(outlet.group, outlet.aliased(frame))

    def _add_one(self, target: Client, frame: bytes) -> None:
        self.outbox.begin()
        self._add_each((target.outlet,), frame, None)

    def announce(self, publication: Publication) -> None:
        """A QoS 0 message that no connection sends: a will after its delay."""
        fanout = self._table.resolve(publication.topic)
        packet = unstamped(publication.packet(), publication.topic)[0]
        self._forward(fanout, packet, None, fanout.origin, fanout.origin_here)
        if fanout.requesting:
            self.requests.give(fanout.requesting, packet, publication.topic, publication.client)
        if fanout.shares:
            self._shares.give(fanout.shares, packet)

    def bridge_said(self, client_id: str, payload: bytes) -> bool:
        """Whether it is taken what a bridge says of itself."""
        said = self.bridges.said(client_id, payload)
        for topic, payload in said or ():
            self.publish_own(Publication(topic, payload, 0, "", retain=True))
        return said is not None

    def bridge_went(self, client_id: str) -> None:
        for topic, payload in self.bridges.went(client_id):
            self.publish_own(Publication(topic, payload, 0, "", retain=True))

    def flush(self) -> None:
        """Write what waits for the end of the tick."""
        self.outbox.flush()

    def publish_own(self, publication: Publication) -> None:
        """A message about this broker, for subscribers here, now or later."""
        self._retained.remember(publication)
        fanout = self._table.resolve(publication.topic)
        packet = publication.packet()
        self._forward(fanout, packet, None, (), ())
        if fanout.requesting:
            self.requests.give(fanout.requesting, packet, publication.topic, "")
        if fanout.shares:
            self._shares.give_here(fanout.shares, packet)

    def _tell(self, target: Client, name: str, payload: bytes) -> None:
        """A message of ours to one client, under the name of one of its subscriptions; a topic has no wildcards."""
        self.outbox.begin()
        subscription = target.delivery.subscriptions.get(name)
        identifier = None if subscription is None else subscription.identifier
        granted = Grant(0, () if identifier is None else (identifier,), False)
        frame = frame_of(Publication(topic_for(name), payload, 0, ""), target.version, granted)
        self._add_each((target.outlet,), frame, None)

    def queue(self, group: OutletSet, frames: bytes, messages: int) -> None:
        """Frames for one client, with this tick's others."""
        self.outbox.begin()
        self.outbox.add(group, frames, messages)

    def outlet_changed(self) -> None:
        """An outlet has another descriptor than before, or none."""
        self.outbox.outlet_changed()

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self, target: Client, wanted: StoredFilter, subscription: Subscription, *, bound: bool = True
    ) -> bool:
        """False if that is one filter too many."""
        match wanted:
            case SharedFilter(of_results=True):
                pass  # its group reads results by itself
            case TopicFilter(name=name) | RequestFilter(name=name):
                if not self.interests.subscribe(target, name, subscription, bound=bound):
                    return False
                self._request(target, name, wanted.pattern, subscription)
            case SharedFilter(name=name):
                return self.interests.subscribe(target, name, subscription, bound=bound)
            case QueryFilter(name=name):
                self.queries.subscribe(target, wanted, subscription)
                self._request(target, name, name, subscription)
            case ListingFilter() | WantedFilter():
                self.queries.subscribe(target, wanted, subscription)
            case ChannelFilter(name=name):
                self._channels.subscribe(target, name, subscription)
            case UnreadableFilter(name=name, problem=problem):
                facts = {"subscriber": target.client_id, "subscription": name, "problem": problem}
                self._log.warning("a stored subscription cannot be read", **facts)
        return True

    def _request(self, target: Client, name: str, scope: str, subscription: Subscription) -> None:
        """A subscription has this request, or (empty) none any more, or is about news; nothing to do where nobody here
        has one."""
        request = subscription.request
        if request or self.requests.count or name.startswith(QUALITY_PREFIX):
            self.requests.subscribed(target, name, scope, request, fresh=subscription.since == UNBEGUN)

    def unsubscribe(self, target: Client, wanted: StoredFilter) -> None:
        match wanted:
            case SharedFilter(of_results=True):
                pass
            case TopicFilter(name=name) | SharedFilter(name=name) | RequestFilter(name=name):
                self.requests.unsubscribed(target, name)
                self.interests.unsubscribe(target, name)
            case QueryFilter(name=name) | ListingFilter(name=name):
                self.requests.unsubscribed(target, name)
                self.queries.unsubscribe(target, wanted)
            case WantedFilter():
                self.queries.unsubscribe(target, wanted)
            case ChannelFilter(name=name):
                self._channels.unsubscribe(target, name)

    def forget(self, target: Client) -> None:
        """The target is gone; so is all that it subscribed to."""
        self._channels.forget(target)
        self.requests.forget(target)
        self.queries.forget(target)
        self.interests.forget(target)

    def access_changed(self) -> None:
        """The clients' rights to receive have changed."""
        self._table.forget()
        self.queries.listings.access_changed()
        self.queries.demands.access_changed()
        self.requests.access_changed()

    # ── the coordinator ─────────────────────────────────────────────────────────────────────────────────────

    def held(self) -> Iterator[tuple[str, int]]:
        """The filters, groups and queries of clients here, each with how many are subscribed."""
        return self._table.held()

    def wanting(self) -> Iterator[tuple[str, str]]:
        """The clients here, by id, each with the filters that it has and the topics that its queries bring."""
        return self._table.wanting_of(lambda target: target.client_id)

    @property
    def tallies(self) -> Tallies:
        """The bytes of messages to clients here, by subscription."""
        return self._table.tallies

    def apply_coordination(self, effect: Effect) -> None:
        """Apply the participant's effects on streams, queries and links."""
        match effect:
            case StreamJoined() | StreamChanged() | StreamLeft():
                self.queries.turn(effect)
            case QuerySetKnown():
                self.queries.know(effect)
            case DemandKnown():
                self.queries.know_demand(effect)
            case StreamsDescribed(streams=streams, whole=whole):
                self.registry.described(streams, whole=whole)
            case StreamRefused(subject=query, problem=problem, ticket=0):
                self.queries.refuse(query, problem)
                self.registry.unregister(query)  # or it is a stream that was declared once more
            case StreamRefused(subject=topic, problem=problem, ticket=ticket):
                self.registry.refuse(ticket, topic, problem)
            case DetoursChanged(around=around):
                self.relays.change(around)
            case ChangesSettled(ticket=ticket):
                self.registry.settle(ticket)
            case ChangesKnown(ticket=ticket):
                self.registry.clear(ticket)
            case ChangesRouted(ticket=ticket, anew=anew):
                self.registry.routed(ticket, anew=anew)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    # ── routes ──────────────────────────────────────────────────────────────────────────────────────────────

    def change_routes(
        self,
        added: Iterable[Route],
        removed: Iterable[Route],
        peers: Iterable[BrokerInfo],
        quiet: Collection[str] = (),
        tiers: Mapping[str, Slots] | None = None,
    ) -> None:
        """Have these routes, and a link to each of these peers; to the quiet ones nothing leads. Tiers are as they were
        if none are given."""
        self.routes.change(added, removed, peers, quiet, tiers)

    def statistics(self) -> dict[str, int]:
        return {
            "published": self.counts.published + self.counts.committed,
            "relayed": self.counts.relayed,
            "dropped": self.counts.dropped,
            "links": len(self.links),
            "links_up": sum(link.up for link in self.links.values()),
            "links_waiting": sum(link.waiting_bytes for link in self.links.values()),
            "links_late": self.peers.late,
            "detours": self.relays.detours,
            "carried": self.relays.carried,
            "sent_around": self.relays.around,
            "standby_routes": self.routes.standby.count,
            "covered_peers": len(self.routes.standby.covers),
            **self.carrying.statistics(),
            **self._table.statistics(),
            **self.queries.statistics(),
            **self.requests.statistics(),
            **self.copies.statistics(),
            **self._channels.statistics(),
            **self.registry.statistics(),
        }


def _makes_none(info: BrokerInfo, which: str, watcher: LinkWatcher) -> Link:
    raise AssertionError("nobody asked for copies")


def _permits(target: Client, topic: str) -> bool:
    return target.may_receive(topic)
