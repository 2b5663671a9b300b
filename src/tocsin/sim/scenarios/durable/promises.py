"""The promises of durable messaging, checked by the messages that clients take and the log holds."""

from __future__ import annotations

from typing import cast

from tocsin.core.delivery.stored_session import StoredSession, decode_session, session_key
from tocsin.core.machine import Say
from tocsin.model.message import Address
from tocsin.model.publication import decode_publication
from tocsin.model.subjects import is_critical
from tocsin.ports import Entry
from tocsin.sim.invariants import Invariant
from tocsin.sim.process.packets import Key
from tocsin.sim.process.restless import Client, Subscriber
from tocsin.sim.process.stage import LOG, SESSIONS
from tocsin.sim.world import World
from tocsin.wire.topics import matches


def client_at(world: World, address: Address) -> object:
    """The machine at an address; for a node that speaks MQTT, the client inside it."""
    machine = world.machine(address)
    return getattr(machine, "client", machine)


class Written(Invariant):
    """Notes the log's messages. A message at QoS 2 is in the log once."""

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
    """Subscribers take everything, in order, and no more often than they should.

    The order is that of critical messages, and that of the others. A provisional subscription at a broker that was
    cut off is stored in the end; messages are due from then on.
    """

    name = "subscribers get everything, in order, at QoS 2 once"
    subscriber: type[Client] = Subscriber  # whose messages these are

    def __init__(self, written: Written) -> None:
        self._written = written
        self._since: dict[Address, dict[str, int]] = {}  # subscriber → filter → positions beyond are its due
        self._for_now: dict[Address, dict[str, None]] = {}  # subscriber → filters that are stored later
        self._seen: dict[tuple[Address, Key], None] = {}
        self._once: dict[Address, dict[Key, None]] = {}  # the same of its session
        # Subscriber, critical or not → the first position of the newest such message that was new to it.
        self._last: dict[tuple[Address, bool], int] = {}
        self._on_connection: dict[Address, tuple[object, dict[Key, int]]] = {}

    def attach(self, world: World) -> None:
        world.observers.on_say("took", self._look)
        log, sessions = world.store.logs[LOG.name], world.store.tables[SESSIONS.name]

        def subscribed(who: Address, say: Say) -> None:
            if "topic_filter" in say.facts:
                self._since.setdefault(who, {}).setdefault(str(say.facts["topic_filter"]), log.last_position)

        world.observers.on_say("subscribed", subscribed)

        def look_at(session: StoredSession) -> None:
            for each in self._for_now.get(session.client, {}):
                if each in session.subscriptions:
                    self._since.setdefault(session.client, {}).setdefault(each, log.last_position)

        def subscribed_for_now(who: Address, say: Say) -> None:
            self._for_now.setdefault(who, {})[str(say.facts["topic_filter"])] = None
            cell = sessions.get(session_key(who), world.store.clock_us)
            if cell is not None:
                look_at(decode_session(cell.value))

        world.observers.on_say("subscribed for now", subscribed_for_now)
        world.observers.on_write(SESSIONS.name, lambda _, put, __: look_at(decode_session(put.value)))

        def begin_anew(who: Address, say: Say) -> None:
            self._since.pop(who, None)
            self._for_now.pop(who, None)
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
            if not isinstance(client_at(world, address), self.subscriber):
                continue
            if address not in self._since:
                self.broken(f"{address} could not subscribe")
            for each in self._for_now.get(address, {}):
                if each not in self._since[address]:
                    self.broken(
                        f"{address} was told that its subscription to {each} is stored later, and it is not"
                    )
            for position, key, topic in self._written.entries:
                if self.is_due(address, position, topic) and (address, key) not in self._seen:
                    self.broken(f"{address} never got message {key} of position {position}")
