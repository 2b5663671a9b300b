"""One client's way in and out: its session is taken, its delivery begins, and what its connection leaves is stored.

``SessionEntry`` takes a session after everything that an earlier connection of the client still has to store, and tells
the other brokers of it; and it lets clients go that came to another broker. ``Departures`` stores what a connection
leaves. ``Endings`` is what both know: which connections are over, and not stored yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from tocsin.broker.channels.channels import Channels
from tocsin.broker.client import Client
from tocsin.broker.delivery.announcements import Arrivals
from tocsin.broker.delivery.client_delivery import DurableDelivery
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.delivery.session_store import HANDED, Sessions
from tocsin.broker.delivery.wills import Wills
from tocsin.broker.entrance.ownership import Ownership
from tocsin.broker.shared.groups import Groups
from tocsin.broker.survival.covering import Covers
from tocsin.broker.survival.orphans import Orphans
from tocsin.broker.survival.provisional import CutOff, Provisional, ProvisionalDelivery
from tocsin.broker.survival.replication import Replicating
from tocsin.broker.survival.takeover import Takeovers
from tocsin.core.access.ownership import Claim, may_take
from tocsin.core.delivery.entering import (
    ArrivalNoted,
    AwaitEnding,
    AwaitForgotten,
    AwaitSettled,
    Entered,
    Entering,
    EntryAsked,
    EntryRefused,
    FindMessages,
    MessagesFound,
    NoteAlive,
    NoteArrival,
    NoteTaken,
    SessionHad,
    StepOver,
    TakeSession,
    TellOthers,
)
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.taking import NotYours
from tocsin.core.machine import Effect, Event
from tocsin.core.session.signals import Accepted
from tocsin.errors import TocsinError
from tocsin.ports import BusMessage
from tocsin.runtime.machines.clock import wall_us

if TYPE_CHECKING:
    from tocsin.broker.entrance.clients import Clients


class RecordPrefixes:
    """The prefix of record ids: one for each connection, never given out twice. ``incarnation`` differs at every
    start of the broker."""

    def __init__(self, broker: str, incarnation: str) -> None:
        self._begins = f"{broker}.{incarnation}"
        self._numbers = count(1)

    def next(self) -> str:
        return f"{self._begins}.{next(self._numbers)}"


class Endings:
    """Connections that are over, while what they leave is being stored. A client may have several: one that is served
    without the store does not wait for those before it."""

    def __init__(self) -> None:
        self._open: dict[str, list[object]] = {}  # client → the tokens of its connections
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}  # those who wait for a client

    def began(self, client: str, token: object) -> None:
        """The state that a client's connection leaves is being stored."""
        self._open.setdefault(client, []).append(token)

    def over(self, client: str, token: object) -> None:
        """It is stored, or will not be."""
        left = [each for each in self._open.pop(client, ()) if each is not token]
        if left:
            self._open[client] = left
        else:
            for waiting in self._waiting.pop(client, ()):
                if not waiting.done():
                    waiting.set_result(None)

    def ending(self, client: str) -> bool:
        """Whether something of an earlier connection of this client is left to store."""
        return client in self._open

    async def ended(self, client: str) -> None:
        """Return when nothing of an earlier connection of this client is left to store."""
        if client in self._open:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(client, []).append(waiting)
            await waiting

    async def all_ended(self, clients: Iterable[str]) -> None:
        """The same of several clients."""
        for client in clients:
            await self.ended(client)

    async def drain(self, deadline_s: float) -> None:
        """Let what is being stored now be stored, for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self.all_ended(tuple(self._open))


class Deliveries:
    """Makes the delivery of each client that comes."""

    def __init__(
        self,
        message_log: MessageLog,
        sessions: Sessions,
        groups: Groups,
        channels: Channels,
        replication: Replicating,
        provisional: Provisional,
    ) -> None:
        self._message_log = message_log
        self._sessions = sessions
        self._groups = groups
        self._channels = channels
        self._provisional = provisional
        self._changed = replication.changed  # one object for all deliveries

    def attend(self, connection: Client, cause: str) -> DurableDelivery:
        return DurableDelivery(
            connection,
            self._message_log,
            self._sessions.table,
            cause,
            self._groups.settle,
            self._channels,
            self._changed,
            self._sessions.quota.wrote,
        )

    def attend_provisionally(
        self, connection: Client, cause: str, accepted: Accepted, error: TocsinError, owner: str
    ) -> DurableDelivery | None:
        """The same of a client whose session could not be taken for this error, which is raised if it counts; None if
        the client has no session that lasts."""
        client, clean, expiry_s = connection.client_id, accepted.clean_start, accepted.session_expiry_s
        if isinstance(error, NotYours) or not self._provisional.cut_off:
            raise error
        record = self._provisional.admit(client, owner=owner, clean=clean, expiry_s=expiry_s)
        if record is None:
            return None
        delivery = ProvisionalDelivery(
            connection,
            self._message_log,
            self._sessions.table,
            cause,
            self._groups.settle,
            self._channels,
            self._changed,
            record=record,
            positions=self._provisional.positions(client),
        )
        self._provisional.came(client, delivery)
        return delivery


class SessionEntry:
    """Takes the sessions of clients that come here, and lets those go that came to another broker."""

    def __init__(
        self,
        broker: str,
        clients: Clients,
        message_log: MessageLog,
        sessions: Sessions,
        arrivals: Arrivals,
        endings: Endings,
        ownership: Ownership,
        provisional: Provisional,
        replication: Replicating,
        takeovers: Takeovers,
        covers: Covers,
        orphans: Orphans,
    ) -> None:
        self._covers = covers
        self._orphans = orphans
        self._broker = broker
        self._clients = clients
        self._message_log = message_log
        self._sessions = sessions
        self._arrivals = arrivals
        self._endings = endings
        self._ownership = ownership
        self._provisional = provisional
        self._replication = replication
        self._takeovers = takeovers

    async def take(
        self,
        client: str,
        *,
        owner: str,
        clean: bool,
        expiry_s: int,
        wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[StoredSession, int, bool] | None:
        """Make a client's session ours, after whatever an earlier connection of it here still has to store; unless it
        is no longer ``wanted`` (``Abandoned``), or the session is another user's (``NotYours``). The other brokers are
        told after that.
        """
        machine, owned = Entering(client, self._broker), None
        event: Event = EntryAsked(owner=owner, clean=clean, wanted=wanted(), cause=client)
        while True:
            *first, last = machine.handle(event, wall_us())
            for effect in first:
                self._carry_out(effect)
            match last:
                case EntryRefused(error=error):
                    raise error
                case Entered(session=session):
                    return None if session is None or owned is None else (session, *owned)
                case TakeSession(came_us=came_us):
                    taken = await self._sessions.take(
                        client,
                        owner=owner,
                        clean=clean,
                        expiry_s=expiry_s,
                        tail=self._message_log.tail,
                        came_us=came_us,
                        copied=self._replication.backup.positions(client),
                        wanted=wanted,
                    )
                    owned = None if taken is None else taken[1:]
                    had = None if taken is None else taken[0]
                    event = SessionHad(session=had, wanted=wanted(), cause=client)
                case _:
                    event = await self._outcome(client, last)

    async def _outcome(self, client: str, asked: Effect) -> Event:
        """Do what a client's way in asks for; what came of it."""
        match asked:
            case NoteArrival():
                came_us = self._arrivals.came(client)
                cut_off = CutOff(client) if self._provisional.cut_off else None
                return ArrivalNoted(came_us=came_us, cut_off=cut_off, cause=client)
            case AwaitEnding():
                await self._endings.ended(client)
            case AwaitForgotten():
                await self._arrivals.settled(client)
            case AwaitSettled():
                await self._provisional.settled(client)
            case FindMessages(session=session):
                return MessagesFound(packet_ids=await self._find(session), cause=client)
            case _:
                raise AssertionError(f"no way to carry out {asked}")
        return StepOver(cause=client)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case NoteAlive(claim=claim, back=back):
                self._takeovers.client_alive(claim, back=back)
                self._covers.came(claim.client, claim.owner)
            case TellOthers(claim=claim, back=back):
                self._arrivals.tell(claim, back=back)
            case NoteTaken(session=session):
                self._replication.backup.note_taken(session.uid, session.epoch)
                self._orphans.taken(session.client)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    async def _find(self, session: StoredSession) -> tuple[int, ...]:
        """The packet ids of a client's QoS 2 messages that the log has, where nobody lived to say so."""
        found = [
            packet_id
            for packet_id, (since, topic) in session.sought.items()
            if packet_id in session.inbound
            and await self._message_log.has(session.inbound[packet_id], topic, since)
        ]
        return tuple(found)

    def client_came(self, client: str, owner: str) -> None:
        """A client came that wants no session: an old one is forgotten, by the way."""
        claim = Claim(client, owner, self._broker, self._arrivals.came(client), inside=True)
        self._takeovers.client_alive(claim, back=False)
        self._covers.came(client, owner)
        # Announcements on a bus that is cut off would be heard later, when they are no longer true.
        if self._provisional.cut_off:
            with contextlib.suppress(NotYours):
                self._provisional.began_anew(client, owner)
        else:
            self._arrivals.tell(claim, back=False, new=True)
            self._arrivals.begins_anew(client, owner)

    def client_went(self, client: str, *, unheard: bool) -> None:
        """No connection here has this client any more; ``unheard``: nothing was read of it after its CONNECT."""
        self._arrivals.went(client, unheard=unheard)

    # ── clients elsewhere ───────────────────────────────────────────────────────────────────────────────────

    async def hand_over(self, request: BusMessage) -> bytes:
        """Another broker asks for a client's session: let the client go, unless it came here after it came there."""
        client, came_us = Sessions.wanted(request)
        if self._arrivals.since(client, came_us):
            return HANDED.seal(b"newer here")
        self._clients.let_go(client)
        await self._endings.ended(client)
        return HANDED.seal(b"yours")

    async def hear(self, words: AsyncIterator[BusMessage]) -> None:
        """Hear which clients have come to other brokers, for as long as the broker lives."""
        async for word in words:
            for arrival in self._arrivals.elsewhere(word):
                self._came_elsewhere(arrival.claim, back=arrival.back)

    def _came_elsewhere(self, theirs: Claim, *, back: bool) -> None:
        if self._ownership.objects(theirs):
            self._ownership.object_to(theirs)  # no client with a right to that id came
            return
        if self._clients.gives_way(theirs.client, theirs.owner):
            self._clients.let_go(theirs.client)
        self._takeovers.client_alive(theirs, back=back)
        self._replication.moved(theirs.client, theirs.owner)
        quota = self._sessions.quota
        user = quota.user_of(theirs.client)
        if user is not None and may_take(user, theirs.owner):
            quota.over(theirs.client)  # it counts there, or is no more


class Departures:
    """Stores what connections leave, and tells the backups of it."""

    def __init__(
        self,
        message_log: MessageLog,
        sessions: Sessions,
        endings: Endings,
        orphans: Orphans,
        wills: Wills,
        provisional: Provisional,
        replication: Replicating,
    ) -> None:
        self._message_log = message_log
        self._quota = sessions.quota
        self._endings = endings
        self._orphans = orphans
        self._wills = wills
        self._provisional = provisional
        self._replication = replication

    def left(self, connection: Client, expiry_s: int, owner: str) -> None:
        """A client's connection is over: store what it leaves, and tell the backups."""
        self._provisional.left(connection, owner, expiry_s)
        will = self._wills.unsettled(connection.client_id)
        if will is not None:
            will = msgspec.structs.replace(will, since=self._message_log.tail)
        self.end(connection.client_id, connection.delivery, expiry_s, settled=will is None)
        if expiry_s:
            self._quota.left(connection.client_id, wall_us() + expiry_s * 1_000_000)
        else:
            self._quota.over(connection.client_id)
        self._replication.went(connection, expiry_s, will)

    def end(self, client: str, delivery: DurableDelivery, expiry_s: int, *, settled: bool = False) -> None:
        """A client's connection is over: store what it leaves. ``settled``: no will of it is left."""
        self._endings.began(client, delivery)
        delivery.end(expiry_s, partial(self._ended, client, delivery, expiry_s), settled=settled)

    def hand_on(self, client: str, session: StoredSession, expiry_s: int) -> None:
        """A connection was closed while its session was being taken, and the client's next one waits for it here. The
        cell stays as it is for that one: to be released and to expire meanwhile would cost the client its session."""
        self._orphans.left(client, session.uid, session.epoch, expiry_s)

    def _ended(self, client: str, delivery: DurableDelivery, expiry_s: int, stored: bool) -> None:
        self._endings.over(client, delivery)
        if not stored:
            self._orphans.left(client, delivery.session, delivery.session_epoch, expiry_s)
