"""A broker that no leader hears: its cluster's landmark, takeovers for the time of the cut, and clients without their
sessions.

``ClusterGossip`` is the shell of ``core.survival.landmark``: this broker and the others of its cluster. Words go over
links, as messages on topics that no client may publish to; and so do messages of replication while the bus does not
carry them. A broker speaks for itself only: a word is believed if the certificate of the link that brought it is its
sender's. So words go straight, and none that others carried is heard.

A table names the brokers of the cluster. Each broker writes its row when it starts and when a leader counts on it
again: a broker that is cut off knows from its last read which peers to dial. An entry decides nothing else but whose
certificate a standby shows that took another's place, so that a stale one costs some dialling.

``Isolation`` tells the gossip and ``broker.survival.provisional`` that a leader is heard no longer, or again, and
reports on both.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection
from typing import Final, Protocol

import msgspec
import structlog
from mqtt5 import PublishPacket

from tocsin.broker.forwarding.routes import Routes
from tocsin.broker.links.link import Link
from tocsin.broker.survival.provisional import Provisional
from tocsin.broker.survival.takeover import Takeovers
from tocsin.core.coordination.participant.network_view import NetworkView
from tocsin.core.machine import Effect, Received, Send
from tocsin.core.survival.landmark import Landmark
from tocsin.core.survival.landmark_signals import (
    BacksKnown,
    LandmarkKnown,
    MeanwhileIn,
    MeanwhileOut,
    NearRoutes,
    NeighboursWanted,
    Restored,
    RosterKnown,
    Severed,
    WantsChanged,
)
from tocsin.errors import TocsinError
from tocsin.model.network import BrokerInfo, Route, broker_address
from tocsin.model.versions import UNREADABLE, Packed
from tocsin.ports import Change, Table
from tocsin.runtime.machines.clock import wall_us
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Ending
from tocsin.wire.internal.cluster_messages import (
    ClusterMessage,
    decode_cluster_message,
    encode_cluster_message,
)
from tocsin.wire.internal.replication import decode_replication, speakers
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.topics import NEAR_PREFIX

PREFIX: Final = NEAR_PREFIX
WORDS: Final = f"{PREFIX}words"
REPLICATION: Final = f"{PREFIX}replication"
AGAIN_S: Final = 5.0  # before an entry that could not be written is tried once more
MARK: Final = [("near", "1")]  # a property: so that the packet is read by itself, and not as one of a run

ENTRY: Final = Packed("a broker of a cluster", msgspec.msgpack.Decoder(BrokerInfo))


class ClusterLinks(Protocol):
    """The links and routes of this broker."""

    def link(self, broker: str) -> Link | None: ...

    def want_links(self, peers: tuple[BrokerInfo, ...]) -> None:
        """Have links to these, beside those to which routes lead."""
        ...

    def change_near(self, added: tuple[Route, ...], removed: tuple[Route, ...]) -> None:
        """Have these routes beside the coordinator's."""
        ...


class Substitute(Protocol):
    """The part that takes over lost brokers."""

    def stand_in(self, broker: str) -> None: ...

    def stand_down(self, broker: str, *, meanwhile: bool = False) -> None: ...


class Replication(Protocol):
    """This broker's replication."""

    def hear(self, payload: bytes) -> None: ...

    def nudge(self) -> None:
        """Another broker of the cluster can be reached over its link, which the bus may not reach."""
        ...


class ClusterGossip:
    """One broker among those of its cluster. ``gone`` names the brokers that a leader has declared lost: those are not
    missed again. ``missed`` is told of brokers that this one stands in for until a leader is heard, and of their end.
    """

    def __init__(
        self,
        own: BrokerInfo,
        links: ClusterLinks,
        takeovers: Substitute,
        replication: Replication,
        interests: Callable[[], Collection[str]],
        gone: Callable[[], Collection[str]],
        missed: Callable[[str, bool], None] = lambda broker, lost: None,
    ) -> None:
        self._own = own
        self._links = links
        self._takeovers = takeovers
        self._replication = replication
        self._gone = gone
        self._missed = missed
        self.machine = Landmark(own.id, interests, series=wall_us())
        self._ending = Ending()
        self._shell = Shell(self.machine, self._carry_out, self._ending.fail)
        self._post = self._shell.post
        self._entries: dict[str, BrokerInfo] = {}  # of the cluster, by key
        self._met: set[str] = set()  # those who were heard since no leader is
        self._writing = asyncio.Event()
        self._prefix = f"near.{_digest(own.cluster)}."
        self._key = self._prefix + _digest(own.id)
        self._entry = ENTRY.write(own)
        self.forged = 0  # words that were not their sender's
        self.sent = 0  # words …
        self.sent_bytes = 0
        self._log = structlog.get_logger()

    @property
    def severed(self) -> bool:
        return self.machine.severed

    def problem(self) -> str | None:
        """The current problems, as text."""
        if not self.severed:
            return None
        return f"no leader counts on this broker; {self.machine.landmark} is its cluster's landmark"

    def statistics(self) -> dict[str, int]:
        return {
            "orphaned": int(self.severed),
            "landmark": int(self.machine.landmark == self._own.id),
            "cluster_heard": len(self.machine.hears()),
            "cluster_gone": len(self.machine.gone),
            "words": self.sent,
            "words_bytes": self.sent_bytes,
            "words_forged": self.forged,
        }

    def stands_in_for(self, broker: str) -> BrokerInfo | None:
        """The stand-in for a broker of the cluster, until a leader is heard."""
        return (
            self._own if self.machine.gone.get(broker) == self._own.id else self.machine.stands_in_for(broker)
        )

    # ── what is told ────────────────────────────────────────────────────────────────────────────────────────

    def sever(self) -> None:
        """No leader has heard this broker for long."""
        self._know()
        self._met.clear()
        self._post(Severed(cause=f"{self._own.id}:severed"))

    def restore(self) -> None:
        """One counts on it again."""
        self._post(Restored(cause=f"{self._own.id}:restored"))
        self._writing.set()

    def wants(self, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        self._post(WantsChanged(added=added, removed=removed, cause=f"{self._own.id}:wants"))

    def backs(self, primaries: tuple[str, ...]) -> None:
        """The brokers that this broker backs locally."""
        self._post(BacksKnown(primaries=primaries, cause=f"{self._own.id}:backs"))

    def hear(self, peer: str, topic: str, payload: bytes) -> None:
        """A message of another broker on one of our topics; ``peer`` is the name in the certificate of its link."""
        try:
            if topic == REPLICATION:
                if all(self._speaks_for(peer, each) for each in speakers(decode_replication(payload))):
                    self._replication.hear(payload)
                return
            word = decode_cluster_message(payload)
        except UNREADABLE as error:
            self._log.warning("a word of another broker is unreadable", problem=str(error))
            return
        if not self._speaks_for(peer, word.sender):
            return
        self._post(Received(sender=broker_address(word.sender), message=word, cause=f"{word.sender}:word"))
        if self.severed and word.sender not in self._met:
            self._met.add(word.sender)
            self._replication.nudge()

    def _speaks_for(self, peer: str, sender: str) -> bool:
        """Whether a link with this certificate may bring a broker's words. One that took the place of another has its
        own certificate still, as its entry in the table says."""
        if peer and (
            sender == peer
            or any(each.id == sender and each.certified == peer for each in self._entries.values())
        ):
            return True
        self.forged += 1
        self._log.warning("a broker spoke for another, and was not believed", peer=peer, sender=sender)
        return False

    def detour(self, broker: str, payload: bytes) -> bool:
        """Send a message of replication over a link, if the bus may not carry it; whether it was."""
        if broker not in self.machine.roster or not self.machine.speaks(broker):
            return False
        return self._send(broker, REPLICATION, payload)

    def _send(self, broker: str, topic: str, payload: bytes) -> bool:
        link = self._links.link(broker)
        if link is None or not link.up:
            return False
        link.pass_on(encode(PublishPacket(topic, payload, user_properties=MARK), V5), 0)
        return True

    # ── the roster ──────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, table: Table) -> None:
        """Write this broker down, and read who else is, for as long as it lives."""
        self._writing.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write(table))
                group.create_task(self._watch(table))
                group.create_task(self._ending.wait())
        finally:
            self._shell.close()

    async def _write(self, table: Table) -> None:
        while True:
            await self._writing.wait()
            try:
                await table.put(self._key, self._entry)
                self._writing.clear()
            except TocsinError as error:
                self._log.debug("not written down for the others yet", problem=str(error))
                await asyncio.sleep(AGAIN_S)

    async def leave(self, table: Table) -> None:
        """This broker stops on purpose: nobody need look for it."""
        try:
            cell = await table.get(self._key, fresh=True)
            if cell is not None and cell.value == self._entry:  # else another has this name by now
                await table.delete(self._key, revision=cell.revision)
        except TocsinError as error:
            self._log.debug("still written down for the others", problem=str(error))

    async def _watch(self, table: Table) -> None:
        fresh: dict[str, BrokerInfo] | None = None  # what a reset has brought so far
        async for change in table.watch(self._prefix):
            if change.kind == "reset":
                fresh = {}
                continue
            entries = self._entries if fresh is None else fresh
            _note(entries, change)
            if change.kind == "ready" and fresh is not None:
                self._entries, fresh = fresh, None
            if fresh is None:
                self._know()

    def _know(self) -> None:
        gone = self._gone()
        brokers = tuple(each for each in self._entries.values() if each.id not in gone)
        self._post(RosterKnown(brokers=brokers, cause=f"{self._own.id}:roster"))

    # ── the machine's effects ───────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(to=to, message=ClusterMessage() as word):
                payload = encode_cluster_message(word)
                if self._send(to.removeprefix(broker_address("")), WORDS, payload):
                    self.sent += 1
                    self.sent_bytes += len(payload)
            case NeighboursWanted(peers=peers):
                self._links.want_links(peers)
            case NearRoutes(added=added, removed=removed):
                self._links.change_near(added, removed)
            case LandmarkKnown(landmark=landmark):
                self._log.warning("the cluster's landmark", landmark=landmark or None, cause=effect.cause)
            case MeanwhileIn(broker=broker):
                self._takeovers.stand_in(broker)
                self._missed(broker, True)
            case MeanwhileOut(broker=broker):
                self._takeovers.stand_down(broker, meanwhile=True)
                self._missed(broker, False)
            case _:
                self._shell.carry_out(effect)


def _digest(name: str) -> str:
    """Names are of any alphabet, keys are not."""
    return hashlib.blake2b(name.encode(), digest_size=12).hexdigest()


def _note(entries: dict[str, BrokerInfo], change: Change) -> None:
    if change.kind == "delete":
        entries.pop(change.key, None)
    elif change.kind == "put":
        try:
            entries[change.key] = ENTRY.read(change.value)
        except UNREADABLE:
            entries.pop(change.key, None)


class Isolation:
    """Whether a leader counts on one broker, and what the broker does if none does."""

    def __init__(
        self,
        gossip: ClusterGossip,
        provisional: Provisional,
        takeovers: Takeovers,
        routes: Routes,
        view: NetworkView,
    ) -> None:
        self._gossip = gossip
        self._provisional = provisional
        self._takeovers = takeovers
        self._routes = routes
        self._view = view  # of the network, as the last leader told it
        self._log = structlog.get_logger()

    async def run(self, table: Table) -> None:
        try:
            await self._gossip.run(table)
        finally:
            self._provisional.close()

    async def leave(self, table: Table, deadline_s: float) -> None:
        """The broker stops on purpose."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._gossip.leave(table)
        except TimeoutError:
            pass  # a stale entry costs some dialling

    def orphaned(self, told: bool) -> None:
        """No leader counts on this broker. If a leader said so itself (``told``), it is heard, and the broker
        rejoins.
        """
        self._log.warning("no leader counts on this broker", told=told)
        if not told:
            self._provisional.sever()
            self._gossip.sever()

    def adopted(self) -> None:
        self._log.info("a leader counts on this broker")
        self._gossip.restore()
        self._provisional.restore()

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    def problem(self) -> str | None:
        """The current problems, as text."""
        problem = self._gossip.problem()
        cut_off = self._provisional.cut_off
        return f"cut off from the store; {problem or 'a leader is heard'}" if cut_off else problem

    def statistics(self) -> dict[str, int]:
        return {
            **self._gossip.statistics(),
            "near_routes": self._routes.near,
            **self._provisional.statistics(),
            **self._takeovers.statistics(),
        }

    def found_at(self, broker: str) -> BrokerInfo | None:
        """The broker that serves a lost broker's clients: the cluster's choice, while no leader is heard."""
        return self._gossip.stands_in_for(broker) or self._view.found_at(broker)
