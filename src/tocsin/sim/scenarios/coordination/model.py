"""The meaning of the command log, as simple as it can be: no index, no counts, everything worked out from scratch.

The state that ships (``core.coordination.state.state``) is held against this, here and in its own tests.
"""

from __future__ import annotations

from functools import lru_cache

from tocsin.core.forwarding.origins import LINGER_US
from tocsin.core.forwarding.routes import RoutePlan
from tocsin.model.network import BrokerInfo, Route
from tocsin.model.stream import LISTING, PERMANENT, SYSTEM_KEYS, Value
from tocsin.query import Query, parse
from tocsin.wire.internal.commands import (
    Batch,
    BrokerCommand,
    ClientAway,
    ClientBack,
    ClientGone,
    Elected,
    Interests,
    Joined,
    Left,
    Limits,
    Lost,
    Planned,
    Queries,
    Said,
    Shunned,
    Streams,
)

SECOND_US = 1_000_000


class Broker:
    def __init__(self, info: BrokerInfo, incarnation: int) -> None:
        self.info = info
        self.incarnation = incarnation
        self.applied = 0
        self.filters: set[str] = set()
        self.queries: dict[str, str] = {}


class Client:
    def __init__(self, info: BrokerInfo, expiry_s: int, epoch: int) -> None:
        self.info = info
        self.expiry_s = expiry_s
        self.epoch = epoch
        self.until_us: int | None = None


class Stream:
    def __init__(self) -> None:
        self.keys: dict[str, Value] = {}
        self.publishers: list[str] = []  # the latest last
        self.origin: dict[str, Value] = {}
        self.permanent = False
        self.absent_us: int | None = None


class Model:
    def __init__(self) -> None:
        self.now_us = 0
        self.limits = Limits()
        self.brokers: dict[str, Broker] = {}
        self.incarnations: dict[str, int] = {}
        self.clients: dict[str, Client] = {}
        self.streams: dict[str, Stream] = {}
        self.plan: dict[str, tuple[str | None, str | None]] = {}  # broker → its local and its remote backup
        self.shunned: tuple[str, ...] = ()
        self.vacancies: dict[str, str | None] = {}  # broker that is gone → its backup that has taken over
        self.published_us: dict[
            tuple[str, str], int
        ] = {}  # topic and broker → when it was published there last

    # ── what it says ────────────────────────────────────────────────────────────────────────────────────────

    def present(self) -> dict[str, dict[str, Value]]:
        """Every stream that is present, with its metadata."""
        return {
            topic: {**stream.keys, "topic": topic, **stream.origin}
            for topic, stream in self.streams.items()
            if stream.publishers or stream.permanent
        }

    def query_set(self, text: str) -> dict[str, dict[str, Value]]:
        query = _parsed(text)
        return {topic: metadata for topic, metadata in self.present().items() if query.matches(metadata)}

    def told(self, query: str, text: str) -> dict[str, dict[str, Value]]:
        """The streams that a broker is told for a query: topics alone for a query, with their metadata for a
        listing."""
        found = self.query_set(text)
        return found if query.startswith(LISTING) else {topic: {} for topic in found}

    def wants(self, broker: str) -> set[str]:
        known = self.brokers[broker]
        asked = [text for query, text in known.queries.items() if not query.startswith(LISTING)]
        return known.filters.union(*map(self.query_set, asked))

    def described_at(self, broker: str) -> dict[str, dict[str, Value]]:
        """The metadata of the streams that clients of a broker publish on."""
        return {
            topic: stream.keys
            for topic, stream in self.streams.items()
            if stream.keys and any(self.clients[each].info.id == broker for each in stream.publishers)
        }

    def routes(self, *, lingering: bool) -> dict[str, frozenset[Route]]:
        """The routes that all brokers need; or those that they may have at most, as some linger."""
        plan = RoutePlan()
        plan.shun(self.shunned)
        for broker, known in sorted(self.brokers.items()):
            plan.join(known.info, self.wants(broker))
        since_us = self.now_us - 2 * LINGER_US if lingering else self.now_us
        for (topic, broker), at_us in self.published_us.items():
            if at_us >= since_us:
                plan.publish(topic, broker)
        return {broker: plan.routes(broker) for broker in self.brokers}

    def _note_published(self) -> None:
        for topic, stream in self.streams.items():
            for client in stream.publishers:
                self.published_us[topic, self.clients[client].info.id] = self.now_us

    # ── what it is told ─────────────────────────────────────────────────────────────────────────────────────

    def apply(self, batch: Batch) -> None:
        self.now_us = max(self.now_us, batch.at_us)
        self._note_published()
        self._pass_time()
        for command in batch.commands:
            match command:
                case Said():
                    for number, each in enumerate(command.commands, command.first):
                        self._said(command.broker, command.incarnation, number, each)
                case Elected(limits=limits):
                    self.limits = limits
                case Lost(broker=broker, incarnation=incarnation):
                    if broker in self.brokers and self.brokers[broker].incarnation == incarnation:
                        self._gone(broker)
                        self._take_places(broker)
                case Shunned(hubs=hubs):
                    self.shunned = hubs
                case Planned(backups=backups):
                    kept = {name: plan for name, plan in self.plan.items() if name in self.vacancies}
                    made = {name: (local, remote) for name, local, remote in backups}
                    self.plan = {
                        name: plan for name, plan in made.items() if name not in self.vacancies
                    } | kept

    def _take_places(self, lost: str) -> None:
        for broker in [lost, *(each for each, by in self.vacancies.items() if by == lost)]:
            there = [each for each in self.plan.get(broker, ()) if each in self.brokers]
            self.vacancies[broker] = there[0] if there else None

    def _pass_time(self) -> None:
        ends = [(each.until_us, name) for name, each in self.clients.items() if each.until_us is not None]
        for until_us, name in sorted(ends):
            if until_us <= self.now_us:
                self._end(name)
        for topic, stream in list(self.streams.items()):
            since_us = stream.absent_us
            if since_us is not None and since_us + self.limits.keep_s * SECOND_US <= self.now_us:
                del self.streams[topic]

    def _said(self, name: str, incarnation: int, number: int, command: BrokerCommand) -> None:
        if isinstance(command, Joined):
            if number != 1 or incarnation <= self.incarnations.get(name, -1):
                return
            if name in self.brokers:
                self._gone(name)
            self.brokers[name] = Broker(command.info, incarnation)
            self.incarnations[name] = incarnation
            self.vacancies.pop(name, None)
        broker = self.brokers.get(name)
        if broker is None or (broker.incarnation, broker.applied) != (incarnation, number - 1):
            return
        broker.applied = number
        match command:
            case Interests(added=added, removed=removed):
                broker.filters = (broker.filters | set(added)) - set(removed)
            case Queries(added=asked, removed=dropped):
                broker.queries.update(asked)
                broker.queries = {q: text for q, text in broker.queries.items() if q not in dropped}
            case Streams():
                self._declare(broker.info, command)
            case ClientBack(client=client, expiry_s=expiry_s, epoch=epoch):
                if client in self.clients and epoch >= self.clients[client].epoch:
                    self._connect(client, broker.info, expiry_s, epoch)
            case ClientAway(client=client, expiry_s=expiry_s, epoch=epoch):
                if self._is_at(client, name, epoch):
                    self.clients[client].expiry_s = expiry_s
                    self._leave(client)
            case ClientGone(client=client, epoch=epoch):
                if self._is_at(client, name, epoch):
                    self._end(client)
            case Left():
                self._gone(name)
                self._take_places(name)
        self._note_published()

    def _gone(self, name: str) -> None:
        del self.brokers[name]
        for client in sorted(self.clients):
            if self.clients[client].info.id == name and self.clients[client].until_us is None:
                self._leave(client)

    # ── clients and streams ─────────────────────────────────────────────────────────────────────────────────

    def _is_at(self, client: str, broker: str, epoch: int) -> bool:
        known = self.clients.get(client)
        if known is None or epoch < known.epoch:
            return False
        return known.info.id == broker or epoch > known.epoch

    def _connect(self, client: str, info: BrokerInfo, expiry_s: int, epoch: int) -> None:
        self.clients[client] = Client(info, expiry_s, epoch)
        for stream in self.streams.values():
            if client in stream.publishers and stream.origin["client"] == client:
                stream.origin = self._origin(client)

    def _leave(self, client: str) -> None:
        known = self.clients[client]
        if known.expiry_s:
            known.until_us = self.now_us + known.expiry_s * SECOND_US
        else:
            self._end(client)

    def _end(self, client: str) -> None:
        for topic, stream in list(self.streams.items()):
            if client in stream.publishers:
                stream.publishers.remove(client)
                if stream.publishers and stream.origin["client"] == client:
                    stream.origin = self._origin(stream.publishers[-1])
                self._look(topic, stream)
        del self.clients[client]

    def _origin(self, client: str) -> dict[str, Value]:
        info = self.clients[client].info
        return {"client": client, "broker": info.id, "cluster": info.cluster}

    def _declare(self, info: BrokerInfo, command: Streams) -> None:
        client = command.client
        if client and client in self.clients and command.epoch < self.clients[client].epoch:
            client = ""
            self.published_us.update(((topic, info.id), self.now_us) for topic, _ in command.changes)
        if client and client in self.clients and command.epoch > self.clients[client].epoch:
            self._end(client)
        if client:
            self._connect(client, info, command.expiry_s, command.epoch)
        for topic, diff in command.changes:
            stream = self.streams.setdefault(topic, Stream())
            if diff is None:
                stream.keys, stream.permanent = {}, False
            for key, value in (diff or {}).items():
                if key == PERMANENT:
                    stream.permanent = bool(value)
                elif value is None:
                    stream.keys.pop(key, None)
                elif key not in SYSTEM_KEYS:
                    stream.keys[key] = value
            if client:
                stream.publishers = [each for each in stream.publishers if each != client] + [client]
                stream.origin = self._origin(client)
            self._look(topic, stream)

    def _look(self, topic: str, stream: Stream) -> None:
        if stream.publishers or stream.permanent:
            stream.absent_us = None
        elif not stream.keys:
            del self.streams[topic]
        elif stream.absent_us is None:
            stream.absent_us = self.now_us


@lru_cache(1_024)
def _parsed(text: str) -> Query:
    return parse(text)
