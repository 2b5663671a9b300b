"""The broker's middle: who is connected, where messages go, and the hot path between.

``publish`` and ``relay`` look a topic up in the forwarding table (``core.forwarding``) and put its frames into the
outbox (``broker.fanout``). Messages of our own clients take the **origin** routes, messages from a link the
**transit** routes, except those into the cluster that they come from (``core.routing`` says why).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog
from mqtt5 import PublishPacket

from tocsin.broker.fanout import Group, Outbox, Outlet
from tocsin.broker.links import Link
from tocsin.core.forwarding import Audience, Fanout, ForwardingTable, Subscription
from tocsin.model.network import BrokerInfo, Route
from tocsin.wire.codec import V5, V311, Version
from tocsin.wire.frames import forward_frame


class Subscriber(Outlet, Protocol):
    """A client's connection, as the exchange sees it."""

    @property
    def version(self) -> Version: ...


class _View:
    """An audience, divided by the version in which its members are spoken to."""

    __slots__ = ("groups",)

    def __init__(self, audience: Audience[Subscriber]) -> None:
        self.groups: list[tuple[Version, Group, int]] = []  # and the largest frame that all of a group take
        for version in (V5, V311):
            members = [target for target in audience.targets if target.version == version]
            if members:
                group = members[0].group if len(members) == 1 else Group(*members)
                self.groups.append((version, group, min(each.send_max_bytes for each in members)))


class Counts:
    """What the exchange has done, for reports."""

    __slots__ = ("dropped", "published", "relayed")

    def __init__(self) -> None:
        self.published = 0  # messages from clients
        self.relayed = 0  # messages from links
        self.dropped = 0  # messages that found an outlet full, absent or unable to take them


class Exchange:
    """See the module's text."""

    def __init__(
        self,
        outbox: Outbox,
        make_link: Callable[[BrokerInfo], Link],
        interests_changed: Callable[[tuple[str, ...], tuple[str, ...]], None],
    ) -> None:
        self.counts = Counts()
        self.links: dict[str, Link] = {}
        self._table: ForwardingTable[Subscriber] = ForwardingTable()
        self._outbox = outbox
        self._make_link = make_link
        self._interests_changed = interests_changed  # called with the filters added and removed
        self._log = structlog.get_logger()

    # ── the hot path ────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, source: Subscriber, topic: str, packet: PublishPacket) -> None:
        """A message of one of our own clients."""
        self.counts.published += 1
        fanout = self._table.resolve(topic)
        self._forward(fanout, packet, source if source in fanout.no_local else None, fanout.origin)

    def relay(self, cluster: str, topic: str, packet: PublishPacket) -> None:
        """A message that came over a link from a broker of this cluster."""
        self.counts.relayed += 1
        fanout = self._table.resolve(topic)
        onward = [peer for peer in fanout.transit if self.links[peer].info.cluster != cluster]
        self._forward(fanout, packet, None, onward)

    def _forward(
        self,
        fanout: Fanout[Subscriber],
        packet: PublishPacket,
        excluded: Subscriber | None,
        peers: Sequence[str],
    ) -> None:
        outbox = self._outbox
        outbox.begin()
        audience = fanout.audience
        view = audience.view
        if not isinstance(view, _View):
            view = audience.view = _View(audience)
        frame_v5: bytes | None = None
        for version, group, send_max_bytes in view.groups:
            frame = forward_frame(packet, version)
            if version == V5:
                frame_v5 = frame
            if excluded is None and len(frame) <= send_max_bytes:
                outbox.add(group, frame)
            else:
                self._add_each(group.members, frame, excluded)
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
                self._outbox.add(outlet.group, frame)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, target: Subscriber, topic_filter: str, subscription: Subscription) -> None:
        if self._table.subscribe(target, topic_filter, subscription):
            self._interests_changed((topic_filter,), ())

    def unsubscribe(self, target: Subscriber, topic_filter: str) -> None:
        if self._table.unsubscribe(target, topic_filter):
            self._interests_changed((), (topic_filter,))

    def forget(self, target: Subscriber) -> None:
        """The target is gone; so is all that it subscribed to."""
        gone = self._table.drop(target)
        if gone:
            self._interests_changed((), gone)

    # ── routes ──────────────────────────────────────────────────────────────────────────────────────────────

    def change_routes(
        self, added: Iterable[Route], removed: Iterable[Route], peers: Iterable[BrokerInfo]
    ) -> None:
        """Have these routes, and a link to each of these peers and to nobody else."""
        wanted = {peer.id: peer for peer in peers}
        for peer, info in wanted.items():
            link = self.links.get(peer)
            if link is not None and link.info != info:  # it moved
                link.close()
                link = None
            if link is None:
                self.links[peer] = self._make_link(info)
                self.links[peer].open()
        for route in removed:
            self._table.remove_route(route)
        for route in added:
            self._table.add_route(route)
        for peer in [peer for peer in self.links if peer not in wanted]:
            self.links.pop(peer).close()

    def statistics(self) -> dict[str, int]:
        return {
            "published": self.counts.published,
            "relayed": self.counts.relayed,
            "dropped": self.counts.dropped,
            "links": len(self.links),
            "links_up": sum(link.up for link in self.links.values()),
            **self._table.statistics(),
        }
