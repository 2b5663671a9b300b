"""The shell of ``core.survival.provisional``: clients that are served while the store cannot be reached, and what they
leave.

The store is looked at while this broker hears no leader, every LOOK_S. If it does not answer, the broker is **cut
off**: whoever comes is served provisionally, and SUBACK and UNSUBACK wait for the store no longer. When it answers
again, clients that are here provisionally are asked to come anew, one after the other, and what they leave is held
against their cells before their sessions are taken (``settled``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import msgspec
import structlog

from tocsin.broker.client import Client
from tocsin.broker.delivery.client_delivery import DurableDelivery
from tocsin.broker.forwarding.frames import Frames
from tocsin.broker.retained.replay import Copy, Pages
from tocsin.broker.retained.table import Kept
from tocsin.core.delivery.grant import Grant
from tocsin.core.delivery.stored_session import decode_session, encode_session, kept_s, session_key
from tocsin.core.delivery.taking import NotYours
from tocsin.core.forwarding.table import Subscription
from tocsin.core.replication.gamma import ClientSnapshot
from tocsin.core.survival.provisional import Record, admit, recorded, settle
from tocsin.errors import Conflict, TocsinError
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Entry, Table
from tocsin.runtime.machines.clock import token_hex
from tocsin.wire.replication import Positions

LOOK_S: Final = 0.5
ANSWER_S: Final = 1.5  # for the store: nothing was heard over the same connection for seconds already
LOOK_KEY: Final = "looked-for"  # no session has it: their keys are digests
TRIES: Final = 10
AT_ONCE: Final = 32  # sessions that are settled at a time
RECORDS_MAX: Final = 100_000  # some kilobyte each; those that came first go first

DEGRADED: Final = "degraded: this cluster is cut off; the subscription is in force here, and is stored later"
GIVEN_UP: Final = "degraded: this cluster is cut off; the subscription is gone here, and from the store later"
SETTLES: Final = "a provisional session is written over what was known of it"

Act = Callable[[], None]


class CutOff(TocsinError):
    """This broker cannot reach the store, and knows nothing of a session that the client may have."""

    retryable = True

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(
            f"this cluster is cut off, and knows no session of {client!r}: come back later, or begin with a clean start"
        )


class HasTail(Protocol):
    """The message log, as it is seen from here."""

    @property
    def tail(self) -> int: ...


class ProvisionalDelivery(DurableDelivery):
    """Of a client whose session is not taken: it has subscriptions, and nothing that must be kept."""

    __slots__ = ("_held", "_positions")

    provisional = True

    def __init__(self, *arguments: Any, record: Record, positions: Positions | None) -> None:
        super().__init__(*arguments)
        self._held = dict(record.subscriptions)
        self._positions = positions
        self.session, self.session_epoch = record.uid, record.epoch

    def begin(self, *arguments: Any, **options: Any) -> None:
        session, epoch = self.session, self.session_epoch
        super().begin(*arguments, **options)
        self.session, self.session_epoch = session, epoch

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        return self._held

    @property
    def positions(self) -> Positions | None:
        """As they were known: they do not move."""
        return self._positions

    @property
    def room(self) -> bool:
        return False

    def subscribed(self, topic_filter: str, subscription: Subscription) -> None:
        self._held[topic_filter] = subscription
        self._changed(self._connection.client_id, topic_filter)

    def unsubscribed(self, topic_filter: str) -> None:
        self._held.pop(topic_filter, None)
        self._forget_replay(topic_filter)
        self._changed(self._connection.client_id, topic_filter)

    def when_durable(self, act: Act) -> None:
        act()

    def release(self, packet_id: int, act: Act) -> None:
        """Never: the client says it again, when its session is taken."""

    def offer(self, entry: Entry, critical: bool, granted: Grant, frames: Frames) -> None:
        """Not now: its session's position brings it."""

    def offer_result(self, place: int, critical: bool, granted: Grant, frames: Frames) -> None:
        """The same."""

    def replay(self, name: str, pages: Pages, copy: Copy) -> None:
        """Retained messages, at QoS 0."""

        def at_qos_0(after: str | None) -> Iterator[tuple[Kept, Grant | None]]:
            for kept, granted in pages(after):
                yield kept, None if granted is None else msgspec.structs.replace(granted, qos=0)

        super().replay(name, at_qos_0, copy)


class Clients(Protocol):
    """Those who are in."""

    def ask_anew(self, client_id: str) -> None:
        """Have a client that is here come anew."""
        ...

    def hurry(self) -> None:
        """Nobody need wait for the store any longer to hear of subscriptions."""
        ...


class Provisional:
    """Whether one broker is cut off, and the clients that it serves then. ``known`` is what copies say of a client,
    ``log`` how far the message log is known."""

    def __init__(
        self,
        table: Table,
        clients: Clients,
        log: HasTail,
        *,
        broker: str,
        known: Callable[[str], ClientSnapshot | None],
    ) -> None:
        self.severed = False  # no leader is heard
        self.cut_off = False  # and the store does not answer
        self.settled_count = 0  # sessions that were written
        self.dropped_count = 0  # that somebody else had taken, or nobody knew any more
        self._clients = clients
        self._message_log = log
        self._table = table
        self._broker = broker
        self._known = known
        self._records: dict[str, Record] = {}
        self._here: dict[str, ProvisionalDelivery] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._wake = asyncio.Event()
        self._log = structlog.get_logger()

    def statistics(self) -> dict[str, int]:
        return {
            "cut_off": int(self.cut_off),
            "provisional": len(self._here),
            "sessions_settled": self.settled_count,
            "sessions_let_go": self.dropped_count,
        }

    # ── whether ─────────────────────────────────────────────────────────────────────────────────────────────

    def sever(self) -> None:
        """No leader is heard."""
        self.severed = True
        self._wake.set()

    def restore(self) -> None:
        """One is."""
        self.severed = False
        self._wake.set()

    async def run(self) -> None:
        """Look after the store while no leader is heard, and settle afterwards, for as long as the broker lives."""
        while True:
            await self._wake.wait()
            while self.severed or self.cut_off:
                reached = await self._reaches()
                if not reached and not self.cut_off:
                    self._cut()
                elif reached and self.cut_off:
                    self._heal()
                await asyncio.sleep(LOOK_S)
            self._records.clear()  # the store was there all the time, or has everything
            self._wake.clear()

    async def _reaches(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._table.get(LOOK_KEY)
        except (TocsinError, TimeoutError):
            return False
        return True

    def _cut(self) -> None:
        self.cut_off = True
        self._log.warning("cut off from the store: clients are served provisionally")
        self._clients.hurry()

    def _heal(self) -> None:
        self.cut_off = False
        records, self._records = self._records, {}
        facts = {"clients": len(self._here), "sessions": len(records)}
        self._log.warning("the store is back: provisional sessions are settled", **facts)
        for client, record in records.items():
            self._settle(client, record)
        for client in [each for each in self._here if each not in records]:
            self._clients.ask_anew(client)

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def admit(self, client: str, *, owner: str, clean: bool, expiry_s: int) -> Record | None:
        """As which session a client is served; None without one. Raises ``NotYours``, ``CutOff``."""
        known = self._records.get(client)
        standing = self._known(client) if known is None else None
        if standing is not None and standing.head.session:
            known = recorded(standing)
        found = admit(client, known, owner=owner, clean=clean, expiry_s=expiry_s, tail=self._message_log.tail)
        if found == "not yours":
            raise NotYours(client)
        if found == "unknown":
            raise CutOff(client)
        assert not isinstance(found, str)
        if found is not None:
            self._keep(found)
        return found

    def began_anew(self, client: str, owner: str) -> None:
        """A client came that wants no session: one that is known of it is forgotten, if nobody takes it before. Raises
        ``NotYours``."""
        self.admit(client, owner=owner, clean=True, expiry_s=0)

    def owner_of(self, client: str) -> str | None:
        """Who owns the session of a client id, as copies say; None: they know of none."""
        standing = self._known(client)
        return None if standing is None else standing.head.owner

    def positions(self, client: str) -> Positions | None:
        """How far a client is, as copies have it."""
        standing = self._known(client)
        return None if standing is None else standing.positions

    def came(self, client: str, delivery: ProvisionalDelivery) -> None:
        self._here[client] = delivery

    def left(self, connection: Client, owner: str, expiry_s: int) -> None:
        """A connection is over, while no leader is heard; its session is kept for so long."""
        client, delivery = connection.client_id, connection.delivery
        if self._here.get(client) is delivery:
            del self._here[client]
        before = self._records.get(client)
        subscriptions = dict(delivery.subscriptions)
        if delivery.provisional and before is not None:
            self._keep(msgspec.structs.replace(before, subscriptions=subscriptions, expiry_s=expiry_s))
        elif not delivery.provisional and self.severed and delivery.session:
            uid, epoch = delivery.session, delivery.session_epoch
            kept = Record(client, owner, uid, epoch, expiry_s, False, self._message_log.tail, subscriptions)
            self._keep(kept)

    def _keep(self, record: Record) -> None:
        self._records.pop(record.client, None)
        self._records[record.client] = record
        if len(self._records) > RECORDS_MAX:
            del self._records[next(iter(self._records))]

    # ── settling ────────────────────────────────────────────────────────────────────────────────────────────

    async def settled(self, client: str) -> None:
        """Return when nothing of an earlier, provisional session of this client is left to be held against its cell."""
        task = self._settling.get(client)
        if task is not None:
            await asyncio.wait({task})

    def _settle(self, client: str, record: Record) -> None:
        task = asyncio.get_running_loop().create_task(self._settle_one(client, record))
        self._settling[client] = task

        def done(task: asyncio.Task[None]) -> None:
            if self._settling.get(client) is task:
                del self._settling[client]

        task.add_done_callback(done)

    async def _settle_one(self, client: str, record: Record) -> None:
        async with self._slots:
            here = client in self._here
            if here:
                self._records[client] = record  # what it has changed since is in what it leaves
                self._clients.ask_anew(client)
                record = self._records.pop(client, record)
            outcome = await self._try_to_write(record, here)
        self.settled_count += outcome == "written"
        self.dropped_count += outcome == "let go"

    async def _try_to_write(self, record: Record, here: bool) -> str:
        for _ in range(TRIES):
            try:
                return await self._write(record, here)
            except Conflict:
                return "let go"  # somebody has taken it just now
            except TocsinError as error:
                facts = {"subscriber": record.client, "problem": str(error)}
                self._log.info("a provisional session is not settled yet", **facts)
                await asyncio.sleep(LOOK_S)
        self._records.setdefault(record.client, record)  # until the store is back once more
        return "later"

    async def _write(self, record: Record, here: bool) -> str:
        key = session_key(record.client)
        cell = await self._table.get(key)
        try:
            stored = None if cell is None else decode_session(cell.value)
        except UNREADABLE:
            return "let go"  # who takes it says so
        uid = token_hex(8)
        found = settle(record, stored, here=here, broker=self._broker, uid=uid)
        revision = 0 if cell is None else cell.revision
        if found == "forget":
            await self._table.delete(key, revision=revision)
        if isinstance(found, str):
            return found
        ttl_s = kept_s(found)
        self._log.debug(SETTLES, subscriber=record.client, epoch=record.epoch)
        await self._table.compare_and_set(key, encode_session(found), revision=revision, ttl_s=ttl_s)
        return "written"
