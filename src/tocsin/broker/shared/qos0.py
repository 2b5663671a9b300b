"""Messages at QoS 0 for groups (``$share/group/filter``): each goes to one member, here or at one other broker.

Only the broker at which a message is published chooses: the local member in turn, if one takes it, else one peer. A
message to a peer is **marked**: its topic has the prefix ``$one/``, and its last user property names the group. There
it concerns that group and nothing else: a member, or on a routing broker one peer further on. If a routing broker may
not pass it on (``broker.forwarding.exchange``), ``$here/`` stands before that. A message over a link without a mark
concerns no group.

No client can say the mark: topics that begin with ``$`` are not theirs to publish to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from mqtt5 import PublishPacket

from tocsin.broker.client import Client
from tocsin.broker.forwarding.fanout import Outlet
from tocsin.broker.links.link import Link
from tocsin.core.forwarding.table import Share
from tocsin.model.publication import Publication
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.frames import forward_frame
from tocsin.wire.mqtt.mqtt50 import PROPERTIES_MAX
from tocsin.wire.mqtt.topics import HERE_PREFIX, ONE_PREFIX

# User properties of a message that can have a mark besides: peers take no packet with more properties in all.
MARKED_MAX: Final = PROPERTIES_MAX - 8
GROUP_PROPERTY: Final = "group"

Add = Callable[[Sequence[Outlet], bytes, None], None]


class Shares:
    """Chooses the member of each group that gets a QoS 0 message. ``links`` are those to peers, by their ids; ``add``
    queues a frame for outlets; ``lost`` is told of messages for a group that has nobody."""

    def __init__(
        self,
        cluster: str,
        links: Mapping[str, Link],
        add: Add,
        lost: Callable[[int], None],
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._add = add
        self._lost = lost

    def give(self, shares: Iterable[Share[Client]], packet: PublishPacket) -> None:
        """A message of one of our own clients: to one of each group."""
        for share in shares:
            self._give(share, packet, share.origin, share.origin_here)

    def give_here(self, shares: Iterable[Share[Client]], packet: PublishPacket) -> None:
        """A message about this broker: to one of each group that has somebody here."""
        for share in shares:
            if share.members:
                self._give(share, packet, (), ())

    def pass_on(
        self, shares: Iterable[Share[Client]], topic: str, packet: PublishPacket, cluster: str | None
    ) -> None:
        """A marked message on this topic that came over a link from a broker of this cluster; None: it ends here."""
        if not packet.user_properties:
            self._lost(1)  # a mark without the name of a group
            return
        name = packet.user_properties[-1][1]
        packet = Publication.of(packet, topic, "").packet(retain=packet.retain)
        del packet.user_properties[-1:]
        for share in shares:
            if share.name == name:
                onward: list[Sequence[str]] = [
                    [peer for peer in peers if cluster not in (None, self._links[peer].info.cluster)]
                    for peers in (share.transit, share.transit_here)
                ]
                self._give(share, packet, *onward)
                return
        self._lost(1)

    def _give(
        self, share: Share[Client], packet: PublishPacket, peers: Sequence[str], here: Sequence[str]
    ) -> None:
        turn = next(share.turn)
        members = share.members
        for step in range(len(members)):
            member, subscription = members[(turn + step) % len(members)]
            if not member.full or (step == len(members) - 1 and not peers and not here):
                identifier = subscription.identifier
                frame = forward_frame(
                    packet,
                    member.version,
                    retain=packet.retain and subscription.retain_as_published,
                    subscription_ids=() if identifier is None else (identifier,),
                )
                self._add((member.outlet,), frame, None)
                share.tally.add(len(frame))
                return
        if (peers or here) and len(packet.user_properties) <= MARKED_MAX:
            link, prefix = self._peer(peers, here, turn)
            frame = forward_frame(self._with_mark(packet, share.name, prefix), V5, retain=packet.retain)
            self._add((link,), frame, None)
        else:
            self._lost(1)

    def _peer(self, peers: Sequence[str], here: Sequence[str], turn: int) -> tuple[Link, str]:
        """One that is reached, of our own cluster if possible; of those, the next in turn. With the mark for it."""
        links = [(self._links[peer], ONE_PREFIX) for peer in peers]
        links += [(self._links[peer], HERE_PREFIX + ONE_PREFIX) for peer in here]
        ranks = [(not link.reachable, link.info.cluster != self._cluster) for link, _ in links]
        best = min(ranks)
        equal = [link for link, rank in zip(links, ranks, strict=True) if rank == best]
        return equal[turn % len(equal)]

    def _with_mark(self, packet: PublishPacket, name: str, prefix: str) -> PublishPacket:
        marked = Publication.of(packet, prefix + packet.topic, "").packet(retain=packet.retain)
        marked.user_properties.append((GROUP_PROPERTY, name))
        return marked
