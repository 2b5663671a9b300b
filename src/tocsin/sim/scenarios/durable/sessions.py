"""The brokers' promises about sessions and critical messages, as seen at their doors and in the store."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from tocsin.core.delivery.stored_session import SERVED_S, StoredSession, decode_session, session_key
from tocsin.core.machine import PutKey, Say
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.process.broker import broker_at
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.messages import Written
from tocsin.sim.process.packets import Key
from tocsin.sim.process.restless import Client, Publisher, Subscriber
from tocsin.sim.process.signals import Arrived
from tocsin.sim.process.stage import SESSIONS
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.durable.promises import Taken, client_at
from tocsin.sim.world import World

TAKEN_OVER: Final = 0x8E  # the reason code for a client that another connection has


class Visit(msgspec.Struct, frozen=True):
    """A connection over which a broker has let a client in."""

    cause: str
    connection: str
    tail: int  # how far the broker was with the log


class Doors(Invariant):
    """Notes which broker let which client in. A broker has one connection of a client at a time."""

    name = "a client has one connection at a broker"

    def __init__(self) -> None:
        self.visits: dict[tuple[Address, str], Visit] = {}  # broker, client → the last connection there
        self.closed_us: dict[str, int] = {}  # connection → when it was closed, by the store's clock
        self._world: World

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_say("client accepted", self._on_accepted)
        world.observers.on_say("connection closed", self._on_closed)
        world.observers.on_happening(self._on_happening)

    def _on_accepted(self, broker: Address, say: Say) -> None:
        door = (broker, cast(str, say.facts["subscriber"]))
        if door in self.visits and self.visits[door].connection not in self.closed_us:
            self.broken(f"{broker} let {door[1]} in over a second connection")
        runs, process = broker_at(self._world, broker), cast(SimulatedProcess, self._world.machine(broker))
        assert runs is not None and isinstance(process.event, Arrived), "a CONNECT came to a broker"
        self.visits[door] = Visit(say.cause, process.event.connection, runs.parts.message_log.tail)

    def _on_closed(self, broker: Address, say: Say) -> None:
        self._close(self.visits.get((broker, cast(str, say.facts["subscriber"]))))

    def _on_happening(self, node: Address, happening: str) -> None:
        if happening in ("crashed", "stopped"):
            for (broker, _), visit in self.visits.items():
                if broker == node:
                    self._close(visit)

    def _close(self, visit: Visit | None) -> None:
        if visit is not None:
            self.closed_us.setdefault(visit.connection, self._world.store.clock_us)


class CriticalFirst(Invariant):
    """Critical messages overtake.

    A client that comes back gets all critical messages that its broker knows before any other. No other message ever
    comes before an older critical one.
    """

    name = "critical messages come first"

    def __init__(self, written: Written, taken: Taken, doors: Doors) -> None:
        self._written = written
        self._taken = taken
        self._doors = doors

    def attach(self, world: World) -> None:
        world.observers.on_say("took", self._look)

    def _look(self, subscriber: Address, say: Say) -> None:
        key = cast(Key, say.facts["key"])
        if key in self._written.critical or not say.facts["qos"]:
            return  # at QoS 0, in a cluster that is cut off, nothing is promised
        visit = self._doors.visits[cast(Address, say.facts["broker"]), subscriber]
        if visit.connection != f"{subscriber}#{say.facts['connection']}":
            return  # from an earlier one
        before = max(visit.tail, self._written.first[key])
        for late in self._written.critical:
            position, topic = self._written.first[late], self._written.topics[late]
            due = position <= before and self._taken.is_due(subscriber, position, topic)
            if due and not self._taken.has(subscriber, late):
                self.broken(f"{subscriber} took message {key}, and not yet {late}, which is critical")


class SessionsLast(Invariant):
    """A client that comes back within its session's expiry still has the session.

    That is by the store's clock, from the close of its last connection. A session that is served is kept for a day
    longer than its expiry, from when it was written last: if the store's clock jumps that far, it may be gone. One that
    its client does not know of may be replaced at any time. A broker that was cut off writes the session of a client
    that it served provisionally without an owner: that connection has not taken it, and the expiry counts from then.
    """

    name = "sessions last"

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._taken: dict[
            str, tuple[StoredSession, Address]
        ] = {}  # client → its session, and the broker that took it last
        self._confirmed: dict[str, None] = {}  # sessions that their clients know of
        self._written_us: dict[str, int] = {}  # client → when its cell was written last
        # Client → how long it had been away when one of these was replaced, and how long its cell was not written.
        self._replaced: dict[str, tuple[int, int]] = {}
        self._world: World

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_write(SESSIONS.name, self._on_write)
        world.observers.on_say("session lost", self._look)

    def _on_write(self, broker: Address, put: PutKey, revision: int) -> None:
        session, now_us = decode_session(put.value), self._world.store.clock_us
        client = session.client
        if session.confirmed:
            self._confirmed[session.uid] = None
        before, connection = self._taken.get(client, (None, ""))
        if before is not None and before.uid != session.uid and before.uid in self._confirmed:
            closed_us = self._closed_us(client)
            away_us = 0 if closed_us is None else now_us - closed_us
            self._replaced[client] = away_us, now_us - self._written_us[client]
        if before is None or (before.uid, before.epoch) != (session.uid, session.epoch):
            visit = self._doors.visits.get((broker, client))
            if not session.broker:
                connection = f"none of {client}"
                self._doors.closed_us[connection] = now_us
            elif visit is not None:
                connection = visit.connection
            self._taken[client] = session, connection
        self._written_us[client] = now_us

    def _closed_us(self, client: str) -> int | None:
        """When the last connection of a client was closed that had its session; None: it is not."""
        _, connection = self._taken[client]
        return self._doors.closed_us.get(connection)

    def outdated(self, client: str, expiry_s: int) -> bool:
        """Whether the store has kept a session for as long as it keeps any."""
        kept_us = (expiry_s + SERVED_S) * MILLION
        return self._world.store.clock_us - self._written_us.get(client, 0) >= kept_us

    def expired(self, client: str, expiry_s: int) -> bool:
        """Whether a client is away for longer than its session lasts."""
        closed_us = self._closed_us(client)
        return closed_us is not None and self._world.store.clock_us - closed_us >= expiry_s * MILLION

    def _look(self, client: Address, say: Say) -> None:
        if client not in self._replaced:
            return  # it had nothing but an empty session, of which it had said nothing
        away_us, kept_us = self._replaced[client]
        expiry_s = cast(int, say.facts["expiry_s"])
        if away_us < expiry_s * MILLION and kept_us < (expiry_s + SERVED_S) * MILLION:
            after = f"{away_us} µs after its connection was closed"
            self.broken(f"{client} came back {after}, and its session of {expiry_s} s was gone")


class OnlyTheUsurpedStop(Invariant):
    """A broker gives a client up when another connection has it, or had, and not because an answer was lost."""

    name = "a client is given up only to another connection"

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._newest: dict[str, Address] = {}  # client → who wrote its session last

    def attach(self, world: World) -> None:
        world.observers.on_write(SESSIONS.name, self._on_write)
        world.observers.on_say("connection closed", self._look)

    def _on_write(self, broker: Address, put: PutKey, revision: int) -> None:
        self._newest[decode_session(put.value).client] = broker

    def _look(self, broker: Address, say: Say) -> None:
        client = cast(str, say.facts["subscriber"])
        visit = self._doors.visits.get((broker, client))
        # A connection that ends because of a newer one carries the newer one's cause.
        usurped = visit is not None and say.cause == visit.cause and say.facts["reason_code"] == TAKEN_OVER
        if usurped and self._newest.get(client) == broker:
            self.broken(f"{broker} gave {client} up, and nobody had taken it")


class Settled(Invariant):
    """In the end nothing is left to do."""

    name = "everything is settled in the end"

    def __init__(self, sessions: SessionsLast) -> None:
        self._sessions = sessions

    def finish(self, world: World) -> None:
        for address in world.addresses:
            client = client_at(world, address)
            if isinstance(client, Publisher) and not client.done:
                self.broken(f"{address} waits for an answer")
            if isinstance(client, Subscriber) and client.held:
                self.broken(f"{address} waits for the release of {client.held}")
            if isinstance(client, Client):
                self._look(world, address, client.expiry_s)

    def _look(self, world: World, address: Address, expiry_s: int) -> None:
        cell = world.store.tables[SESSIONS.name].get(session_key(address), world.store.clock_us)
        if cell is None:
            sessions = self._sessions
            if not sessions.outdated(address, expiry_s) and not sessions.expired(address, expiry_s):
                self.broken(f"{address} has no session")
            return
        session = decode_session(cell.value)
        for progress in (session.progress, session.critical_messages):
            if progress is not None and (progress.unsettled or progress.releasing):
                self.broken(f"deliveries to {address} are not settled: {progress}")
        if session.inbound:
            self.broken(f"messages of {address} are not released: {session.inbound}")
