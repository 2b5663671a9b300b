"""The promises about the broker that has a client, and about those that no longer have it.

An **owner** of a client is a process with an epoch, from the write of the session's cell that gave it. It is **fenced**
from the moment at which the store has a larger epoch. Nothing that it writes takes effect from then on. It may not know
yet, and send; a client listens to one connection, and what it gets twice is what nobody has stored as settled.
"""

from __future__ import annotations

from tocsin.core.delivery.stored_session import SERVED_S, StoredSession, decode_session
from tocsin.core.machine import PutKey, Say
from tocsin.core.survival.takeover import MEANWHILE
from tocsin.model.network import Address
from tocsin.sim.chance import MILLION
from tocsin.sim.process.stage import SESSIONS
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.programs import Program
from tocsin.sim.scenarios.survival.promises.looking import STANDS_IN, Brokers, Running, stands_in_for
from tocsin.sim.world import World


class Sessions(Invariant):
    """Looks at every write of a session's cell: the base of the promises about sessions."""

    def attach(self, world: World) -> None:
        world.observers.on_write(SESSIONS.name, self._look)

    def _look(self, node: Address, put: PutKey, revision: int) -> None:
        self.written(node, decode_session(put.value))

    def written(self, node: Address, session: StoredSession) -> None:
        raise AssertionError("an invariant says what it looks for")


class OneOwner(Sessions):
    """Each epoch of a session is one process's, and nobody writes with an older one than the store has.

    The last word of an epoch, that nobody serves the client, may be another's: of the next process of that name. A
    session that has expired is over: the client's next one has epochs of its own.
    """

    name = "one owner per client and epoch; no position is committed by a fenced owner"

    def __init__(self) -> None:
        self._owners: dict[str, tuple[int, Address]] = {}  # session → epoch and process
        self._newest: dict[str, str] = {}  # client → its session

    def written(self, node: Address, session: StoredSession) -> None:
        newest = self._newest.get(session.client)
        if session.uid != newest and session.uid in self._owners:
            self.broken(f"{node} wrote a session of {session.client} that another has replaced")
        self._newest[session.client] = session.uid
        epoch, owner = self._owners.get(session.uid, (0, ""))
        if session.epoch < epoch:
            self.broken(f"{node} wrote epoch {session.epoch} of {session.client}, and {owner} has {epoch}")
        if session.epoch == epoch and owner != node and session.broker:
            self.broken(f"{owner} and {node} both have epoch {epoch} of {session.client}")
        self._owners[session.uid] = (session.epoch, node)


class SessionsLast(Sessions):
    """A session that its client knows of is not replaced by another, unless it has expired by the store's clock.

    Its expiry counts from the close of the connection, which a broker may notice before the client does, or long after.
    A broker without the store serves a client as a session that it cannot take. The cell of a session that nobody has
    taken expires after its time all the same, before that connection or during it (decision 032).
    """

    name = "sessions last"

    def __init__(self, programs: dict[str, Program], notice_us: int) -> None:
        self._programs = programs
        self._notice_us = notice_us  # by which a broker may notice the end of a connection before its client
        self._known: dict[str, StoredSession] = {}  # client → the one that was written last
        self._written_us: dict[str, int] = {}  # … and when, by the store's clock
        self._seen_us: dict[str, int] = {}  # client → when it was last connected, by the store's clock
        self._untaken: dict[str, None] = {}  # clients whose connection has not taken the known session, …
        self._world: World

    def attach(self, world: World) -> None:
        super().attach(world)
        self._world = world
        world.observers.on_say("connected", self._on_connected)
        world.observers.on_say("disconnected", self._on_disconnected)
        world.observers.on_say("left", self._on_disconnected)

    def _on_connected(self, client: Address, say: Say) -> None:
        known = self._known.get(client)
        if known is not None and not known.broker:
            self._untaken[client] = None  # … which is nobody's: its cell says so

    def _on_disconnected(self, client: Address, say: Say) -> None:
        self._seen_us[client] = self._world.store.clock_us

    def written(self, node: Address, session: StoredSession) -> None:
        client, now_us = session.client, self._world.store.clock_us
        known = self._known.get(client)
        if known is not None and known.uid != session.uid and known.confirmed:
            connected = client in self._programs and bool(self._programs[client].at)
            away_us = 0 if connected else now_us - self._seen_us.get(client, now_us)
            unwritten_us = now_us - self._written_us[client]
            expired = away_us + self._notice_us >= known.expiry_s * MILLION
            served_s = 0 if client in self._untaken else SERVED_S
            outdated = unwritten_us >= (known.expiry_s + served_s) * MILLION
            if not expired and not outdated:
                self.broken(
                    f"{node} replaced the session of {client}, which lasts for {known.expiry_s} s, {away_us} µs after "
                    "it was connected last"
                )
        self._untaken.pop(client, None)
        self._known[client], self._written_us[client] = session, now_us


class SubscriptionsAreStored(Sessions):
    """An acknowledged SUBSCRIBE or UNSUBSCRIBE is in the session's cell, whichever broker writes it, until the client
    changes it or the session ends. *Degraded* answers are excepted: a broker that cannot reach the store gives
    them. The client asks again for what they were about, and the next answer counts."""

    name = "an acknowledged subscription stays as it is, whichever broker has the client"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._has: dict[tuple[str, str], str] = {}  # SUBACK came, in this session
        self._left: dict[tuple[str, str], str] = {}  # UNSUBACK came

    def attach(self, world: World) -> None:
        super().attach(world)
        observers = world.observers
        observers.on_say("subscribing", self._forget)
        observers.on_say("unsubscribing", self._forget)
        observers.on_say("subscribed", lambda client, say: self._hear(client, say, self._has))
        observers.on_say("unsubscribed", lambda client, say: self._hear(client, say, self._left))
        observers.on_say("heard that it is stored", self._hear_later)

    def _forget(self, client: Address, say: Say) -> None:
        subscription = (client, str(say.facts["topic_filter"]))
        self._has.pop(subscription, None)
        self._left.pop(subscription, None)

    def _hear(self, client: Address, say: Say, known: dict[tuple[str, str], str]) -> None:
        if say.facts["stored"]:
            self._keep(client, say, known)

    def _hear_later(self, client: Address, say: Say) -> None:
        self._keep(client, say, self._has if say.facts["wanted"] else self._left)

    def _keep(self, client: Address, say: Say, known: dict[tuple[str, str], str]) -> None:
        session = self._brokers.session(client)
        if session is not None:
            known[client, str(say.facts["topic_filter"])] = session.uid
            self.written("store", session)

    def written(self, node: Address, session: StoredSession) -> None:
        for (client, name), uid in self._left.items():
            if uid == session.uid and name in session.subscriptions:
                self.broken(f"{client} has unsubscribed from {name}, and {node} has it again")
        for (client, name), uid in self._has.items():
            if uid == session.uid and name not in session.subscriptions:
                self.broken(f"{client} is subscribed to {name}, and {node} has it not")


class OneStandsIn(Invariant):
    """A place is held by one broker in each epoch, and by nobody with an older one than was given out.

    In a cluster that is cut off a backup stands in by the landmark's word.
    """

    name = "one stands in for another in each epoch"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._holders: dict[tuple[str, int], str] = {}

    def attach(self, world: World) -> None:
        world.observers.on_say(STANDS_IN, self._look)

    def _look(self, node: Address, say: Say) -> None:
        place, epoch = stands_in_for(say)
        broker = self._brokers.at(node)
        name = node if broker is None else broker.name
        if epoch == MEANWHILE:
            return
        holder = self._holders.setdefault((place, epoch), name)
        if holder != name:
            self.broken(f"{holder} and {name} stand in for {place} in epoch {epoch}")


class LetsGo(Invariant):
    """A broker that reaches the store does not keep a client of which that says that another has it."""

    name = "a broker lets a client go that another has"

    def __init__(self, brokers: Brokers, until_us: int, every_us: int, notice_us: int) -> None:
        self._brokers = brokers
        self._until_us = until_us
        self._every_us = every_us
        self._notice_us = notice_us  # in which a broker is told, or notices that its client is silent
        self._since_us: dict[
            tuple[Address, str, int], int
        ] = {}  # broker, client, epoch → since when it is so

    def attach(self, world: World) -> None:
        for at_us in range(self._every_us, self._until_us, self._every_us):
            world.at(at_us, lambda: self._look(world))

    def _look(self, world: World) -> None:
        before, self._since_us = self._since_us, {}
        for broker in self._brokers.running():
            if self._brokers.hears(broker):
                self._look_at(world, broker, before)

    def _look_at(self, world: World, broker: Running, before: dict[tuple[Address, str, int], int]) -> None:
        for client in broker.clients:
            served, session = broker.served(client), self._brokers.session(client)
            if (
                served is None
                or session is None
                or session.uid != served.session
                or session.epoch <= served.epoch
            ):
                continue
            kept = (broker.node, client, served.epoch)
            since_us = self._since_us[kept] = before.get(kept, world.now_us)
            if world.now_us - since_us > self._notice_us:
                self.broken(
                    f"{broker.node} serves {client} in epoch {served.epoch}, and {session.broker} has {session.epoch}"
                )
