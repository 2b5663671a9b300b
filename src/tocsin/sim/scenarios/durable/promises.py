"""What durable messaging promises."""

from __future__ import annotations

from typing import cast

from tocsin.core.machine import PutKey, Say
from tocsin.core.stored_session import SERVED_S, decode_session, session_key
from tocsin.model.message import Address
from tocsin.model.publication import decode_publication
from tocsin.model.subjects import is_critical
from tocsin.ports import Entry
from tocsin.sim.chance import MILLION
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenarios.durable.clients import Client, Publisher, Subscriber
from tocsin.sim.scenarios.durable.wire import LOG, SESSIONS, Key
from tocsin.sim.world import World
from tocsin.wire.topics import matches


class Written(Invariant):
    """What the log holds, and that a message at QoS 2 is in it once."""

    name = "a message at QoS 2 is in the log once"

    def __init__(self) -> None:
        self.entries: list[tuple[int, Key, str]] = []  # position, message, topic
        self.topics: dict[Key, str] = {}
        self.copies: dict[Key, int] = {}
        self.first: dict[Key, int] = {}  # message → its first position
        self.critical: dict[Key, None] = {}

    def attach(self, world: World) -> None:
        world.observers.on_entry(LOG.name, self._look)

    def _look(self, entry: Entry) -> None:
        publication = decode_publication(entry.payload)
        key = (publication.client, int(publication.payload))
        if publication.qos == 2 and key in self.copies:
            self.broken(f"message {key} is at {self.first[key]} and at {entry.position}")
        self.copies[key] = self.copies.get(key, 0) + 1
        self.first.setdefault(key, entry.position)
        self.topics[key] = publication.topic
        if is_critical(entry.subject):
            self.critical[key] = None
        self.entries.append((entry.position, key, publication.topic))


class AcknowledgedIsDurable(Invariant):
    """A publisher that was told so can forget its message."""

    name = "what is acknowledged is in the log"

    def __init__(self, written: Written) -> None:
        self._written = written

    def attach(self, world: World) -> None:
        world.observers.on_say("acknowledged", self._look)

    def _look(self, publisher: Address, say: Say) -> None:
        if say.facts["key"] not in self._written.copies:
            self.broken(f"{publisher} was told so of message {say.facts['key']}; the log does not have it")


class Taken(Invariant):
    """What subscribers take: all of it, in order, and no more often than they should.

    The order is that of critical messages, and that of the others.
    """

    name = "subscribers get everything, in order, at QoS 2 once"
    subscriber: type[Client] = Subscriber  # whose messages these are

    def __init__(self, written: Written) -> None:
        self._written = written
        self._since: dict[Address, dict[str, int]] = {}  # subscriber → filter → positions beyond are its due
        self._seen: dict[tuple[Address, Key], None] = {}
        self._once: dict[Address, dict[Key, None]] = {}  # the same of its session
        # Subscriber, critical or not → the first position of the newest such message that was new to it.
        self._last: dict[tuple[Address, bool], int] = {}
        self._on_connection: dict[Address, tuple[object, dict[Key, int]]] = {}

    def attach(self, world: World) -> None:
        world.observers.on_say("took", self._look)
        log = world.store.logs[LOG.name]

        def subscribed(who: Address, say: Say) -> None:
            if "topic_filter" in say.facts:
                self._since.setdefault(who, {})[str(say.facts["topic_filter"])] = log.last_position

        world.observers.on_say("subscribed", subscribed)

        def begin_anew(who: Address, say: Say) -> None:
            self._since.pop(who, None)
            self._once[who] = {}

        world.observers.on_say("session lost", begin_anew)

    def _look(self, subscriber: Address, say: Say) -> None:
        if "key" not in say.facts:
            return  # no message of the log
        key, qos = cast(Key, say.facts["key"]), say.facts["qos"]
        once = self._once.setdefault(subscriber, {})
        if qos == 2 and key in once:
            self.broken(f"{subscriber} took message {key} at QoS 2 twice")
        once[key] = None
        connection, counts = self._on_connection.get(subscriber, (None, {}))
        if connection != say.facts["connection"]:
            counts = {}
            self._on_connection[subscriber] = (say.facts["connection"], counts)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] > self._written.copies.get(key, 0):
            self.broken(f"{subscriber} took message {key} again on one connection")
        if (subscriber, key) not in self._seen:
            self._seen[subscriber, key] = None
            self._keep_order(subscriber, key)

    def _keep_order(self, subscriber: Address, key: Key) -> None:
        position, track = self._written.first[key], (subscriber, key in self._written.critical)
        if not self.is_due(subscriber, position, self._written.topics[key]):
            return  # from before it subscribed, or perhaps so: a repeat of it may have come later
        if position < self._last.get(track, 0):
            self.broken(f"{subscriber} took message {key} of position {position} after {self._last[track]}")
        self._last[track] = position

    def has(self, subscriber: Address, key: Key) -> bool:
        return (subscriber, key) in self._seen

    def is_due(self, subscriber: Address, position: int, topic: str) -> bool:
        filters = self._since.get(subscriber, {})
        return any(position > since and matches(each, topic) for each, since in filters.items())

    def finish(self, world: World) -> None:
        for address in world.addresses:
            if not isinstance(world.machine(address), self.subscriber):
                continue
            if address not in self._since:
                self.broken(f"{address} could not subscribe")
            for position, key, topic in self._written.entries:
                if self.is_due(address, position, topic) and (address, key) not in self._seen:
                    self.broken(f"{address} never got message {key} of position {position}")


class CriticalFirst(Invariant):
    """Critical messages overtake.

    Who comes back gets all of them that the broker knows before any other; and never comes another one before a
    critical one that is older.
    """

    name = "critical messages come first"

    def __init__(self, written: Written, taken: Taken) -> None:
        self._written = written
        self._taken = taken
        self._began: dict[Address, tuple[object, int]] = {}  # connection, and the broker's tail at that time

    def attach(self, world: World) -> None:
        world.observers.on_say("attends", self._on_beginning)
        world.observers.on_say("took", self._look)

    def _on_beginning(self, broker: Address, say: Say) -> None:
        facts = say.facts
        self._began[cast(Address, facts["client"])] = (facts["connection"], cast(int, facts["tail"]))

    def _look(self, subscriber: Address, say: Say) -> None:
        key = cast(Key, say.facts["key"])
        if key in self._written.critical:
            return
        connection, tail = self._began[subscriber]
        if connection != say.facts["connection"]:
            return  # from an earlier one
        before = max(tail, self._written.first[key])
        for late in self._written.critical:
            position, topic = self._written.first[late], self._written.topics[late]
            due = position <= before and self._taken.is_due(subscriber, position, topic)
            if due and not self._taken.has(subscriber, late):
                self.broken(f"{subscriber} took message {key}, and not yet {late}, which is critical")


class SessionsLast(Invariant):
    """Whoever had a session has it when it comes back, if it was not away for longer than its expiry.

    That is by the store's clock, from the close of its last connection. A session that is served is kept for a day
    longer than its expiry, from when it was written last: if the store's clock jumps that far, it may be gone.
    """

    name = "sessions last"

    def __init__(self) -> None:
        self._served: dict[Address, tuple[object, Address]] = {}  # client → its last connection, and where
        self._closed_us: dict[Address, int] = {}  # … and when that was closed, if it was
        self._sessions: dict[Address, object] = {}  # client → its session
        self._kept_us: dict[
            Address, int
        ] = {}  # how long its cell was not written, when a confirmed one was replaced
        self._confirmed: dict[object, None] = {}  # sessions that their clients know of
        self._away_us: dict[
            Address, int
        ] = {}  # client → how long it had been away when a confirmed one was replaced
        self._written_us: dict[
            Address, int
        ] = {}  # when its cell was written last, but for the newest session
        self._world: World

    def attach(self, world: World) -> None:
        self._world = world
        observers = world.observers
        observers.on_say("attends", self._on_beginning)
        observers.on_say("connection closed", self._on_close)
        observers.on_life(self._on_life)
        observers.on_write(SESSIONS.name, self._on_write)
        observers.on_say("session lost", self._look)

    def _on_beginning(self, broker: Address, say: Say) -> None:
        client, now_us = cast(Address, say.facts["client"]), self._world.store.clock_us
        before = self._sessions.get(client)
        if say.facts["uid"] != before and before in self._confirmed:
            self._away_us[client] = now_us - self._closed_us.get(client, now_us)
            self._kept_us[client] = now_us - self._written_us.get(client, 0)
        self._sessions[client] = say.facts["uid"]
        self._served[client] = (say.facts["connection"], broker)
        self._closed_us.pop(client, None)

    def _on_close(self, broker: Address, say: Say) -> None:
        client = cast(Address, say.facts["client"])
        if self._served.get(client) == (say.facts["connection"], broker):
            self._close(client)

    def _on_life(self, node: Address, happening: str) -> None:
        if happening in ("crashed", "stopped"):
            for client, (_, broker) in self._served.items():
                if broker == node:
                    self._close(client)

    def _close(self, client: Address) -> None:
        self._closed_us.setdefault(client, self._world.store.clock_us)

    def _on_write(self, node: Address, put: PutKey, revision: int) -> None:
        session = decode_session(put.value)
        if session.confirmed:
            self._confirmed[session.uid] = None
        if session.uid == self._sessions.get(session.client):
            self._written_us[session.client] = self._world.store.clock_us

    def outdated(self, client: Address, expiry_s: int) -> bool:
        """Whether the store has kept a session for as long as it keeps any."""
        kept_us = (expiry_s + SERVED_S) * MILLION
        return self._world.store.clock_us - self._written_us.get(client, 0) >= kept_us

    def expired(self, client: Address, expiry_s: int) -> bool:
        """Whether a client is away for longer than its session lasts."""
        closed_us = self._closed_us.get(client)
        return closed_us is not None and self._world.store.clock_us - closed_us >= expiry_s * MILLION

    def _look(self, client: Address, say: Say) -> None:
        expiry_s, away_us = cast(int, say.facts["expiry_s"]), self._away_us.get(client)
        if away_us is None:
            return  # it had nothing but an empty session, of which it had said nothing
        outdated = self._kept_us[client] >= (expiry_s + SERVED_S) * MILLION
        if away_us < expiry_s * MILLION and not outdated:
            after = f"{away_us} µs after its connection was closed"
            self.broken(f"{client} came back {after}, and its session of {expiry_s} s was gone")


class OnlyTheUsurpedStop(Invariant):
    """A broker gives a client up when another connection has it, or had, and not because an answer was lost."""

    name = "a client is given up only to another connection"

    def attach(self, world: World) -> None:
        newest: dict[str, tuple[str, int]] = {}  # client → the session that was written last, and its epoch

        def wrote(node: Address, put: PutKey, revision: int) -> None:
            session = decode_session(put.value)
            newest[session.client] = (session.uid, session.epoch)

        def look(broker: Address, say: Say) -> None:
            client, uid, epoch = (say.facts[each] for each in ("client", "uid", "epoch"))
            had, last = newest[cast(str, client)]
            if had == uid and last <= cast(int, epoch):
                self.broken(f"{broker} gave {client} up, and nobody had taken it")

        world.observers.on_write(SESSIONS.name, wrote)
        world.observers.on_say("usurped", look)


class Settled(Invariant):
    """In the end nothing is left to do."""

    name = "everything is settled in the end"

    def __init__(self, sessions: SessionsLast) -> None:
        self._sessions = sessions

    def finish(self, world: World) -> None:
        for address in world.addresses:
            client = world.machine(address)
            if isinstance(client, Publisher) and not client.done:
                self.broken(f"{address} waits for an answer")
            if isinstance(client, Client):
                self._look(world, address)

    def _look(self, world: World, address: Address) -> None:
        cell = world.store.tables[SESSIONS.name].get(session_key(address), world.store.clock_us)
        if cell is None:
            client = cast(Client, world.machine(address))
            over = self._sessions.outdated(address, client.expiry_s)
            if not over and not self._sessions.expired(address, client.expiry_s):
                self.broken(f"{address} has no session")
            return
        session = decode_session(cell.value)
        for progress in (session.progress, session.critical_messages):
            if progress is not None and (progress.unsettled or progress.releasing):
                self.broken(f"deliveries to {address} are not settled: {progress}")
        if session.inbound:
            self.broken(f"messages of {address} are not released: {session.inbound}")


def promises() -> list[Invariant]:
    written = Written()
    taken, sessions = Taken(written), SessionsLast()
    return [
        written,
        AcknowledgedIsDurable(written),
        taken,
        CriticalFirst(written, taken),
        sessions,
        OnlyTheUsurpedStop(),
        Settled(sessions),
    ]
