"""What a broker's process does with streams and messages, around its participant."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tocsin.core.coordination.signals import (
    Adopted,
    AwaitDispatch,
    ClearTo,
    ClientsChanged,
    Dispatched,
    Orphaned,
    QueriesChanged,
    QuerySetKnown,
    RoutesChanged,
    Settled,
    StreamChanged,
    StreamJoined,
    StreamLeft,
    StreamRefused,
    StreamsDescribed,
)
from tocsin.core.forwarding import ForwardingTable, Subscription
from tocsin.core.gate import Action, Declare, Gate
from tocsin.core.listing import Listing
from tocsin.model.message import Address, broker_address
from tocsin.model.network import BrokerInfo
from tocsin.model.stream import LISTING, PERMANENT, Diff, Metadata
from tocsin.query import Query
from tocsin.sim.node import Status
from tocsin.sim.world import World
from tocsin.wire.commands import ClientAway, ClientBack, ClientGone, Streams

STREAMS_MAX: Final = 10
HOP_MAX_US: Final = 20_000
APPEND_MAX_US: Final = 15_000
AGAIN_US: Final = 50_000  # while its broker sleeps
FOLLOW_MAX_US: Final = 40_000

Go = Callable[[], None]


class Message:
    """A message of a stream."""

    def __init__(self, topic: str, source: Source, number: int, durable: bool, at_us: int) -> None:
        self.topic = topic
        self.source = source
        self.number = number  # among the messages of its stream of the same kind, from this connection
        self.durable = durable
        self.at_us = at_us
        self.metadata: Metadata = {}  # of its stream, when it went


class Source:
    """A connection that publishes."""

    def __init__(self, client: str, epoch: int, expiry_s: int, gate: Gate[Go]) -> None:
        self.client = client
        self.epoch = epoch
        self.expiry_s = expiry_s
        self.gate = gate
        self.actions: deque[Action[Go]] = deque()
        self.acting = False


class Reader:
    """A connection that asks a query, for its set and for its messages."""

    def __init__(self, address: Address, query: Query, listing: Listing, since: int) -> None:
        self.address = address
        self.query = query
        self.listing = listing
        self.since = since
        self.known_us = 0  # when the coordinator had answered both
        self.slow = False
        self.behind: int | None = None  # the first position that it was not offered
        self.live = True  # it was not lost with its broker


class Broker:
    """One broker's process, from its start to its end."""

    def __init__(self, info: BrokerInfo) -> None:
        self.info = info
        self.table: ForwardingTable[Reader] = ForwardingTable()
        self.sets: dict[str, dict[str, Metadata]] = {}  # of those that readers listen to
        self.readers: list[Reader] = []
        self.keys: dict[str, Metadata] = {}
        self.sources: dict[str, Source] = {}  # by client
        self.tickets = self.said = self.settled = 0
        self.held: deque[tuple[int, Source]] = deque()
        self.tail = self.newest = 0
        self.commits: deque[Message] = deque()  # on their way into the log
        self.awaited: list[int] = []

    def ticket(self) -> int:
        self.tickets += 1
        return self.tickets


class Brokers:
    """All of them, and the message log. ``on_heard`` is called with a reader, a word, a topic and a message or None."""

    def __init__(
        self,
        world: World,
        infos: tuple[BrokerInfo, ...],
        gate: Callable[[int, Callable[[], int]], Gate[Go]],
        listing: Callable[[], Listing],
    ) -> None:
        self.infos = {broker_address(info.id): info for info in infos}
        self.brokers: dict[Address, Broker] = {}
        self.log: list[Message] = []
        self.on_heard: list[Callable[[Reader, str, str, Message | None], None]] = []
        self._arrivals_us: dict[tuple[str, str], int] = {}  # from, to → when the last thing arrives
        self._world = world
        self._gate = gate
        self._listing = listing
        self._chance = world.streams.stream("messages")
        world.observers.on_life(self._life)
        world.own(RoutesChanged, self._change_routes)
        world.own(QuerySetKnown, self._know)
        world.own(StreamJoined, partial(self._turn, "joined"))
        world.own(StreamChanged, partial(self._turn, "changed"))
        world.own(StreamLeft, partial(self._turn, "left"))
        world.own(StreamsDescribed, self._described)
        world.own(StreamRefused, lambda address, effect: None)
        world.own(Orphaned, lambda address, effect: None)
        world.own(Adopted, lambda address, effect: None)
        world.own(AwaitDispatch, self._await)
        world.own(Settled, self._settle)
        world.own(ClearTo, self._clear)

    def _life(self, address: Address, happening: str) -> None:
        if address in self.infos and happening == "started":
            before = self.brokers.get(address)
            for reader in before.readers if before else ():
                reader.live = False
            self.brokers[address] = Broker(self.infos[address])
            self.brokers[address].tail = len(self.log)

    def is_up(self, address: Address) -> bool:
        return address in self.brokers and self._world.node(address).status in (Status.RUNNING, Status.PAUSED)

    # ── readers ─────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, address: Address, query: Query) -> Reader:
        broker = self.brokers[address]
        reader = Reader(address, query, self._listing(), broker.tail)
        broker.readers.append(reader)
        added = []
        if broker.table.inquiries.ask(reader, "q", query, Subscription(qos=1, since=broker.tail)):
            added.append((query.id, query.text))
        if LISTING + query.id not in broker.sets and not self._lists(broker, query.id, but=reader):
            added.append((LISTING + query.id, query.text))
        if added:
            self._world.post(address, QueriesChanged(added=tuple(added), cause=f"{address}:?{query.text}"))
        self._begin(broker, reader)
        return reader

    def _lists(self, broker: Broker, query: str, but: Reader) -> bool:
        return any(reader.query.id == query for reader in broker.readers if reader is not but)

    def _begin(self, broker: Broker, reader: Reader) -> None:
        """Tell a reader the set, once both answers are there: that is when its SUBACK goes out."""
        streams = broker.sets.get(LISTING + reader.query.id)
        if streams is None or reader.query.id in broker.table.inquiries.unknown or reader.known_us:
            return
        reader.known_us = self._world.now_us
        for topic in reader.listing.begin(streams, lambda topic: True):
            self._hear(reader, "joined", topic)

    def slow_down(self, reader: Reader) -> None:
        reader.slow = True

    def hurry(self, reader: Reader) -> None:
        """Read the log for a reader that is slow no more."""
        reader.slow = False
        broker = self.brokers[reader.address]
        if reader.behind is None or not reader.live:
            return
        for message in self.log[reader.behind - 1 : broker.tail]:
            if reader.query.matches(message.metadata):
                self._hear(reader, "message", message.topic, message)
        reader.behind = None
        for word, topic, _ in reader.listing.caught_up():
            self._hear(reader, word, topic)

    def _hear(self, reader: Reader, word: str, topic: str, message: Message | None = None) -> None:
        if reader.live:
            for hook in self.on_heard:
                hook(reader, word, topic, message)

    # ── publishers ──────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, address: Address, client: str, epoch: int, expiry_s: int, *, resumed: bool) -> Source:
        broker = self.brokers[address]
        source = Source(client, epoch, expiry_s, self._gate(STREAMS_MAX, broker.ticket))
        broker.sources[client] = source
        if resumed:
            self._say(address, broker.ticket(), ClientBack(client, expiry_s, epoch))
        return source

    def publish(self, address: Address, message: Message, diff: Diff | None) -> None:
        source = message.source
        go = partial(self._go, address, message)
        actions = source.gate.take(go, topic=message.topic, diff=diff, size=1, commits=message.durable)
        self._do(address, source, actions)

    def describe(self, address: Address, source: Source, topic: str, diff: Diff | None) -> None:
        self._do(address, source, source.gate.describe(topic, diff, None))

    def disconnect(self, address: Address, source: Source, expiry_s: int) -> None:
        def leave() -> None:
            broker = self.brokers[address]
            for topic in source.gate.topics:  # nobody else here publishes on it
                broker.keys.pop(topic, None)
            after, name, epoch = broker.newest, source.client, source.epoch
            gone = ClientAway(name, expiry_s, after, epoch) if expiry_s else ClientGone(name, after, epoch)
            self._say(address, broker.ticket(), gone)

        self.brokers[address].sources.pop(source.client, None)
        self._do(address, source, source.gate.end(leave))

    def _do(self, address: Address, source: Source, actions: list[Action[Go]]) -> None:
        source.actions.extend(actions)
        if source.acting:
            return
        source.acting = True
        while source.actions:
            action = source.actions.popleft()
            if isinstance(action, Declare):
                self._declare(address, source, action)
            else:
                for go in action.items:
                    go()
        source.acting = False

    def _declare(self, address: Address, source: Source, declared: Declare) -> None:
        broker, topic, diff = self.brokers[address], declared.topic, declared.diff
        broker.held.append((declared.ticket, source))
        if topic in source.gate.topics:
            kept = {} if diff is None else {**broker.keys.get(topic, {}), **diff}
            broker.keys[topic] = {k: v for k, v in kept.items() if v is not None and k != PERMANENT}
        name, epoch = (source.client, source.epoch) if declared.publishes else ("", 0)
        changes = ((topic, None if diff is None else dict(diff)),)
        self._say(address, declared.ticket, Streams(name, source.expiry_s, changes, broker.newest, epoch))

    def _say(
        self, address: Address, ticket: int, command: Streams | ClientAway | ClientBack | ClientGone
    ) -> None:
        event = ClientsChanged(ticket=ticket, command=command, cause=f"{address}:{ticket}")
        if self._world.post(address, event):
            self.brokers[address].said = ticket

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def _go(self, address: Address, message: Message) -> None:
        broker = self.brokers[address]
        message.metadata = {
            **broker.keys.get(message.topic, {}),
            "topic": message.topic,
            "client": message.source.client,
            "broker": broker.info.id,
            "cluster": broker.info.cluster,
        }
        if message.durable:
            broker.commits.append(message)
            append = partial(self._append, address, broker)
            self._world.at(self._in_order((address, "log"), APPEND_MAX_US), append)
        else:
            self._forward(address, message, broker.table.resolve(message.topic).origin, broker.info.cluster)

    def _append(self, address: Address, broker: Broker) -> None:
        """The next message of a broker is in the log."""
        if self.brokers[address] is not broker:
            return  # lost with its broker, and never acknowledged
        if not self.is_up(address):
            self._world.at(self._world.now_us + AGAIN_US, partial(self._append, address, broker))
            return
        message = broker.commits.popleft()
        self.log.append(message)
        broker.newest = len(self.log)
        for each in self.infos:
            self._world.at(
                self._in_order(("log", each), FOLLOW_MAX_US), partial(self._follow, each, len(self.log))
            )
        self._do(address, message.source, message.source.gate.settled())

    def _follow(self, address: Address, position: int) -> None:
        if not self.is_up(address):
            self._world.at(self._world.now_us + AGAIN_US, partial(self._follow, address, position))
            return
        broker = self.brokers[address]
        while broker.tail < position:
            broker.tail += 1
            self._dispatch(broker, self.log[broker.tail - 1], broker.tail)
        for awaited in [each for each in broker.awaited if each <= broker.tail]:
            broker.awaited.remove(awaited)
            self._world.post(address, Dispatched(position=awaited, cause=f"{address}:log"))

    def _dispatch(self, broker: Broker, message: Message, position: int) -> None:
        wanted = [reader for reader, _ in broker.table.wanted(message.topic)]
        judged = broker.table.inquiries.judge(message.metadata)
        for reader in dict.fromkeys((*wanted, *judged)):
            if position <= reader.since or reader.behind is not None:
                continue
            if reader.slow:
                reader.behind = position
            else:
                self._hear(reader, "message", message.topic, message)

    def _forward(self, address: Address, message: Message, peers: tuple[Address, ...], cluster: str) -> None:
        for reader in self.brokers[address].table.resolve(message.topic).audience.targets:
            self._hear(reader, "message", message.topic, message)
        for peer in map(broker_address, peers):
            arrive = partial(self._arrive, peer, message, cluster)
            self._world.at(self._in_order((address, peer), HOP_MAX_US), arrive)

    def _arrive(self, address: Address, message: Message, cluster: str) -> None:
        if self.is_up(address):
            onward = self.brokers[address].table.resolve(message.topic).transit
            away = [peer for peer in onward if self.infos[broker_address(peer)].cluster != cluster]
            self._forward(address, message, tuple(away), cluster)

    def _in_order(self, way: tuple[str, str], most_us: int) -> int:
        """When something that sets out now arrives: not before what set out earlier on the same way."""
        earliest_us = max(self._world.now_us, self._arrivals_us.get(way, 0))
        self._arrivals_us[way] = earliest_us + 1 + self._chance.below(most_us)
        return self._arrivals_us[way]

    # ── what participants ask for ───────────────────────────────────────────────────────────────────────────

    def _change_routes(self, address: Address, effect: RoutesChanged) -> None:
        table = self.brokers[address].table
        for route in effect.removed:
            table.remove_route(route)
        for route in effect.added:
            table.add_route(route)

    def _know(self, address: Address, effect: QuerySetKnown) -> None:
        broker = self.brokers[address]
        if effect.query.startswith(LISTING):
            broker.sets[effect.query] = dict(effect.streams)
        else:
            broker.table.inquiries.know(effect.query, effect.streams)
        for reader in broker.readers:
            self._begin(broker, reader)

    def _turn(self, word: str, address: Address, effect: StreamJoined | StreamChanged | StreamLeft) -> None:
        broker, query, topic = self.brokers[address], effect.query, effect.topic
        if not query.startswith(LISTING):
            if word != "changed":
                act = broker.table.inquiries.join if word == "joined" else broker.table.inquiries.leave
                act(query, topic)
            return
        if word == "left":
            broker.sets[query].pop(topic)
        else:
            broker.sets[query][topic] = effect.metadata
        for reader in broker.readers:
            if reader.known_us and LISTING + reader.query.id == query:
                self._tell(reader, word, topic, effect.metadata)

    def _tell(self, reader: Reader, word: str, topic: str, metadata: Metadata) -> None:
        told: str | None = word
        if word == "joined":
            told = reader.listing.joined(topic, True)
        elif word == "left":
            told = "left" if reader.listing.left(topic, metadata, behind=reader.behind is not None) else None
        if told is not None:
            self._hear(reader, told, topic)

    def _described(self, address: Address, effect: StreamsDescribed) -> None:
        broker = self.brokers[address]
        kept: Mapping[str, Metadata] = {} if effect.whole else broker.keys
        here = set().union(*(source.gate.topics for source in broker.sources.values()))
        broker.keys = {topic: keys for topic, keys in {**kept, **effect.streams}.items() if topic in here}

    def _await(self, address: Address, effect: AwaitDispatch) -> None:
        broker = self.brokers[address]
        broker.awaited.append(effect.position)
        self._world.at(self._world.now_us + 1, partial(self._follow, address, broker.tail))

    def _settle(self, address: Address, effect: Settled) -> None:
        self.brokers[address].settled = effect.ticket

    def _clear(self, address: Address, effect: ClearTo) -> None:
        broker = self.brokers[address]
        while broker.held and broker.held[0][0] <= effect.ticket:
            source = broker.held.popleft()[1]
            self._do(address, source, source.gate.clear(effect.ticket))
