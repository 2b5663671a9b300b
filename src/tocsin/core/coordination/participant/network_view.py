"""The network as a broker is told it: its notices in order, the routes and peers that they name, and the streams of its
queries.

**Notices** come from the log, and the ``Inbox`` puts them in their order: none twice, none missing, each in its turn.
Numbers and epochs only grow. A notice may come in several parts, and counts when the last is there. If one is missing,
nothing counts until a notice comes that is fresh, for that tells everything. A notice that tells of a stream's end
waits until the message log was delivered as far as that end, and those behind it wait with it: all of them in order. If
that takes too long it counts before: then messages are **unread** that come before what was told.

``NetworkView.apply`` takes the items of one notice and says what changed, as effects for the shell. A notice that is
fresh tells everything; only what differs from what was known is passed on, so that a subscriber hears of each stream
joined, left, joined … in turn, whatever was missed in between.

Cost: a notice costs what it tells, and the peers; not the routes and streams that are there already.

**Streams are also known from their messages**, because the coordinator's answers to queries may be stale. A leader that
has given a broker up lets publishers of new streams go on without it. When the broker is back, it may read their
messages before it hears that the streams joined. Each message of the log says what was said of its stream, so that the
broker can tell by itself: what satisfies a query, and is not among its streams, has joined. A stream may also have left
while the broker was away, and have messages in the log that the broker has not read yet. When it is told the streams as
they are now, it learns of that one from its messages.

``MessageEvidence`` finds those queries. A stream is judged once for as long as the same is said of it, and the answers
stay as they are (``forget``): a message more of a stream costs one comparison, however many queries there are.

Invariant: no more than TOPICS_MAX streams are remembered as judged.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from tocsin.core.coordination.participant.signals import (
    BackupsKnown,
    DemandKnown,
    DestinationsChanged,
    DetoursChanged,
    Promoted,
    QuerySetKnown,
    RoutesChanged,
    StandDown,
    StandIn,
    StandInsChanged,
    StreamChanged,
    StreamJoined,
    StreamLeft,
    StreamsDescribed,
)
from tocsin.core.machine import Effect
from tocsin.core.tiers.slots import Slots, gate_of, is_gate
from tocsin.model.network import BrokerInfo, Route
from tocsin.model.stream import Metadata
from tocsin.query import Query, parse
from tocsin.wire.internal.notices import (
    AnyItem,
    Backed,
    Bypass,
    Carriers,
    Changed,
    Described,
    Item,
    Joined,
    Left,
    Moved,
    Notice,
    Promote,
    QuerySet,
    Routes,
    TakeOver,
    Wanted,
)

TOPICS_MAX: Final = 4_096  # streams that are not judged again; the oldest goes
HELD_MAX: Final = 1_000  # notices that wait for the message log; beyond it they do not


class Complete(NamedTuple):
    """A notice that is all there."""

    cause: str
    number: int
    items: list[AnyItem]
    fresh: bool
    ask: bool
    after: int  # position of the message log that comes before it
    applied: int = 0  # it tells what follows from the broker's commands up to this number


class Inbox:
    """Collects the notices of one incarnation in their order."""

    def __init__(self) -> None:
        self.number = 0  # of the last that came
        self.gap = False  # some are missing, and only a whole notice helps
        self._epoch = 0
        self._parts: list[Notice] = []  # the parts of an incomplete notice
        self._held: deque[Complete] = deque()
        self._dispatched = 0  # position of the message log that was delivered here
        self._hurried = 0  # number of the notice that waits for it no longer
        self._unread = 0  # position that comes before a notice that has counted

    def begin(self) -> None:
        """A new incarnation: numbers begin again."""
        self.number, self.gap = 0, False
        self._parts, self._hurried = [], 0
        self._held.clear()

    def is_new(self, notice: Notice) -> bool:
        return notice.number > self.number and notice.epoch >= self._epoch

    def take(self, cause: str, notice: Notice) -> bool:
        """Take a new one; False if something is missing before it."""
        self._epoch = notice.epoch
        if not self._follows_on(notice):
            self.miss()
            return False
        if notice.fresh:
            self._parts = []
        self.gap = False
        self.number = notice.number
        self._parts.append(notice)
        if not notice.more:
            self._held.append(_complete(cause, self._parts))
            self._parts = []
        return True

    def miss(self) -> None:
        """Something is missing."""
        self.gap, self._parts = True, []

    def _follows_on(self, notice: Notice) -> bool:
        return notice.fresh or (notice.number == self.number + 1 and not self.gap)

    def dispatched(self, position: int) -> None:
        self._dispatched = max(self._dispatched, position)

    def next(self) -> Complete | int | None:
        """The next notice, or the position of the message log that it waits for; None if there is none."""
        if not self._held:
            return None
        first = self._held[0]
        waits = first.after > self._dispatched and first.number != self._hurried
        if waits and len(self._held) <= HELD_MAX:
            return first.after
        self._unread = max(self._unread, first.after)
        return self._held.popleft()

    @property
    def unread(self) -> int:
        """The position up to which the message log is still to be delivered that comes before what counts; 0: none."""
        return self._unread if self._unread > self._dispatched else 0

    def give_up(self) -> None:
        """The message log does not come: the next notice does not wait for it."""
        if self._held:
            self._hurried = self._held[0].number


def _complete(cause: str, parts: list[Notice]) -> Complete:
    items = [item for part in parts for item in part.items]
    after = max((item.after for item in items if isinstance(item, Left)), default=0)
    last = parts[-1]
    return Complete(cause, last.number, items, parts[0].fresh, last.ask, after, last.applied)


class NetworkView:
    """The network as one broker knows it from its notices."""

    def __init__(self, outward: str | None = None) -> None:
        """``outward``: the cluster of a broker that others cannot dial; so it has links to all that may send to it."""
        self._outward = outward
        self.routes: dict[Route, None] = {}  # what the forwarding table holds, oldest first
        self.peers: dict[str, BrokerInfo] = {}  # of those routes, of detours, and of brokers that it watches
        self.quiet: frozenset[str] = frozenset()  # of them, those that it only watches
        self.bypass = Bypass()
        self.tiers: dict[str, Slots] = {}  # by the names that routes have for them
        self._members: dict[str, BrokerInfo] = {}  # of all tiers
        self._routes_to: Counter[str] = Counter()  # peer or tier → how many routes lead there; never 0
        # Query → topic → metadata, of each query that was answered.
        self.sets: dict[str, dict[str, Metadata]] = {}
        self.demands: dict[str, bool] = {}  # the same of questions who wants a filter: whether others do
        self._describes = False  # something was ever said of streams that are published here
        self.vacancies: dict[str, Moved] = {}  # lost brokers, and their stand-ins
        self.replaced: dict[str, BrokerInfo] = {}  # brokers whose names standbys have, with those
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

    @property
    def counts_on_it(self) -> bool:
        """Whether others count on this broker: it backs one, or stands in for one."""
        return bool(self._backed.locally or self._backed.remotely or self._stands_in)

    def found_at(self, broker: str) -> BrokerInfo | None:
        """The broker that serves a lost broker's clients: its stand-in, or the standby that has its name by now. None
        if it is there itself, or nobody does."""
        moved = self.vacancies.get(broker)
        return self.replaced.get(broker) if moved is None else moved.to

    def forget(self, query: str) -> None:
        """Nobody here asks this query any more."""
        self.sets.pop(query, None)
        self.demands.pop(query, None)

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
        tiers = {} if fresh else dict(self.tiers)
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
                case Wanted(query=query, wanted=wanted) if query in queries:
                    if self.demands.get(query) is not wanted:
                        self.demands[query] = wanted
                        effects.append(DemandKnown(query=query, wanted=wanted))
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
                case Carriers(tier=tier, moves=moves, apart=apart):
                    tiers[gate_of(tier)] = tiers.get(gate_of(tier), Slots()).after(moves.each(), apart)
                    if item.gone:
                        del tiers[gate_of(tier)]
                    infos.update((peer.id, peer) for peer in item.peers)
        if described or (fresh and self._describes):
            self._describes = True
            effects.append(StreamsDescribed(streams=described, whole=fresh))
        lost = set(self.vacancies)
        effects += self._take_places(places, stands_in, fresh)
        before, self.bypass = self.bypass, bypass
        retiered = self.tiers != tiers
        self.tiers = tiers
        back = not lost <= self.vacancies.keys()
        routed = self._take_routes(added, removed, infos, back=back, retiered=retiered)
        if before.around != bypass.around:
            routed.append(DetoursChanged(around=dict(bypass.around)))
        return [*routed, *effects]

    def _take_places(
        self, places: Mapping[str, Moved], stands_in: Mapping[str, int], fresh: bool
    ) -> list[Effect]:
        before = dict(self.vacancies)
        for broker in [each for each in self.vacancies if fresh and each not in places]:
            del self.vacancies[broker]
        if fresh:
            self.replaced = {}
        for broker, moved in places.items():
            self.vacancies.pop(broker, None)
            self.replaced.pop(broker, None)
            if moved.gone:
                self.vacancies[broker] = moved
            elif moved.to is not None:
                self.replaced[broker] = moved.to
        effects: list[Effect] = []
        if before != self.vacancies:
            effects.append(StandInsChanged(lost={each: moved.to for each, moved in self.vacancies.items()}))
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
        retiered: bool,
    ) -> list[Effect]:
        """Routes are looked at again if a broker is ``back``, which was lost, or if tiers are others (``retiered``)."""
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
        known = {**self._members, **self.peers, **infos}
        members = frozenset[str]().union(*(slots.members for slots in self.tiers.values()))
        self._members = {each: known[each] for each in sorted(members) if each in known}
        carrying = {peer for peer in self._routes_to if not is_gate(peer)}
        carrying |= {peer.id for peer in self.bypass.peers}
        for gate, slots in self.tiers.items():
            if gate in self._routes_to:
                carrying |= slots.members & self._members.keys()
        quiet = frozenset(peer.id for peer in self._backed.watched)
        if self._outward is not None:
            quiet |= {each for each, info in self._members.items() if info.cluster != self._outward}
        quiet -= carrying
        peers = {peer: known[peer] for peer in sorted(carrying | quiet)}
        if not came and not went and (peers, quiet) == (self.peers, self.quiet) and not back and not retiered:
            return []
        self.peers, self.quiet = peers, quiet
        changed = RoutesChanged(
            added=tuple(came),
            removed=tuple(went),
            peers=tuple(peers.values()),
            quiet=quiet,
            tiers=dict(self.tiers) if retiered else None,
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


class MessageEvidence:
    """Finds the queries that a stream satisfies, by what its messages say of it."""

    def __init__(self) -> None:
        self._judged: dict[str, Metadata] = {}  # topic → what was said of it
        self._queries: dict[str, Query] = {}  # by id; as they were needed

    def find(
        self,
        topic: str,
        metadata: Metadata,
        sets: Mapping[str, Collection[str]],
        texts: Mapping[str, str],
    ) -> list[str]:
        """The queries that a stream satisfies, and among whose streams (``sets``) it is not; ``texts`` by id."""
        if self._judged.get(topic) == metadata:
            return []
        self._judged.pop(topic, None)
        self._judged[topic] = metadata
        if len(self._judged) > TOPICS_MAX:
            del self._judged[next(iter(self._judged))]
        return [
            query
            for query, streams in sets.items()
            if topic not in streams and self._query(query, texts[query]).matches(metadata)
        ]

    def refuted(self, metadata: Metadata, learned: Collection[str], texts: Mapping[str, str]) -> list[str]:
        """Those of the queries for which a stream was learned that it does not satisfy (any more)."""
        return [
            query
            for query in learned
            if query in texts and not self._query(query, texts[query]).matches(metadata)
        ]

    def _query(self, query: str, text: str) -> Query:
        if query not in self._queries:
            self._queries[query] = parse(text)
        return self._queries[query]

    def forget(self) -> None:
        """The answers are others now, or are not in doubt any more."""
        self._judged.clear()
        self._queries.clear()
