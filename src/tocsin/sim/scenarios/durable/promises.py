"""The promise of durable messaging, checked by the messages that clients take and the log holds."""

from __future__ import annotations

from tocsin.core.delivery.stored_session import StoredSession, decode_session, session_key
from tocsin.core.machine import Say
from tocsin.model.network import Address
from tocsin.model.publication import Publication
from tocsin.sim.process.client import number_in
from tocsin.sim.process.messages import Receipts, Written, key_in
from tocsin.sim.process.packets import Key
from tocsin.sim.process.restless import Client, Subscriber
from tocsin.sim.process.stage import LOG, SESSIONS
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.world import World
from tocsin.wire.mqtt.topics import matches


def client_at(world: World, address: Address) -> object:
    """The machine at an address; for a node that speaks MQTT, the client inside it."""
    machine = world.machine(address)
    return getattr(machine, "client", machine)


def message_key(publication: Publication) -> Key:
    """A message's publisher, and its number."""
    return publication.client, number_in(publication.payload)


class Taken(Invariant):
    """What subscribers take: all of it, in order, and no more often than they should (``Receipts``).

    What a broker that was cut off subscribed a client
    to for now is due from when it is stored, and is stored in the end.
    """

    name = "subscribers get everything, in order, at QoS 2 once"
    subscriber: type[Client] = Subscriber  # whose messages these are

    def __init__(self, written: Written) -> None:
        self._written = written
        self._since: dict[Address, dict[str, int]] = {}  # subscriber → filter → positions beyond are its due
        self._for_now: dict[Address, dict[str, None]] = {}  # subscriber → filters that are stored later
        self._receipts = Receipts(written, self.is_due, self.broken)
        self._once: dict[Address, dict[Key, None]] = {}  # the same of its session

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
        key = key_in(say)
        once = self._once.setdefault(subscriber, {})
        if say.facts["qos"] == 2 and key in once:
            self.broken(f"{subscriber} took message {key} at QoS 2 twice")
        once[key] = None
        self._receipts.take(subscriber, say)

    def has(self, subscriber: Address, key: Key) -> bool:
        return self._receipts.has(subscriber, key)

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
            for position, key, topic, _ in self._written.entries:
                if self.is_due(address, position, topic) and not self.has(address, key):
                    self.broken(f"{address} never got message {key} of position {position}")
