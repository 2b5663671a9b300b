"""The shell of ``core.attendance``: one client's durable deliveries and stored session, on asyncio and the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import structlog
from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket

from tocsin.broker.frames import Frames
from tocsin.broker.journal import Journal
from tocsin.broker.links import NO_MAXIMUM
from tocsin.broker.replay import Replay
from tocsin.broker.retained import Kept as Remembered
from tocsin.core.attendance import (
    SESSIONS,
    Answered,
    Attendance,
    AwaitSave,
    BatchRead,
    Began,
    ClaimsForgotten,
    ClaimsSettled,
    Deliver,
    Durable,
    Ended,
    Gone,
    Kept,
    Offered,
    ReadBatch,
    ReadFailed,
    ReleaseAsked,
    Reply,
    Subscribed,
    Unsubscribed,
    Usurped,
    Writable,
)
from tocsin.core.delivery import Delivery
from tocsin.core.forwarding import Subscription
from tocsin.core.grant import Grant, grant
from tocsin.core.inquiry import is_inquiry, read_inquiry
from tocsin.core.machine import (
    CancelTimer,
    DeleteKey,
    Effect,
    Event,
    GetKey,
    PutKey,
    Say,
    SetTimer,
    TimerFired,
)
from tocsin.core.session import TakenOver
from tocsin.core.stored_group import Claim
from tocsin.core.stored_session import StoredSession
from tocsin.errors import TocsinError
from tocsin.model.publication import Publication
from tocsin.ports import Entry, Table
from tocsin.runtime.points import AFTER_SEND, BEFORE_SEND, IN_REPLAY, reach
from tocsin.runtime.pump import Pump
from tocsin.runtime.requests import outcome
from tocsin.runtime.timers import Timers
from tocsin.wire.codec import Version, encode
from tocsin.wire.topics import matches


class Connected(Protocol):
    """The connection, as it is seen from here."""

    @property
    def client_id(self) -> str: ...

    @property
    def version(self) -> Version: ...

    @property
    def send_max_bytes(self) -> int: ...

    def post(self, event: Event) -> None: ...

    def may_receive(self, topic: str) -> bool: ...

    def queue(self, *frames: bytes) -> None:
        """Send frames with this tick's others."""
        ...


class Attendant:
    """See the module's text."""

    __slots__ = (
        "_cause",
        "_connection",
        "_departed",
        "_gone",
        "_journal",
        "_level",
        "_machine",
        "_post",
        "_replay",
        "_settle",
        "_tables",
        "_tasks",
        "_tickets",
        "_timers",
        "_waiting",
    )

    def __init__(
        self,
        connection: Connected,
        journal: Journal,
        sessions: Table,
        cause: str,
        settle: Callable[[str, str, int], None],
    ) -> None:
        self._connection = connection
        self._journal = journal
        self._settle = settle  # told the group, the client and the position of a message that it is done with
        self._tables = {SESSIONS: sessions}
        self._cause = cause
        self._machine = Attendance()
        self._post = Pump(self._machine, self._carry_out).post
        self._timers = Timers(self._on_timer)
        # Made when needed: most clients need none of these.
        self._tasks: set[asyncio.Task[None]] | None = None
        self._tickets = 0
        self._waiting: dict[int, Callable[[], None]] | None = None  # ticket → what to do when it is durable
        self._replay: Replay | None = None
        self._level: Callable[[], None] | None = None  # to be done when the client has caught up with the log
        self._departed = False
        self._gone: asyncio.Future[None] | None = None

    # ── the connection tells ────────────────────────────────────────────────────────────────────────────────

    def begin(
        self,
        session: StoredSession | None,
        revision: int,
        *,
        receive_max: int,
        prefix: str,
        claims: tuple[tuple[str, Claim], ...] = (),
    ) -> None:
        """The client is accepted; ``claims`` are what it has as a member of groups, each with the group's name."""
        self._post(
            Began(
                receive_max=receive_max,
                prefix=prefix,
                session=session,
                revision=revision,
                tail=self._journal.tail,
                claims=claims,
                cause=self._cause,
            )
        )

    @property
    def begun(self) -> bool:
        return self._machine.state != "new"

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        return self._machine.subscriptions

    @property
    def inbound_ids(self) -> tuple[int, ...]:
        return self._machine.inbound_ids

    def record_id(self, packet_id: int, qos: int, topic: str) -> str:
        return self._machine.record_id(packet_id, qos, topic, self._journal.tail)

    def kept(self, packet_id: int) -> None:
        """The log has the client's QoS 2 message."""
        self._post(Kept(packet_id=packet_id, cause=self._cause))

    def subscribed(self, topic_filter: str, subscription: Subscription) -> None:
        self._post(Subscribed(topic_filter=topic_filter, subscription=subscription, cause=self._cause))

    def unsubscribed(self, topic_filter: str) -> None:
        self._post(Unsubscribed(topic_filter=topic_filter, cause=self._cause))

    def when_durable(self, act: Callable[[], None]) -> None:
        """Do something once what has changed so far is durable; at once, if nothing has to be."""
        self._post(AwaitSave(ticket=self._ticket(act), cause=self._cause))

    def release(self, packet_id: int, act: Callable[[], None]) -> None:
        """The client gives a QoS 2 packet id back; ``act`` when that is durable."""
        self._post(ReleaseAsked(packet_id=packet_id, ticket=self._ticket(act), cause=self._cause))

    def _ticket(self, act: Callable[[], None]) -> int:
        self._tickets += 1
        if self._waiting is None:
            self._waiting = {}
        self._waiting[self._tickets] = act
        return self._tickets

    def answered(self, packet: PubAckPacket | PubRecPacket | PubCompPacket) -> None:
        reach(AFTER_SEND)
        self._post(Answered(packet=packet, cause=self._cause))
        self._look()
        if self._replay is not None:
            self._replay.more()

    def congested(self, now: bool) -> None:
        self._machine.congested = now
        if not now:
            self._post(Writable(cause=self._cause))
            self._look()
            if self._replay is not None:
                self._replay.more()

    def when_level(self, act: Callable[[], None]) -> bool:
        """Whether the client has got all messages of the log that there are; if not, ``act`` when it has."""
        if not self._machine.level:
            self._level = act
        return self._machine.level

    def _look(self) -> None:
        if self._level is not None and self._machine.level:
            act, self._level = self._level, None
            act()

    def depart(self) -> None:
        """Nothing is offered to the client from now on; everything up to here was."""
        self._departed = True
        self._machine.passed(self._journal.tail)

    async def end(self, expiry_s: int) -> None:
        """The connection is over; returns when what it leaves is stored, or cannot be."""
        self._gone = asyncio.get_running_loop().create_future()
        self._post(Ended(expiry_s=expiry_s, cause=self._cause))
        await self._gone
        self._timers.close()
        for task in self._tasks or ():
            task.cancel()

    # ── as a member of groups ───────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> bool:
        return self._machine.room

    @property
    def claims(self) -> Delivery | None:
        return self._machine.claims

    def forget_claims(self, packet_ids: tuple[int, ...]) -> None:
        """That these are settled is durable."""
        self._post(ClaimsForgotten(packet_ids=packet_ids, cause=self._cause))

    # ── messages to the client ──────────────────────────────────────────────────────────────────────────────

    def offer(self, entry: Entry, granted: Grant, frames: Frames) -> None:
        """The hot path: an entry that the journal has just brought."""
        if self._too_large(frames, granted):
            return
        packet_id, repeat = self._machine.offer(entry.position, granted.qos)
        if packet_id:
            reach(BEFORE_SEND)
            self._connection.queue(frames.of(self._connection.version, granted, packet_id, repeat))

    def _too_large(self, frames: Frames, granted: Grant) -> bool:
        """Whether the client takes no packet of that size: it is then as good as delivered (MQTT 5, 3.1.2.11.4)."""
        most = self._connection.send_max_bytes
        return most < NO_MAXIMUM and len(frames.of(self._connection.version, granted, 1)) > most

    def replay(self, kept: Iterable[tuple[Remembered, Grant]]) -> None:
        """Send retained messages: at QoS 0 at once, above as the window has room."""
        if self._replay is None:
            self._replay = Replay(self._connection, self._machine)
        self._replay.add(kept)

    def _on_timer(self, name: str, cause: str) -> None:
        if not self._departed:
            self._machine.passed(
                self._journal.tail
            )  # so that what is stored does not lag behind a quiet client
        self._post(TimerFired(name=name, cause=cause))

    # ── the machine's effects ───────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Deliver():
                self._deliver(effect)
            case Reply(packet=packet):
                self._connection.queue(encode(packet, self._connection.version))
            case ClaimsSettled(claims=claims):
                for group, position, _ in claims:
                    self._settle(group, self._connection.client_id, position)
            case ReadBatch():
                self._spawn(self._read(effect))
            case PutKey() | GetKey() | DeleteKey():
                self._spawn(self._ask(effect))
            case Durable(tickets=tickets):
                waiting = self._waiting or {}
                for ticket in tickets:
                    waiting.pop(ticket)()
            case SetTimer(name=name, delay_us=delay_us, cause=cause):
                self._timers.set(name, delay_us, cause)
            case CancelTimer(name=name):
                self._timers.cancel(name)
            case Say(text=text, level=level, facts=facts, cause=cause):
                getattr(structlog.get_logger(), level)(
                    text, cause=cause, subscriber=self._connection.client_id, **facts
                )
            case Usurped():
                self._connection.post(TakenOver(cause=self._cause))
            case Gone():
                if self._gone is not None and not self._gone.done():
                    self._gone.set_result(None)
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    async def _ask(self, request: PutKey | GetKey | DeleteKey) -> None:
        self._post(await outcome(request, {}, self._tables))

    async def _read(self, asked: ReadBatch) -> None:
        tail = self._journal.tail
        if not asked.filters:
            self._post(BatchRead(entries=(), next=tail + 1, tail=tail, cause=asked.cause))
            return
        try:
            batch = await self._journal.read(_read_for(asked.filters), asked.start)
        except TocsinError as error:
            self._post(ReadFailed(error=error, cause=asked.cause))
            return
        offered = [each for entry in batch.entries if (each := self._offered(entry)) is not None]
        self._post(BatchRead(entries=offered, next=batch.next, tail=self._journal.tail, cause=asked.cause))
        self._look()

    def _offered(self, entry: Entry) -> Offered | None:
        """An entry of a batch, if the client is to get it above QoS 0."""
        publication = self._journal.publication(entry)
        if publication is None or publication.expired(_waited_s(entry)):
            return None
        if not self._connection.may_receive(publication.topic):
            return None
        granted = self._grant(publication, entry.position)
        if granted is None or not granted.qos or self._too_large(Frames(publication, 0), granted):
            return None
        return Offered(entry, granted.qos)

    def _grant(self, publication: Publication, position: int) -> Grant | None:
        subscriptions = [s for name, s in self.subscriptions.items() if _concerns(name, publication)]
        return grant(subscriptions, publication, position, self._connection.client_id)

    def _deliver(self, effect: Deliver) -> None:
        publication = self._journal.publication(effect.entry)
        assert publication is not None, "it was offered just now"
        granted = self._grant(publication, effect.entry.position)
        assert granted is not None, "it was offered just now"
        frames = Frames(publication, _waited_s(effect.entry))
        reach(IN_REPLAY)
        frame = frames.of(self._connection.version, granted, effect.packet_id, effect.repeat)
        self._connection.queue(frame)

    # ── upkeep ──────────────────────────────────────────────────────────────────────────────────────────────

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is None:
            self._tasks = set()
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        assert self._tasks is not None
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            structlog.get_logger().error("attending a client failed", exc_info=error, cause=self._cause)
            self._connection.post(TakenOver(cause=self._cause))


def _read_for(names: Sequence[str]) -> Sequence[str]:
    """The filters to read the log for: whether a query concerns an entry, only the entry tells."""
    return ("#",) if any(map(is_inquiry, names)) else names


def _concerns(name: str, publication: Publication) -> bool:
    """Whether a subscription is for a message: by its topic, or by what was said of its stream at the time."""
    if not is_inquiry(name):
        return matches(name, publication.topic)
    inquiry = read_inquiry(name)
    return not inquiry.listing and inquiry.query.matches(publication.metadata)


def _waited_s(entry: Entry) -> float:
    return max(0.0, time.time() - entry.at_us / 1e6)
