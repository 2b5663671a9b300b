"""What is promised of who has a client, and of who no longer has.

An **owner** of a client is a process with an epoch, from the write of the session's cell that gave it. It is **fenced**
from the moment at which the store has a larger epoch. Nothing that it writes takes effect from then on. It may not know
yet, and send; a client listens to one connection, and what it gets twice is what nobody has stored as settled. From the
moment at which it was told (``service.fenced``) it is silent.
"""

from __future__ import annotations

from typing import cast

from tocsin.core.machine import PutKey, Say
from tocsin.core.stored_session import StoredSession, decode_session, session_key
from tocsin.model.message import Address
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenarios.durable.clients import Client
from tocsin.sim.scenarios.durable.promises import SessionsLast
from tocsin.sim.scenarios.durable.wire import SESSIONS, Packet, Ping
from tocsin.sim.scenarios.survival.broker import SurvivalBroker
from tocsin.sim.scenarios.survival.ledger import Ledger
from tocsin.sim.scenarios.survival.service import SurvivalService
from tocsin.sim.world import World


class Sessions(Invariant):
    """What every write of a session's cell shows: the base of what is promised of them."""

    def attach(self, world: World) -> None:
        world.observers.on_write(SESSIONS.name, self._look)

    def _look(self, node: Address, put: PutKey, revision: int) -> None:
        self.written(node, decode_session(put.value))

    def written(self, node: Address, session: StoredSession) -> None:
        raise AssertionError("an invariant says what it looks for")


class OneOwner(Sessions):
    """Each epoch of a session is one process's, and nobody commits a position with an older one than the store has.

    A session that has expired is over: the client's next one has epochs of its own.
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
        if session.epoch == epoch and owner != node:
            self.broken(f"{owner} and {node} both have epoch {epoch} of {session.client}")
        self._owners[session.uid] = (session.epoch, node)


class FencedIsSilent(Invariant):
    """An owner that was told that it is one no longer delivers and acknowledges nothing."""

    name = "a broker that was told that another has a client sends it nothing more"

    def __init__(self, ledger: Ledger) -> None:
        ledger.on_send.append(self._look)

    def _look(self, broker: SurvivalBroker, service: SurvivalService, packet: Packet) -> None:
        if service.fenced and not isinstance(packet, Ping):
            self.broken(f"{broker.node} lost {service.client} and sent {type(packet).__name__}")


class SubscriptionsAreStored(Sessions):
    """What SUBACK and UNSUBACK said is in the session's cell, whoever writes it, until the client says otherwise, or
    the session is over."""

    name = "what was acknowledged of a subscription stays so, whoever has the client"

    def __init__(self, sessions: SessionsLast) -> None:
        self._sessions = sessions
        self._has: dict[tuple[str, str], str] = {}  # SUBACK came, in this session
        self._left: dict[tuple[str, str], str] = {}  # UNSUBACK came

    def attach(self, world: World) -> None:
        super().attach(world)
        world.observers.on_say("subscribing", self._forget)
        world.observers.on_say("unsubscribing", self._forget)

        def hear(client: Address, say: Say) -> None:
            known = self._has if say.text == "subscribed" else self._left
            cell = world.store.tables[SESSIONS.name].get(session_key(client), world.store.clock_us)
            if cell is not None:
                session = decode_session(cell.value)
                known[client, _named(say)] = session.uid
                self.written("store", session)
            elif not self._sessions.outdated(client, cast(Client, world.machine(client)).expiry_s):
                self.broken(f"{client} was told of a subscription, and has no session")

        world.observers.on_say("subscribed", hear)
        world.observers.on_say("unsubscribed", hear)

    def _forget(self, client: Address, say: Say) -> None:
        subscription = (client, _named(say))
        self._has.pop(subscription, None)
        self._left.pop(subscription, None)

    def written(self, node: Address, session: StoredSession) -> None:
        for (client, name), uid in self._left.items():
            if uid == session.uid and name in session.subscriptions:
                self.broken(f"{client} has unsubscribed from {name}, and {node} has it again")
        for (client, name), uid in self._has.items():
            if uid == session.uid and name not in session.subscriptions:
                self.broken(f"{client} is subscribed to {name}, and {node} has it not")


def _named(say: Say) -> str:
    """The subscription that something is said of: to a channel, or to topics."""
    return str(say.facts.get("name", say.facts.get("topic_filter")))


class OneStandsIn(Invariant):
    """A place is held by one process in each epoch, and by nobody with an older one than was given out."""

    name = "one stands in for another in each epoch"

    def __init__(self, ledger: Ledger) -> None:
        self._holders: dict[tuple[str, int], Address] = {}
        ledger.on_stands_in.append(self._look)

    def _look(self, broker: SurvivalBroker, place: str, epoch: int) -> None:
        holder = self._holders.setdefault((place, epoch), broker.address)
        if holder != broker.address:
            self.broken(f"{holder} and {broker.address} stand in for {place} in epoch {epoch}")
