"""The network as a broker knows it from its notices: its routes and peers, and the streams of its queries.

``apply`` takes the items of one notice and says what changed, as effects for the shell. A notice that is fresh tells
everything; only what differs from what was known is passed on, so that a subscriber hears of each stream joined,
left, joined … in turn, whatever was missed in between.

Cost: a notice costs what it tells, and the peers; not the routes and streams that are there already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tocsin.core.coordination.participant.signals import (
    BackupsKnown,
    DestinationsChanged,
    DetoursChanged,
    PlacesChanged,
    Promoted,
    QuerySetKnown,
    RoutesChanged,
    StandDown,
    StandIn,
    StreamChanged,
    StreamJoined,
    StreamLeft,
    StreamsDescribed,
)
from tocsin.core.machine import Effect
from tocsin.model.network import BrokerInfo, Route
from tocsin.model.stream import Metadata
from tocsin.wire.notices import (
    Backed,
    Bypass,
    Changed,
    Described,
    Item,
    Joined,
    Left,
    Moved,
    Promote,
    QuerySet,
    Routes,
    TakeOver,
)


class NetworkView:
    """The network as one broker knows it from its notices."""

    def __init__(self) -> None:
        self.routes: dict[Route, None] = {}  # what the forwarding table holds, oldest first
        self.peers: dict[str, BrokerInfo] = {}  # of those routes, of detours, and of brokers that it watches
        self.quiet: frozenset[str] = frozenset()  # of them, those that it only watches
        self.bypass = Bypass()
        self._routes_to: Counter[str] = Counter()  # peer → how many routes lead there; never 0
        # Query → topic → metadata, of each query that was answered.
        self.sets: dict[str, dict[str, Metadata]] = {}
        self._describes = False  # something was ever said of streams that are published here
        self.places: dict[str, Moved] = {}  # lost brokers, and their stand-ins
        self._backed = Backed()
        self._stands_in: dict[str, int] = {}  # the brokers that this broker stands in for → epoch

    @property
    def backs_locally(self) -> tuple[str, ...]:
        """The brokers of its cluster that this broker backs."""
        return self._backed.locally

    @property
    def backups(self) -> tuple[BrokerInfo, ...]:
        """The local backup of this broker, then the remote one, as far as they are there."""
        return tuple(each for each in (self._backed.local, self._backed.remote) if each is not None)

    def stands_in_for(self, broker: str) -> BrokerInfo | None:
        """The broker that stands in for a lost one; None if it is there, or nobody does."""
        moved = self.places.get(broker)
        return None if moved is None else moved.to

    def forget(self, query: str) -> None:
        """Nobody here asks this query any more."""
        self.sets.pop(query, None)

    def apply(self, items: Iterable[Item], queries: Mapping[str, str], *, fresh: bool) -> list[Effect]:
        """Take all that a notice tells; ``queries`` are those that are asked here now."""
        effects: list[Effect] = []
        added: dict[Route, None] = {}
        removed: dict[Route, None] = dict(self.routes) if fresh else {}
        infos: dict[str, BrokerInfo] = {}
        partial: dict[str, Metadata] = {}  # of a set that takes several items, one after the other
        described: dict[str, Metadata] = {}
        places: dict[str, Moved] = {}
        stands_in: dict[str, int] = {}
        bypass = Bypass() if fresh else self.bypass
        for item in items:
            match item:
                case Routes():
                    infos.update((peer.id, peer) for peer in item.peers)
                    for route in item.added:
                        removed.pop(route, None)
                        added[route] = None
                    for route in item.removed:
                        added.pop(route, None)
                        removed[route] = None
                case Described(topic=topic, keys=keys):
                    described[topic] = keys
                case QuerySet(query=query) if query in queries:
                    partial.update(item.streams)
                    if not item.more:
                        effects += self._replace(query, partial)
                        partial = {}
                case Joined() | Changed() | Left() if item.query in queries:
                    effects += self._take(item)
                case Backed() if item != self._backed:
                    moved = (item.local, item.remote) != (self._backed.local, self._backed.remote)
                    known, self._backed = _backups_known(self._backed), item
                    effects += [_backups_known(item)] if _backups_known(item) != known else []
                    effects += [DestinationsChanged()] if moved else []
                    infos.update((peer.id, peer) for peer in item.watched)
                case Moved():
                    places[item.broker] = item
                case Promote(place=place):
                    effects.append(Promoted(place=place))
                case TakeOver(broker=broker, epoch=epoch):
                    stands_in[broker] = epoch
                case Bypass():
                    bypass = item
                    infos.update((peer.id, peer) for peer in item.peers)
        if described or (fresh and self._describes):
            self._describes = True
            effects.append(StreamsDescribed(streams=described, whole=fresh))
        lost = set(self.places)
        effects += self._take_places(places, stands_in, fresh)
        before, self.bypass = self.bypass, bypass
        routed = self._take_routes(added, removed, infos, back=not lost <= self.places.keys())
        if before.around != bypass.around:
            routed.append(DetoursChanged(around=dict(bypass.around)))
        return [*routed, *effects]

    def _take_places(
        self, places: Mapping[str, Moved], stands_in: Mapping[str, int], fresh: bool
    ) -> list[Effect]:
        before = dict(self.places)
        for broker in [each for each in self.places if fresh and each not in places]:
            del self.places[broker]
        for broker, moved in places.items():
            self.places.pop(broker, None)
            if moved.gone:
                self.places[broker] = moved
        effects: list[Effect] = []
        if before != self.places:
            effects.append(PlacesChanged(lost={each: moved.to for each, moved in self.places.items()}))
        for broker in [
            each for each in self._stands_in if (fresh or each in places) and each not in stands_in
        ]:
            del self._stands_in[broker]
            effects.append(StandDown(broker=broker))
        for broker, epoch in stands_in.items():
            if self._stands_in.get(broker) != epoch:
                self._stands_in[broker] = epoch
                effects.append(StandIn(broker=broker, epoch=epoch))
        return effects

    def _take_routes(
        self,
        added: Mapping[Route, None],
        removed: Mapping[Route, None],
        infos: Mapping[str, BrokerInfo],
        *,
        back: bool,
    ) -> list[Effect]:
        """``back``: a broker is lost no longer, so that the routes to it are to be looked at again."""
        came = [route for route in added if route not in self.routes]
        went = [route for route in removed if route in self.routes]
        for route in came:
            self.routes[route] = None
            self._routes_to[route.peer] += 1
        for route in went:
            del self.routes[route]
            self._routes_to[route.peer] -= 1
            if not self._routes_to[route.peer]:
                del self._routes_to[route.peer]
        known = {**self.peers, **infos}
        carrying = {*self._routes_to, *(peer.id for peer in self.bypass.peers)}
        quiet = frozenset(peer.id for peer in self._backed.watched) - carrying
        peers = {peer: known[peer] for peer in sorted(carrying | quiet)}
        if not came and not went and (peers, quiet) == (self.peers, self.quiet) and not back:
            return []
        self.peers, self.quiet = peers, quiet
        changed = RoutesChanged(
            added=tuple(came), removed=tuple(went), peers=tuple(peers.values()), quiet=quiet
        )
        return [changed]

    def _take(self, item: Joined | Changed | Left) -> list[Effect]:
        streams = self.sets.get(item.query)
        if streams is None:
            return []  # an answer to an earlier question; the current answer is to come
        query, topic, metadata = item.query, item.topic, item.metadata
        before = streams.get(topic)
        if isinstance(item, Left):
            if before is None:
                return []
            del streams[topic]
            return [StreamLeft(query=query, topic=topic, metadata=metadata)]
        streams[topic] = metadata
        if before is None:
            return [StreamJoined(query=query, topic=topic, metadata=metadata)]
        if before != metadata:
            return [StreamChanged(query=query, topic=topic, metadata=metadata)]
        return []

    def learn(self, query: str, topic: str, metadata: Metadata) -> list[Effect]:
        """A stream of a query that no notice has told of yet."""
        return self._take(Joined(query, topic, dict(metadata)))

    def unlearn(self, query: str, topic: str, metadata: Metadata) -> list[Effect]:
        """A stream that was learned does not satisfy the query any more."""
        return self._take(Left(query, topic, dict(metadata), 0))

    def _replace(self, query: str, streams: dict[str, Metadata]) -> list[Effect]:
        before = self.sets.get(query)
        self.sets[query] = streams
        if before is None:
            return [QuerySetKnown(query=query, streams=dict(streams))]
        effects: list[Effect] = [
            StreamLeft(query=query, topic=topic, metadata=metadata)
            for topic, metadata in before.items()
            if topic not in streams
        ]
        for topic, metadata in streams.items():
            if topic not in before:
                effects.append(StreamJoined(query=query, topic=topic, metadata=metadata))
            elif before[topic] != metadata:
                effects.append(StreamChanged(query=query, topic=topic, metadata=metadata))
        return effects


def _backups_known(item: Backed) -> Effect:
    return BackupsKnown(local=item.local, remote=item.remote, locally=item.locally, remotely=item.remotely)
